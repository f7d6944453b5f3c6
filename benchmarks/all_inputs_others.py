"""`all-inputs` beside Veritas (the package dtai-veritas) on the same question: the largest change of the sum of trees.

    FAIRKIT_DATA=... python benchmarks/all_inputs_others.py [--sizes 50x4,100x6] [--seconds 30]

The table is credit default, all of whose columns are numbers: Veritas knows no columns of which exactly one is 1. It is
given the trees at one value and the negated trees at the other over the same cells ("two sums"), and also the trees of
differences that fairkit makes ("differences").
"""

from __future__ import annotations

import argparse
import time

from all_inputs import asked, table, trained

from fairkit.inputs.problem import SCORE
from fairkit.inputs.searching import Effort, answer


def ensemble(trees):
    """Return the trees of a problem as Veritas has them: the cells of ordered blocks are numbers."""
    import veritas

    whole = veritas.AddTree(1, veritas.AddTreeType.REGR)
    for tree in trees:
        made = whole.add_tree()
        waiting = [(0, made.root())]
        while waiting:
            node, there = waiting.pop()
            block = tree.block[node]
            if block < 0:
                made.set_leaf_value(there, 0, tree.value[node])
                continue
            mine, others = tree.cells[node], tree.others[node]
            yes, no = tree.yes[node], tree.no[node]
            if mine & -mine > others & -others:
                others, yes, no = mine, no, yes
            made.split(there, block, float((others & -others).bit_length() - 1))
            waiting += [(yes, made.left(there)), (no, made.right(there))]
    return whole


def searched(trees, seconds):
    """Return Veritas' bounds of the largest sum."""
    import veritas

    config = veritas.Config(veritas.HeuristicType.MAX_OUTPUT)
    config.stop_when_optimal = True
    config.max_memory = 2 * 2**30
    search = config.get_search(ensemble(trees), {})
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        if search.steps(500) != veritas.StopReason.NONE:
            break
    bounds = search.current_bounds()
    return bounds.best, bounds.top_of_open


def _two_sums(problem, first, second):
    return [*problem.trees_at(first), *(tree.negative for tree in problem.trees_at(second))]


def _differences(problem, first, second):
    return problem.gap_trees(first, second)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="50x4,100x6,300x6")
    parser.add_argument("--seconds", type=float, default=30)
    told = parser.parse_args()
    frame, label, favorable, (column,) = table("credit_default")
    for size in told.sizes.split(","):
        trees, depth = map(int, size.split("x"))
        model = trained("xgboost", trees, depth, frame, label, favorable, 0)
        problem, starts = asked(model, frame, label, favorable, column)
        answer(problem, SCORE, effort=Effort(boxes=1))  # compiled
        cpu = time.process_time()
        got = answer(problem, SCORE, effort=Effort(boxes=10**7, seconds=told.seconds), starts=starts)
        print(
            f"{size} fairkit: {got.lower:.6f} to {got.upper:.6f}, {time.process_time() - cpu:.2f} cpu s",
            flush=True,
        )
        for name, form in (("two sums", _two_sums), ("differences", _differences)):
            cpu = time.process_time()
            ends = [searched(form(problem, *pair), told.seconds / 2) for pair in problem.pairs]
            used = time.process_time() - cpu
            low, high = (max(values) for values in zip(*ends, strict=True))
            print(f"{size} Veritas, {name}: {low:.6f} to {high:.6f}, {used:.2f} cpu s", flush=True)


if __name__ == "__main__":
    main()
