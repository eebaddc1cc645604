"""LevelDB: spec, driver, its syncs, and the recipe of the image that it is measured in."""
