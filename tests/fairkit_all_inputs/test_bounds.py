"""Bounds over all inputs: the search, and cells that are merged."""

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
from fairkit_all_inputs.bounds.searching import Effort, answer

from .random_trees import CHANGING, SIZES, blocks, enumerated, problem, values


@pytest.mark.parametrize("kind", [SCORE, CHANCE])
@pytest.mark.parametrize("seed", range(12))
def test_the_largest_change_is_that_of_enumeration(kind, seed):
    asked = problem(seed, trees=6, depth=4)
    sums = enumerated(asked)
    best = max(values(kind, sums[a], sums[b], 0.0).max() for a, b in asked.pairs)
    found = answer(asked, kind)
    assert found.lower <= best + 1e-9
    assert found.upper >= best - 1e-9
    assert found.upper - found.lower <= (1e-8 if kind == SCORE else 2e-5)
    assert proved(asked, kind, unpacked(packed(log_of(asked, found)))) <= found.upper + 1e-9
    points = np.array([found.point, found.point])
    points[:, CHANGING] = found.pair
    f, g = asked.sums(points)
    assert values(kind, f, g, 0.0) == pytest.approx(found.lower, abs=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_a_flip_is_found_or_refuted_as_by_enumeration(seed):
    rng = np.random.default_rng(seed)
    base = problem(seed, trees=4, depth=3)
    sums = enumerated(base)
    threshold = float(rng.uniform(sums.min() - 0.1, sums.max() + 0.1))
    if seed % 3 == 0:  # near the ends, where mostly nothing flips
        threshold = float(sums.max() - 1e-3)
    asked = problem(seed, trees=4, depth=3, threshold=threshold)
    there = any(((sums[a] >= threshold) & (sums[b] < threshold)).any() for a, b in asked.pairs)
    found = answer(asked, FLIP)
    if there:
        assert found.lower > 0
        points = np.array([found.point, found.point])
        points[:, CHANGING] = found.pair
        f, g = asked.sums(points)
        assert f >= threshold > g
    else:
        assert found.upper <= -asked.rounding
        assert proved(asked, FLIP, log_of(asked, found)) <= -asked.rounding


def test_the_search_is_anytime_and_its_bounds_hold_the_truth():
    asked = problem(5, trees=20, depth=5)
    sums = enumerated(asked)
    best = max((sums[a] - sums[b]).max() for a, b in asked.pairs)
    before = np.inf
    for boxes in (1, 30, 10_000):
        found = answer(asked, SCORE, effort=Effort(boxes=boxes))
        assert found.lower - 1e-9 <= best <= found.upper + 1e-9
        assert found.upper <= before + 1e-9
        before = found.upper
        assert proved(asked, SCORE, log_of(asked, found)) == pytest.approx(found.upper, abs=1e-9)
    assert found.upper == pytest.approx(found.lower)


def test_equal_questions_have_equal_answers():
    one, other = (answer(problem(3, trees=10, depth=4), SCORE) for _ in range(2))
    assert (one.lower, one.upper, one.point, one.boxes) == (other.lower, other.upper, other.point, other.boxes)


def milp(asked, pair):
    """The largest difference by HiGHS: a binary for each leaf and for each cell, linked block by block."""
    from scipy.optimize import LinearConstraint, milp
    from scipy.sparse import csr_matrix

    layout = asked.layout
    starts = np.concatenate([[0], np.cumsum(layout.sizes)])
    cost, rows, low, high = [0.0] * int(starts[-1]), [], [], []
    for block in range(len(SIZES)):
        rows.append({int(starts[block] + c): 1.0 for c in range(layout.sizes[block])})
        low.append(1.0)
        high.append(1.0)
    for cell, sign in zip(pair, (1.0, -1.0), strict=True):
        for tree in asked.trees_at(cell):
            one = {}
            waiting = [(0, {})]
            while waiting:
                node, boxes = waiting.pop()
                block = tree.block[node]
                if block >= 0:
                    for cells, child in ((tree.cells[node], tree.yes[node]), (tree.others[node], tree.no[node])):
                        waiting.append((child, {**boxes, block: boxes.get(block, cells) & cells}))
                    continue
                leaf = len(cost)
                cost.append(-sign * tree.value[node])
                one[leaf] = 1.0
                for inside, cells in boxes.items():
                    picked = {int(starts[inside] + c): -1.0 for c in range(layout.sizes[inside]) if cells >> c & 1}
                    rows.append({leaf: 1.0, **picked})
                    low.append(-np.inf)
                    high.append(0.0)
            rows.append(one)
            low.append(1.0)
            high.append(1.0)
    entries = [(r, c, v) for r, row in enumerate(rows) for c, v in row.items()]
    r, c, v = zip(*entries, strict=True)
    matrix = csr_matrix((v, (r, c)), shape=(len(rows), len(cost)))
    got = milp(np.array(cost), constraints=LinearConstraint(matrix, low, high), integrality=np.ones(len(cost)),
               bounds=(0, 1), options={"mip_rel_gap": 0.0})  # fmt: skip
    assert got.status == 0
    return -got.fun


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_the_score_bound_is_that_of_a_milp(seed):
    asked = problem(100 + seed, trees=8, depth=3)
    best = max(milp(asked, pair) for pair in asked.pairs)
    found = answer(asked, SCORE)
    assert found.upper == pytest.approx(best, abs=1e-9)
    assert found.lower == pytest.approx(best, abs=1e-9)


def test_a_log_that_was_changed_proves_less_or_nothing():
    asked = problem(5, trees=12, depth=5)
    found = answer(asked, SCORE)
    log = json.loads(json.dumps(log_of(asked, found)))
    assert proved(asked, SCORE, log) <= found.upper + 1e-9
    key = max(log, key=lambda pair: len(log[pair]))
    with pytest.raises(DataError, match="open"):
        proved(asked, SCORE, {**log, key: log[key][:-1]})
    with pytest.raises(DataError, match="goes on"):
        proved(asked, SCORE, {**log, key: [*log[key], 0]})
    with pytest.raises(DataError, match="pairs"):
        proved(asked, SCORE, {k: v for k, v in log.items() if k != key})
    with pytest.raises(DataError, match="no split"):
        proved(asked, SCORE, {**log, key: [[99, 1], 0, 0]})
    assert proved(asked, SCORE, {**log, key: [0]}) > found.upper + 1e-6, "one box for all has a larger bound"


@pytest.mark.parametrize("text", ["", "nonsense", "c-jd2d;", "\u2603"])
def test_a_damaged_log_is_an_error(text):
    with pytest.raises(DataError, match="cannot be read"):
        unpacked(text)


def test_values_that_no_test_tells_apart_leave_nothing_to_ask():
    asked = problem(1)
    alone = Problem(
        [*asked.blocks[:CHANGING], blocks((1,), (False,))[0], *asked.blocks[CHANGING + 1 :]],
        CHANGING, [((-1, 0))], [-1], [-1], [0.3], [0], 0.0, 1e-7, 0.0, True,
    )  # fmt: skip
    assert answer(alone, SCORE).upper == 0.0
    assert answer(alone, FLIP).upper == -np.inf


def test_a_tree_that_settles_the_side_is_decided_first():
    """Its tests lower no bound by themselves: a search by bounds alone would never close these boxes."""
    rng = np.random.default_rng(4)
    base = problem(7, trees=30, depth=5)
    nodes = list(zip(base.tests, base.yes, base.no, base.value, strict=True))
    root = len(nodes)

    def blind(depth):
        place = len(nodes)
        nodes.append(None)
        if depth == 0:
            nodes[place] = ((-1, 0), -1, -1, float(rng.choice([-200.0, 200.0])))
            return place
        block = (0, 2, 4)[depth % 3]
        cells = (1 << int(rng.integers(1, SIZES[block]))) - 1
        yes, no = blind(depth - 1), blind(depth - 1)
        nodes[place] = ((block, cells), yes, no, 0.0)
        return place

    blind(5)
    tests, yes, no, value = (list(part) for part in zip(*nodes, strict=True))
    asked = Problem(blocks(), CHANGING, tests, yes, no, value, [*base.roots, root], 0.2, base.rounding, 0.0, True)
    found = answer(asked, FLIP, effort=Effort(boxes=600))
    assert found.upper <= -asked.rounding
    assert proved(asked, FLIP, log_of(asked, found)) <= -asked.rounding


def test_every_loop_is_compiled_for_one_kind_of_arguments():
    """No literal makes numba compile a loop anew: compilation is what takes long."""
    from fairkit_all_inputs.bounds import kernels, loops, merging

    for kind in (SCORE, FLIP, CHANCE):
        answer(problem(0, trees=8, depth=4), kind, effort=Effort(boxes=200), starts=[(0, 0, 0, 0, 0)])
    compiled = [loops.search, loops.improve, loops.profile, kernels.bound, kernels.part, kernels.choose_split]
    compiled += [merging.join, merging._grow, loops.box_bound]
    assert {kernel.__name__: len(kernel.signatures) for kernel in compiled if len(kernel.signatures) > 1} == {}


# Trees that are merged in boxes: the same answers as by enumeration, and logs that say what was added up.
NAMES = {SCORE: "all_inputs_score_change", FLIP: "all_inputs_flip", CHANCE: "all_inputs_probability_change"}


@pytest.fixture
def _merged_at_once(monkeypatch):
    monkeypatch.setattr(searching, "AS_THEY_ARE", 1)
    monkeypatch.setattr(searching, "IN_A_REGION", 3)


@pytest.fixture(scope="module")
def checker():
    folder = str(Path(__file__).resolve().parents[2] / "docs/explanation")
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


@pytest.mark.usefixtures("_merged_at_once")
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


@pytest.mark.usefixtures("_merged_at_once")
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


@pytest.mark.usefixtures("_merged_at_once")
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


@pytest.mark.usefixtures("_merged_at_once")
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
