"""Rows apart: a proof, by a walk over a graph, that each row is answered from itself for every batch size."""
