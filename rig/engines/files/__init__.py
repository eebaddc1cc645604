"""Not a database: patterns of file use that programs rely on, which show what a file system itself keeps."""
