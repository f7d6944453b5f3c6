"""A change of the predicted class against enumeration, and its log without a search."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fairkit.errors import DataError
from fairkit_all_inputs.bounds.classes.problem import ClassProblem
from fairkit_all_inputs.bounds.classes.proof import proved_classes
from fairkit_all_inputs.bounds.problem import FLIP
from fairkit_all_inputs.bounds.proof import log_of
from fairkit_all_inputs.bounds.questions import answer
from fairkit_all_inputs.bounds.searching import Effort

from .random_trees import CHANGING, SIZES, problem
from .test_joint_near import distances, joint, points

ROUNDING = 1e-7


def classes(seed, apart=0.0, trees=5, depth=3):
    """Three classes over one structure of trees; `apart` lifts the first above the others."""
    plain = problem(seed, trees=trees, depth=depth)
    rng = np.random.default_rng(seed)
    leaf = np.array([block < 0 for block, _ in plain.tests])
    values = np.where(leaf, rng.normal(size=(3, len(leaf))), 0.0)
    return ClassProblem(plain, values, tuple(plain.roots), (apart, 0.1, 0.0), (ROUNDING,) * 3, 0.0, ("a", "b", "c"))


def predicted(asked):
    """The first of the largest sums at every point, by cell of the changing block."""
    every, found = points(), []
    for cell in range(SIZES[CHANGING]):
        every[:, CHANGING] = cell
        found.append(asked.sums(every).argmax(axis=1))
    return np.array(found)


def needed(seed):
    """By how much the first class must be lifted to be predicted everywhere."""
    every, most = points(), -np.inf
    asked = classes(seed)
    for cell in range(SIZES[CHANGING]):
        every[:, CHANGING] = cell
        sums = asked.sums(every)
        most = max(most, (sums[:, 1:].max(axis=1) - sums[:, 0]).max())
    return float(most)


@pytest.mark.long
@pytest.mark.parametrize("above", [0.01, -0.01, -1.0, -2.5])
@pytest.mark.parametrize("seed", range(3))
def test_a_change_of_the_class_is_found_or_refuted_as_by_enumeration(seed, above):
    asked = classes(seed, needed(seed) + above)
    said = predicted(asked)
    there = bool((said != said[0]).any())
    assert there or above > -1.0
    found = answer(asked, FLIP)
    log = json.loads(json.dumps(log_of(asked.layout, found)))
    if there:
        assert found.lower > 4 * asked.rounding
        both = np.array([found.point, found.point])
        both[:, CHANGING] = found.pair
        one, other = asked.sums(both).argmax(axis=1)
        assert one != other
        return
    assert found.upper <= -asked.rounding
    assert proved_classes(asked, log) <= -asked.rounding
    key = max(log, key=lambda name: len(log[name]))
    with pytest.raises(DataError, match="changes of a class"):
        proved_classes(asked, {k: v for k, v in log.items() if k != key})
    if len(log[key]) > 1:
        assert proved_classes(asked, {**log, key: [0]}) > -asked.rounding, "one box for all has a larger bound"


@pytest.mark.parametrize("near", [0.05, 0.5])
def test_only_changes_near_somebody_count(near):
    for seed in range(4):
        asked, metric = classes(seed, 4.0), joint(0)
        said, far = predicted(asked), distances(metric, points())
        there = bool((said != said[0])[:, far <= near].any())
        found = answer(asked, FLIP, costs=metric, near=near)
        assert (found.lower > 0) == there
        assert there or found.upper <= -asked.rounding


def test_fewer_boxes_never_prove_more():
    asked = classes(6, 7.0, trees=12, depth=4)
    whole, cut = answer(asked, FLIP), answer(asked, FLIP, effort=Effort(boxes=2))
    assert cut.upper >= whole.upper - 1e-12
    assert cut.lower <= whole.lower + 1e-12 or whole.lower > 4 * asked.rounding
