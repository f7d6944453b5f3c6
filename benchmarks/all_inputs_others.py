"""`all-inputs` beside Veritas (the package dtai-veritas) on the same question: the largest change of the sum of trees.

    FAIRKIT_DATA=... python benchmarks/all_inputs_others.py [--tables credit_default] [--sizes 50x4,100x6] [--seeds 5]

The tables are credit default and ACSIncome, all of whose columns are numbers: Veritas knows no columns of which exactly
one is 1. It is given the trees of differences that fairkit makes over the same cells ("differences"), and with
`--two-sums` also the trees at one value and the negated trees at the other. Both are timed from those trees on, one
thread, processor seconds: fairkit's climbing from people and its making of the arrays are part of its time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

from all_inputs import asked, table, trained

from fairkit_all_inputs.bounds import questions
from fairkit_all_inputs.bounds.problem import SCORE
from fairkit_all_inputs.bounds.questions import answer
from fairkit_all_inputs.bounds.searching import Effort


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
    started = time.process_time()
    while time.process_time() - started < seconds:
        if search.steps(500) != veritas.StopReason.NONE:
            break
    low = search.get_solution(0).output if search.num_solutions() else float("-inf")
    return low, low if search.is_optimal() else search.current_bounds().top_of_open


def _two_sums(problem, first, second):
    return [*problem.trees_at(first), *(tree.negative for tree in problem.trees_at(second))]


def _differences(problem, first, second):
    return problem.gap_trees(first, second)


def ours(problem, starts, seconds):
    """Return fairkit's bounds and processor seconds, from the trees of differences on."""
    for pair in problem.pairs:
        problem.gap(*pair)
    cpu = time.process_time()
    got = answer(problem, SCORE, effort=Effort(boxes=10**7, seconds=seconds), starts=starts)
    return got.lower, got.upper, time.process_time() - cpu


def theirs(problem, form, seconds):
    """Return Veritas' bounds over all pairs and processor seconds."""
    trees = [form(problem, *pair) for pair in problem.pairs]
    cpu = time.process_time()
    ends = [searched(some, seconds / len(trees)) for some in trees]
    low, high = (max(values) for values in zip(*ends, strict=True))
    return low, high, time.process_time() - cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="credit_default,acs_income")
    parser.add_argument("--sizes", default="50x4,100x6,300x6")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30, help="processor seconds for each question")
    parser.add_argument("--two-sums", action="store_true")
    told = parser.parse_args()
    questions.time.monotonic = time.process_time
    forms = {"fairkit": None, "Veritas, differences": _differences}
    forms |= {"Veritas, two sums": _two_sums} if told.two_sums else {}
    for name in told.tables.split(","):
        frame, label, favorable, sensitive = table(name)
        for size in told.sizes.split(","):
            trees, depth = map(int, size.split("x"))
            lines = {form: [] for form in forms}
            for seed in range(told.seeds):
                model = trained("xgboost", trees, depth, frame, label, favorable, seed)
                problem, starts = asked(model, frame, label, favorable, sensitive[0])
                answer(replace(problem), SCORE, effort=Effort(boxes=200))  # compiled
                for title, form in forms.items():
                    got = ours(problem, starts, told.seconds) if form is None else theirs(problem, form, told.seconds)
                    lines[title].append(got)
                    print(
                        f"{name} {size} seed {seed} {title}: {got[0]:.6f} to {got[1]:.6f}, {got[2]:.3f} s", flush=True
                    )
            for title, some in lines.items():
                decided = sum(high - low <= 1e-6 * max(1.0, high) for low, high, _ in some)
                ratio = statistics.median(high / low if low > 0 else float("inf") for low, high, _ in some)
                used = statistics.median(one[2] for one in some)
                print(
                    f"{name} {size} {title}: {decided} of {len(some)}, {used:.3f} s, upper/witness {ratio:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
