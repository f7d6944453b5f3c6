"""The proof of a bound of the change of the predicted class."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError
from fairkit_all_inputs.bounds.proof import boxes_of, filled
from fairkit_all_inputs.bounds.proof_bounds import largest

if TYPE_CHECKING:
    from fairkit_all_inputs.bounds.classes.problem import ClassProblem
    from fairkit_all_inputs.bounds.proof import Log


def proved_classes(problem: ClassProblem, log: Log) -> float:
    """Return the upper bound that a log proves, over all questions."""
    keys = [",".join(map(str, question)) for question in problem.questions]
    if set(log) != set(keys):
        raise DataError(f"the proof log is about {len(set(log))} changes of a class, and there are {len(keys)}")
    starts = np.concatenate([[0], np.cumsum(problem.layout.sizes)]).astype(np.int64)
    upper = -math.inf
    for question, key in zip(problem.questions, keys, strict=True):
        boxes = np.concatenate([some for some, _ in boxes_of(problem.plain, log[key])])
        boxes = boxes[filled(boxes, starts)]
        s, t, k, m = question
        gaps = problem.margin(k, m).gap_trees(s, t)
        least = largest(gaps, boxes, starts) / 2.0
        for cell, margin in problem.margins(question):
            least = np.minimum(least, margin.base + largest(margin.trees_at(cell), boxes, starts))
        moving = np.zeros(len(boxes))
        for tree in gaps:
            moving += np.abs(largest([tree], boxes, starts)) + np.abs(largest([tree.negative], boxes, starts))
        least[moving == 0.0] = -math.inf
        upper = max(upper, float(least.max(initial=-math.inf)))
    return upper
