"""MariaDB with InnoDB: spec, driver, its syncs, and the recipe of an image that has the server."""
