"""Every group that up to three conditions describe: cells of columns, counts of triples, exact search and limits.

Nothing is imported here, so that numba is loaded by those who search.
"""
