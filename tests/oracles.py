"""What several packages' tests hold their results against: definitions, evaluated slowly."""

from __future__ import annotations

import numpy as np

TESTS = {"BRANCH_LEQ": lambda x, t: x <= t, "BRANCH_LT": lambda x, t: x < t, "BRANCH_EQ": lambda x, t: x == t}


def predict_trees(trees, matrix, outputs, base):
    """Evaluate trees, node by node: what the graph should give, shape [n, len(base)]."""
    sums = np.tile(np.asarray(base, dtype=float), (len(matrix), 1))
    for tree, output in zip(trees, outputs, strict=True):
        for row, x in enumerate(matrix):
            node = tree[0]
            while node.mode != "LEAF":
                value = float(x[node.feature])
                yes = node.missing_yes if np.isnan(value) else TESTS[node.mode](value, node.value)
                node = tree[node.yes if yes else node.no]
            for place, weight in enumerate(node.weights):
                sums[row, output + place] += weight
    return sums
