"""Work of the lab on the workers of a Dask cluster, in processes of its own there."""
