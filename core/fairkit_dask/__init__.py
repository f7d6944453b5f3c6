"""Rows on the workers of a Dask cluster (extra ``dask``): the engine, and what reaches or starts a cluster."""
