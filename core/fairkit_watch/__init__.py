"""Watching decisions over time: statements that hold at every look."""
