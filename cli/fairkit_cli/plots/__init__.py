"""Altair charts of results: the functions of the entry points ``fairkit.plots``."""
