"""Step functions of a number, one for each group, as one tree of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_onnx.write.trees import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_onnx.write.trees import Tree

Steps = tuple[Any, Any]
"""Edges, increasing, [k - 1], and values, [k]: ``values[i]`` from ``edges[i - 1]`` on, below ``edges[i]``."""


def step_tree(groups: Sequence[Steps], feature: int) -> Tree:
    """Write the step functions of all groups as one tree: first by group, then by value.

    Parameters
    ----------
    groups
        The steps of group 0, 1, ...: float32 numbers. One alone is for everybody; then no column holds groups.
    feature
        The column of the number; column 0 holds the group.

    Returns
    -------
    list of Node
        For `fairkit_onnx.write.trees.add_ensemble`.
    """
    nodes: list[Node] = []

    def by_value(steps: Steps, low: int, high: int) -> int:
        number = len(nodes)
        nodes.append(Node("LEAF", weights=(float(steps[1][low]),)))
        if high > low:
            middle = (low + high + 1) // 2
            below = by_value(steps, low, middle - 1)
            above = by_value(steps, middle, high)
            nodes[number] = Node("BRANCH_LT", feature, float(steps[0][middle - 1]), below, above)
        return number

    def by_group(low: int, high: int) -> int:
        if low == high:
            return by_value(groups[low], 0, len(groups[low][1]) - 1)
        number = len(nodes)
        nodes.append(Node("LEAF"))
        middle = (low + high + 1) // 2
        below, above = by_group(low, middle - 1), by_group(middle, high)
        nodes[number] = Node("BRANCH_LT", 0, float(middle), below, above)
        return number

    by_group(0, len(groups) - 1)
    return nodes
