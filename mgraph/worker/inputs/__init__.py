"""Inputs that workers read themselves: Dask data, files and functions, in steps."""
