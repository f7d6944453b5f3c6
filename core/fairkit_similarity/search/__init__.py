"""The exact search: the best exchange for every person by branch and bound over a tree of people."""
