"""The host: processes, files, the cache, and what it keeps."""
