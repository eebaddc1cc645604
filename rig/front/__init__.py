"""The user interfaces of the rig: command line, pytest plugin, benchmarks, doctor."""
