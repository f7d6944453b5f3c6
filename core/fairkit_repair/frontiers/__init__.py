"""Frontiers: accuracy against disparity along the parameters of one or several methods."""
