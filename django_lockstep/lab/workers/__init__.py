"""Processes that work for others: of this machine, or beside the workers of a Dask cluster."""
