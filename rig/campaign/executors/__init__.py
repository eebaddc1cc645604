"""Where a campaign's machines run: in threads of this process, or on the workers of a Dask cluster."""
