"""What the workers read themselves: Dask data, files and functions, a batch a step."""
