"""How long do attributions take? Rows, trees, intervals; WOODELF beside it where it is installed.

    python benchmarks/why_speed.py [--rows 1000000] [--woodelf]

CPU seconds of one thread, and the memory of the codes and of the attribution itself (`tracemalloc`): cutting the trees,
coding the rows, histograms with tables (the points), and all of it with the projections of 50,000 rows a group (the
intervals). Timings are to be compared with each other, on one machine.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from types import SimpleNamespace

import lightgbm as lgb
import numpy as np

from fairkit_onnx.structure.ensemble import Ensemble
from fairkit_why import exact
from fairkit_why.fringes import cut_trees

SHAPES = {"100 trees of depth 6, 64 leaves": (64, 6), "LightGBM 100 x 31": (31, -1), "LightGBM 100 x 255": (255, -1)}


def ensemble_of(booster):
    """Return a booster's trees as arrays."""
    rows = []

    def add(tree):
        place = len(rows)
        rows.append([0, 0, 0.0, -1, -1, tree.get("leaf_value", 0.0)])
        if "leaf_value" not in tree:
            below = add(tree["left_child"]), add(tree["right_child"])
            rows[place] = [1, tree["split_feature"], tree["threshold"], *below, 0.0]
        return place

    roots = [add(info["tree_structure"]) for info in booster.dump_model()["tree_info"]]
    mode, feature, threshold, yes, no, value = (np.array(column) for column in zip(*rows, strict=True))
    return Ensemble(
        mode=mode.astype(np.int8), feature=feature, threshold=threshold, missing=np.zeros(len(rows), bool), yes=yes,
        no=no, value=value, roots=np.array(roots), base=0.0, uneven=0.0, terms=1.0,
    )  # fmt: skip


def timed(label, function, *arguments):
    """Print the CPU seconds of a call, and return what it returns."""
    start = time.process_time()
    found = function(*arguments)
    print(f"  {label:42} {time.process_time() - start:7.2f} s", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--woodelf", action="store_true")
    told = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(told.rows, told.columns)).astype(np.float32)
    x[:, told.columns // 2 :] = np.round(x[:, told.columns // 2 :] * 3)
    noise = rng.normal(size=told.rows) * 2
    y = (x @ rng.normal(size=told.columns) + noise + x[:, 0] * x[:, 1] > 0).astype(int)
    for name, shape in SHAPES.items():
        print(f"{name}: {told.rows:,} rows x {told.columns} columns")
        measure(x, y, shape, told.woodelf)


def measure(x, y, shape, woodelf):
    """Train, and time one shape."""
    few, group = min(len(x), 100_000), x[:, 3] + x[:, -1] > 0
    settings = {"objective": "binary", "num_leaves": shape[0], "max_depth": shape[1], "verbosity": -1, "num_threads": 1}
    booster = lgb.train(settings, lgb.Dataset(x[:few], y[:few]), 100)
    ensemble, columns = (ensemble_of(booster), {str(j): np.ascontiguousarray(x[:, j]) for j in range(x.shape[1])})
    fringes = timed("cut", cut_trees, ensemble, np.arange(x.shape[1]), x[:1])
    model = SimpleNamespace(ensemble=ensemble, encoding=lambda doubles: encode)
    score = exact._TreeScore(model, fringes, 1.0, x.shape[1])
    codes = timed("codes", score.prepare, columns)
    sides = [np.ascontiguousarray(codes[:, group]), np.ascontiguousarray(codes[:, ~group])]
    none, weights = np.arange(0), (None, None)
    timed("points", score.attribution, *sides, weights, (none, none))
    found = timed("points and intervals", score.attribution, *sides, weights, exact_rows(sides))
    raw = booster.predict(x, raw_score=True)
    off = abs(found.values.sum() - (raw[group].mean() - raw[~group].mean()))
    tracemalloc.start()
    score.attribution(*sides, weights, exact_rows(sides))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"  the sum differs from the gap by {off:.1e}; codes of rows {codes.nbytes >> 20} MB, and {peak >> 20} MB more"
    )
    if woodelf:
        beside(booster, x, group, found)


def encode(columns):
    """Return columns side by side."""
    return np.stack(list(columns.values()), axis=1)


def exact_rows(sides):
    """Return the rows whose own values are computed."""
    return tuple(np.arange(min(side.shape[1], 50_000)) for side in sides)


def beside(booster, x, group, found):
    """Time WOODELF on the rows of the group against those of the reference."""
    import pandas as pd
    from woodelf import WoodelfExplainer

    frame = pd.DataFrame(x, columns=[f"Column_{j}" for j in range(x.shape[1])])
    start = time.process_time()
    values = WoodelfExplainer(booster, frame[~group]).shap_values(frame[group], verbose=False)
    off = np.abs(np.asarray(values).mean(axis=0) - found.values).max()
    print(f"  WOODELF, one direction, no intervals        {time.process_time() - start:7.2f} s; differs by {off:.1e}")


if __name__ == "__main__":
    main()
