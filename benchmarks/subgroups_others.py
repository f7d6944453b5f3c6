"""Other searchers in their own family, on the same cells of Adult: equal results, and how long each takes.

    pip install sliceline divexplorer mcgrad
    python benchmarks/subgroups_others.py

sliceline (Sagadeeva & Boehm 2021): its score of the worst slices, recomputed from our sums. divexplorer (Pastor et al.
2021): the support and divergence of every pattern of at most three items. Both search equalities only: so do we here,
by declaring every cell a category. mcgrad: log loss and largest surely wrong group on rows not seen, before and after.
Each part is left out where its package is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairkit_subgroups.searching.cells import make_cells
from fairkit_subgroups.searching.family import Family
from fairkit_subgroups.searching.measures import MEASURES, STATES, values_of
from fairkit_subgroups.searching.search import Search
from fairkit_subgroups.searching.tables import count
from fairkit_subgroups.searching.values import Tallies, tally_column

SHARE, ALPHA, K = 0.01, 0.95, 5


def adult():
    """Adult without missing rows: columns in cells as text, and errors of a model that knows some columns."""
    folder = Path(os.environ.get("FAIRKIT_DATA", "shared/data"))
    table = pq.read_table(folder / "adult.parquet").drop_columns(["fnlwgt", "split"])
    frame = table.to_pandas().dropna()
    from sklearn.linear_model import LogisticRegression

    outcome = (frame.pop("income") == ">50K").to_numpy().astype(float)
    known = frame[["age", "education-num", "hours-per-week", "capital-gain"]].to_numpy(float)
    known = (known - known.mean(axis=0)) / known.std(axis=0)
    decision = LogisticRegression().fit(known, outcome).predict(known)
    arrow = {name: pa.array(frame[name].to_numpy()) for name in frame.columns[:12]}
    rows = len(frame)
    columns, _ = make_cells(
        Tallies({n: tally_column(c) for n, c in arrow.items()}, rows), rows, share=SHARE, bins=8, edges={}
    )
    texts = {}
    for column in columns:
        codes = column.encode(arrow[column.name])
        texts[column.name] = np.array([f"v{code:03}" for code in range(column.size)], dtype=object)[codes]
    return texts, outcome, decision


def ours(texts, outcome, decision):
    """Count and search; returns every group's conditions with rows and errors, and the seconds."""
    arrow = {name: pa.array(one) for name, one in texts.items()}
    rows = len(outcome)
    tallies = Tallies({name: tally_column(one) for name, one in arrow.items()}, rows)
    for _ in range(2):
        family = Family(tuple(make_cells(tallies, rows, share=SHARE, bins=8, edges={})[0]))
        codes = family.encode(arrow)
        started = time.process_time()
        states = values_of(STATES, outcome, decision, None, None, None)
        tables = count(family, codes, np.zeros(rows, np.int64), {STATES: states}, {STATES: 4}, 1)
        search = Search(family, MEASURES["error_rate"], tables[STATES], False, False, SHARE * rows, 0)
        groups = list(search.all_groups())
        scores = [slice_scores(some.sums[0], some.sums[2], rows, outcome != decision) for some in groups]
        seconds = time.process_time() - started
    return search, groups, scores, seconds


def slice_scores(size, errors, rows, wrong):
    mean = wrong.mean()
    return ALPHA * (errors / size / mean - 1) - (1 - ALPHA) * (rows / size - 1)


def against_sliceline(texts, outcome, decision, found):
    from sliceline.slicefinder import Slicefinder

    _, _, scores, seconds = found
    table = np.stack(list(texts.values()), axis=1)
    wrong = (outcome != decision).astype(float)
    started = time.process_time()
    finder = Slicefinder(alpha=ALPHA, k=K, max_l=3, min_sup=int(np.ceil(SHARE * len(wrong))), verbose=False)
    finder.fit(table, wrong)
    theirs = time.process_time() - started
    told = sorted((one["slice_score"] for one in finder.top_slices_statistics_), reverse=True)  # ties come too
    best = np.sort(np.concatenate(scores))[::-1][: len(told)]
    print(
        f"sliceline {theirs:.2f} CPU s, ours {seconds:.3f}: {theirs / seconds:.0f} times; "
        f"scores {told} and {best.tolist()}"
    )
    assert np.allclose(told, best, atol=1e-4)


def against_divexplorer(texts, outcome, decision, found):
    import pandas as pd
    from divexplorer import DivergenceExplorer

    search, groups, _, seconds = found
    frame = pd.DataFrame(texts)
    frame["wrong"] = outcome != decision
    started = time.process_time()
    explored = DivergenceExplorer(frame).get_pattern_divergence(
        min_support=SHARE, attributes=list(texts), boolean_outcomes=["wrong"]
    )
    explored = explored[explored["length"] <= 3]
    theirs = time.process_time() - started
    ours_by_name = {}
    for some in groups:
        for i in range(len(some.numbers)):
            conditions = search.family.conditions(int(some.tables[i]), int(some.numbers[i]))
            key = frozenset(f"{one['column']}={one['value']}" for one in conditions)
            ours_by_name[key] = some.sums[2, i] / some.sums[0, i]
    mean = (outcome != decision).mean()
    theirs_by_name = {frozenset(one.itemset): one.wrong_div + mean for one in explored.itertuples() if one.itemset}
    shared = theirs_by_name.keys() & ours_by_name.keys()
    apart = max(abs(theirs_by_name[key] - ours_by_name[key]) for key in shared)
    print(
        f"divexplorer {theirs:.2f} CPU s, ours {seconds:.3f}: {theirs / seconds:.0f} times; "
        f"{len(theirs_by_name)} patterns, ours {len(ours_by_name)}, shared {len(shared)}, "
        f"rates at most {apart:.1g} apart"
    )
    assert theirs_by_name.keys() == ours_by_name.keys()
    assert apart < 1e-9


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    texts, outcome, decision = adult()
    found = ours(texts, outcome, decision)
    print(f"Adult, {len(outcome):,} rows, {len(texts)} columns: {found[0].groups:,} groups of equalities")
    if importlib.util.find_spec("sliceline"):
        against_sliceline(texts, outcome, decision, found)
    if importlib.util.find_spec("divexplorer"):
        against_divexplorer(texts, outcome, decision, found)


if __name__ == "__main__":
    main()
