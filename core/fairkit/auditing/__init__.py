"""Auditing: one model, one dataset, one pass over the rows; findings, verdict and report."""
