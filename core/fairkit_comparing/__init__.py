"""Comparing two models on the same rows: paired changes of rates, means, disparities and distributions."""
