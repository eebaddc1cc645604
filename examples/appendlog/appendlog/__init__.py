"""An append-only key-value log with a checksum for each record: an engine for the rig in a separate package."""
