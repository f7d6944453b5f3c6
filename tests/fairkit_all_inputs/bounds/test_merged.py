"""Trees that are merged in boxes: the same answers as by enumeration, and logs that say what was added up."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fairkit.errors import DataError
from fairkit_all_inputs.bounds import proof, searching
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, Problem
from fairkit_all_inputs.bounds.proof import log_of, packed, proved, unpacked
from fairkit_all_inputs.bounds.searching import answer

from .random_trees import CHANGING, blocks, enumerated, problem, values

NAMES = {SCORE: "all_inputs_score_change", FLIP: "all_inputs_flip", CHANCE: "all_inputs_probability_change"}


@pytest.fixture(autouse=True)
def _merged_at_once(monkeypatch):
    monkeypatch.setattr(searching, "AS_THEY_ARE", 1)
    monkeypatch.setattr(searching, "IN_A_REGION", 3)


@pytest.fixture(scope="module")
def checker():
    folder = str(Path(__file__).resolve().parents[3] / "docs/explanation")
    sys.path.insert(0, folder)
    import all_inputs_check

    yield all_inputs_check
    sys.path.remove(folder)


def core_of(asked):
    """What the checker makes of a model and a proof."""
    return {
        "sizes": [block.size for block in asked.blocks], "changing": asked.changing, "tests": asked.tests,
        "yes": list(asked.yes), "no": list(asked.no), "leaf": list(asked.value), "roots": list(asked.roots),
        "base": asked.base, "threshold": asked.threshold,
    }  # fmt: skip


def groups_in(log):
    return [entry for entries in log.values() for entry in entries if isinstance(entry, dict) and entry]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "seed"), [*itertools.product([SCORE, CHANCE], range(3))])
def test_merged_trees_give_the_largest_change_and_a_log_that_two_checkers_confirm(kind, seed, checker):
    asked = problem(seed, trees=16, depth=4)
    sums = enumerated(asked)
    best = max(values(kind, sums[a], sums[b], 0.0).max() for a, b in asked.pairs)
    found = answer(asked, kind)
    slack = 1e-8 if kind == SCORE else 2e-5
    assert best - 1e-9 <= found.upper <= best + slack
    log = unpacked(packed(log_of(asked, found)))
    assert groups_in(log), "trees are merged here"
    assert proved(asked, kind, log) <= found.upper + 1e-9
    bound = checker.proved(core_of(asked), NAMES[kind], json.loads(json.dumps(log)))
    assert best - 1e-9 <= bound <= found.upper + 1e-9


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_a_proof_with_merged_trees_that_nothing_flips(seed, checker):
    base = problem(seed, trees=14, depth=4)
    sums = enumerated(base)
    top = sums.max(axis=1)
    threshold = float(top.max() + 0.05 if seed % 2 else np.sort(top)[-1] - 1e-4)
    asked = problem(seed, trees=14, depth=4, threshold=threshold)
    there = any(((sums[a] >= threshold) & (sums[b] < threshold)).any() for a, b in asked.pairs)
    found = answer(asked, FLIP)
    assert (found.lower > 0) == there
    if not there:
        log = log_of(asked, found)
        assert proved(asked, FLIP, log) <= -asked.rounding
        assert checker.proved(core_of(asked), NAMES[FLIP], log) <= found.upper + 1e-9


def test_a_log_that_adds_up_trees_twice_or_too_many_is_refused(monkeypatch):
    asked = problem(5, trees=16, depth=4)
    log = json.loads(json.dumps(log_of(asked, answer(asked, SCORE))))
    upper = proved(asked, SCORE, log)
    key = next(key for key, entries in log.items() if groups_in({key: entries}))
    at = next(place for place, entry in enumerate(log[key]) if isinstance(entry, dict) and entry)

    def with_groups(told):
        return {**log, key: [*log[key][:at], told, *log[key][at + 1 :]]}

    assert proved(asked, SCORE, with_groups({})) > upper + 1e-6, "trees one by one have a larger bound"
    for groups in ([[0, 1], [1, 2]], [[3, 3]], [[0, 99]], [[0, -1]], [["0", 1]], [[True, 0]]):
        with pytest.raises(DataError, match="not there, or twice"):
            proved(asked, SCORE, with_groups({"gap": groups}))
    with pytest.raises(DataError, match="not there, or twice"):
        proved(asked, SCORE, with_groups({"all": [[0, 1]]}))
    with pytest.raises((DataError, TypeError)):
        proved(asked, SCORE, with_groups({"gap": 3}))
    monkeypatch.setattr(proof, "MOST_PARTS", 20)
    with pytest.raises(DataError, match="more than"):
        proved(asked, SCORE, with_groups({"gap": [list(range(16))]}))


def clause(nodes, first, second):
    """Add a tree: at one cell of the changing block 1 where one of two blocks is on the side that it names, else 0."""
    place = len(nodes)
    (a, low), (b, high) = first, second
    leaf = ((-1, 0), -1, -1)
    nodes += [
        ((CHANGING, 1), place + 1, place + 5, 0.0),
        ((a, 0b111 if low else 0b1111000), place + 3, place + 2, 0.0),
        ((b, 0b11 if high else 0b11100), place + 3, place + 4, 0.0),
        (*leaf, 1.0),
        (*leaf, 0.0),
        (*leaf, 0.0),
    ]
    return place


def test_sums_that_no_point_reaches_though_no_cut_lowers_them_are_split_on():
    """Each of four clauses holds in two ways, no point satisfies all: every cut leaves every tree its largest value."""
    sizes, ordered = (7, 4, 5, 3, 66), (True, False, True, False, False)
    nodes: list = []
    roots = [clause(nodes, (0, low), (2, high)) for low in (True, False) for high in (True, False)]
    tests, yes, no, value = (list(part) for part in zip(*nodes, strict=True))
    asked = Problem(blocks(sizes, ordered), CHANGING, tests, yes, no, value, roots, 0.0, 1e-7, 0.0, True)
    found = answer(asked, SCORE)
    assert (found.lower, found.upper) == pytest.approx((3.0, 3.0))
    assert proved(asked, SCORE, log_of(asked, found)) == pytest.approx(3.0)
