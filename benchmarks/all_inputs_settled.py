"""How long the proof takes that nothing flips: boosted trees that read a column, the first of which settles decisions.

    FAIRKIT_DATA=... python benchmarks/all_inputs_settled.py [--tables adult] [--sizes 100x6] [--margins 3,6]

XGBoost's first tree does not see the column, and has leaves of plus or minus 1; the other trees are trained from there
on with the column among their features. The leaves of the first tree are then set to plus or minus a margin. With a
small margin the others overturn it, and some input flips; with a large one none does, and what takes time is the proof.
Prints a line for each model: trees that split on the column, the answer, boxes and processor seconds of the search, the
log's size, and seconds of its check.
"""

from __future__ import annotations

import argparse
import json
import time

import all_inputs
import numpy as np
from all_inputs import SIZES, asked, table

from fairkit_all_inputs.bounds import questions
from fairkit_all_inputs.bounds.problem import FLIP
from fairkit_all_inputs.bounds.proof import packed, proved
from fairkit_all_inputs.bounds.questions import answer, log_of
from fairkit_all_inputs.bounds.searching import Effort


def settled(margin, column, features):
    """Return a class of XGBoost whose first tree is blind to a column and has leaves of plus or minus a margin."""
    import xgboost

    class Settled(xgboost.XGBClassifier):
        def fit(self, matrix, label, **_):
            told = {"max_depth": self.max_depth, "objective": "binary:logistic", "base_score": 0.5, "nthread": 1,
                    "seed": self.random_state}  # fmt: skip
            blind = np.array(matrix, copy=True)
            blind[:, features(matrix, column)] = 0.0
            first = xgboost.train({**told, "eta": 1.0}, xgboost.DMatrix(blind, label), 1)
            with_leaves(first, 1.0)
            data = xgboost.DMatrix(matrix, label)
            whole = xgboost.train({**told, "eta": 0.1}, data, self.n_estimators - 1, xgb_model=first)
            super().fit(matrix[:100], np.arange(100) % 2)
            self._Booster = with_leaves(whole, margin)
            return self

    Settled.__name__ = "XGBClassifier"
    return Settled


def with_leaves(booster, margin):
    """Set the leaves of the first tree to plus or minus a margin."""
    text = json.loads(booster.save_raw("json"))
    tree = text["learner"]["gradient_booster"]["model"]["trees"][0]
    for node, child in enumerate(tree["left_children"]):
        if child < 0:
            leaf = margin if tree["split_conditions"][node] >= 0 else -margin
            tree["split_conditions"][node] = tree["base_weights"][node] = leaf
    booster.load_model(bytearray(json.dumps(text).encode()))
    return booster


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="adult,credit_default,acs_income")
    parser.add_argument("--sizes", default=",".join(f"{t}x{d}" for t, d in SIZES[1:]))
    parser.add_argument("--margins", default="2,4,6,8")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    told = parser.parse_args()
    questions.time.monotonic = time.process_time
    for name in told.tables.split(","):
        frame, label, favorable, (column, *_) = table(name)
        numbers = [c for c in frame if c != label and frame[c].dtype.kind in "biuf"]

        def features(matrix, column, frame=frame, numbers=numbers, label=label):
            if column in numbers:
                return [numbers.index(column)]
            at = len(numbers)
            for text in (c for c in frame if c != label and c not in numbers):
                size = frame[text].nunique()
                if text == column:
                    return list(range(at, at + size))
                at += size
            raise KeyError(column)

        for size in told.sizes.split(","):
            trees, depth = map(int, size.split("x"))
            for margin in map(float, told.margins.split(",")):
                for seed in range(told.seeds):
                    made = settled(margin, column, features)
                    model = all_inputs.trained("xgboost", trees, depth, frame, label, favorable, seed, made=made)
                    problem, starts = asked(model, frame, label, favorable, column)
                    answer(problem, FLIP, effort=Effort(boxes=1))  # compiled
                    say(f"{name} {size} margin {margin:g} seed {seed}", problem, starts, told.seconds)


def say(title, problem, starts, seconds):
    """Ask and print."""
    cpu = time.process_time()
    got = answer(problem, FLIP, effort=Effort(boxes=10**7, seconds=seconds), starts=starts)
    used = time.process_time() - cpu
    line = f"{title}: {len(problem.touching)} trees split on it, {got.boxes} boxes, {used:.2f} s: "
    if got.lower > 4 * problem.rounding:
        print(line + "a witness", flush=True)
    elif got.upper > -problem.rounding:
        print(line + f"undecided, upper end {got.upper:.3f}", flush=True)
    else:
        log = log_of(problem, got)
        cpu = time.process_time()
        holds = proved(problem, FLIP, log) <= -problem.rounding
        text = packed(log)
        print(
            line
            + f"proved; log {len(text or '') / 1000:.1f} kB, checked in {time.process_time() - cpu:.2f} s: {holds}",
            flush=True,
        )


if __name__ == "__main__":
    main()
