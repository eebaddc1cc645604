"""A key-value log that is appended to, with a checksum a record: an engine for the rig in a package of its own."""
