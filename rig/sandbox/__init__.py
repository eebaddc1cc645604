"""What a machine may do on its host: nothing but compute, and read and write the files that it was given."""
