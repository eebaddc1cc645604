"""The guest's block devices and mounts."""
