"""Comparisons inside strata: pooled over them, and whether they agree."""
