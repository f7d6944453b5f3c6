"""The first question: which metric, which limit, for which groups, and what this table can decide."""
