"""How far `all-inputs` decides, and how fast: boosted trees and forests on four public tables, sex and race.

    FAIRKIT_DATA=... python benchmarks/all_inputs.py [--tables adult] [--models xgboost] [--seeds 5] [--seconds 60]

Prints a line for each model and question: boxes, processor and wall seconds, upper end over witness, and whether it is
decided. Each model is a pipeline with one ONNX input for each column; the data has at most 20,000 rows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import pandas as pd

import fairkit
from fairkit.settings import ModelOptions
from fairkit_all_inputs.bounds import searching
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE, tree_problem
from fairkit_all_inputs.bounds.searching import Effort, answer
from fairkit_all_inputs.domains import Parameters, People, domains_of
from fairkit_all_inputs.findings import _starts
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.structure.trees import read_trees

COMPAS = "age,race,sex,juv_fel_count,juv_misd_count,juv_other_count,priors_count,c_charge_degree,two_year_recid"
TABLES = {
    "adult": ("income", ">50K", ["sex", "race"], ["split"]),
    "compas": ("two_year_recid", 0, ["sex", "race"], None),
    "credit_default": ("default_payment_next_month", 0, ["SEX"], ["ID"]),
    "acs_income": ("PINCP", 1, ["SEX", "RAC1P"], ["row_index", "split"]),
    "german": ("class", 1, ["personal_status", "foreign_worker"], []),
}
SIZES = ((50, 4), (100, 6), (300, 6))
NAMES = {SCORE: "score", FLIP: "flip", CHANCE: "chance"}


def table(name):
    label, favorable, sensitive, drop = TABLES[name]
    frame = pd.read_parquet(Path(os.environ["FAIRKIT_DATA"]) / f"{name}.parquet")
    frame = frame[COMPAS.split(",")] if drop is None else frame.drop(columns=drop)
    frame = frame.sample(min(len(frame), 20_000), random_state=0).reset_index(drop=True)
    for column in frame:
        if frame[column].dtype.kind not in "biuf":
            frame[column] = frame[column].astype(object).where(frame[column].notna(), "?").astype(str)
    frame[label] = frame[label].astype(str)
    favorable = str(favorable)
    return frame, label, favorable, sensitive


def trained(kind, trees, depth, frame, label, favorable, seed, *, made=None):
    """Return the bytes of an ONNX file; `made`: a class that takes the place of `XGBClassifier`."""
    import lightgbm
    import xgboost
    from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import convert_sklearn, update_registered_converter
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    options = {"nocl": [True, False], "zipmap": [True, False, "columns"]}
    for cls, convert in ((made or xgboost.XGBClassifier, convert_xgboost), (lightgbm.LGBMClassifier, convert_lightgbm)):
        update_registered_converter(
            cls, cls.__name__, calculate_linear_classifier_output_shapes, convert, options=options
        )
    model = {
        "xgboost": lambda: (made or xgboost.XGBClassifier)(
            n_estimators=trees, max_depth=depth, learning_rate=0.3, n_jobs=1, random_state=seed, verbosity=0
        ),
        "lightgbm": lambda: lightgbm.LGBMClassifier(
            n_estimators=trees, max_depth=depth, num_leaves=2**depth, n_jobs=1, random_state=seed, verbose=-1
        ),
        "forest": lambda: RandomForestClassifier(trees, max_depth=depth, random_state=seed),
    }[kind]()
    features = [c for c in frame if c != label]
    numbers = [c for c in features if frame[c].dtype.kind in "biuf"]
    texts = [c for c in features if c not in numbers]
    data = frame[features].rename(columns=lambda c: c.replace("-", "_"))
    numbers, texts = ([c.replace("-", "_") for c in some] for some in (numbers, texts))
    data[numbers] = data[numbers].astype(np.float32)
    encode = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    pipe = make_pipeline(make_column_transformer(("passthrough", numbers), (encode, texts)), model)
    rows = np.random.default_rng(seed).permutation(len(data))[: len(data) * 4 // 5]
    pipe.fit(data.iloc[rows], (frame[label] == favorable).astype(int).iloc[rows])
    types = [(c, FloatTensorType([None, 1])) for c in numbers] + [(c, StringTensorType([None, 1])) for c in texts]
    proto = convert_sklearn(
        pipe, initial_types=types, target_opset={"": 15, "ai.onnx.ml": 3}, options={id(model): {"zipmap": False}}
    )
    return proto.SerializeToString()


def asked(model, frame, label, favorable, column):
    """Return the problem of one column, and people to start from."""
    data = fairkit.load_data(frame, label=label, favorable=favorable, sensitive=[column])
    scorer = OnnxModel.load(model).bind(data, ModelOptions(favorable_class=1))
    people = None
    for batch in data.batches(list(scorer.columns)):
        part = People.of(batch, list(scorer.columns), 1_000, 0)
        people = part if people is None else people + part
    read = read_trees(scorer)
    rows = {name: values[:3] for name, values in people.columns.items()}
    features = read.sources(rows)
    domains, _ = domains_of(people, list(scorer.columns), [column], features, Parameters())
    problem = tree_problem(read, domains, len(domains) - 1, features)
    return problem, _starts(problem, people) if problem.pairs else []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--models", default="xgboost,lightgbm,forest")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--sizes", default=",".join(f"{t}x{d}" for t, d in SIZES))
    parser.add_argument("--questions", default="flip,score,chance")
    parser.add_argument("--columns", type=int, default=2, help="how many of a table's sensitive columns")
    parser.add_argument("--cpu", action="store_true", help="seconds of the processor, on a machine that others use")
    told = parser.parse_args()
    if told.cpu:
        searching.time.monotonic = time.process_time
    kinds = [kind for kind, name in NAMES.items() if name in told.questions]
    sizes = [tuple(map(int, size.split("x"))) for size in told.sizes.split(",")]
    print(
        "table model size column question | decided of seeds | medians: boxes, cpu s, wall s, upper/witness", flush=True
    )
    for name in told.tables.split(","):
        frame, label, favorable, sensitive = table(name)
        for kind in told.models.split(","):
            for trees, depth in sizes:
                models = [trained(kind, trees, depth, frame, label, favorable, seed) for seed in range(told.seeds)]
                for column in sensitive[: told.columns]:
                    title = f"{name} {kind} {trees}x{depth} {column}"
                    ask(models, frame, label, favorable, column, title, told.seconds, kinds)


def ask(models, frame, label, favorable, column, title, seconds, kinds):
    lines = {}
    for model in models:
        problem, starts = asked(model, frame, label, favorable, column)
        if not (problem.pairs and problem.touching):  # no tree tells the values apart: proved at once
            for kind in (FLIP, SCORE):
                lines.setdefault(kind, []).append((True, 0, 0.0, 0.0, 1.0))
            continue
        for kind in (kind for kind in (FLIP, SCORE, CHANCE) if kind in kinds and (kind != CHANCE or problem.logistic)):
            wall, cpu = time.perf_counter(), time.process_time()
            got = answer(problem, kind, effort=Effort(boxes=10**7, seconds=seconds), starts=starts)
            starts = [got.point] if kind == SCORE and got.point is not None else starts
            used = time.process_time() - cpu, time.perf_counter() - wall
            if kind == FLIP:
                done, ratio = got.lower > 4 * problem.rounding or got.upper <= -problem.rounding, 1.0
            else:
                done = got.upper - got.lower <= (2e-5 if kind == CHANCE else 1e-6 * max(1.0, got.upper))
                ratio = got.upper / got.lower if got.lower > 0 else 1.0
            lines.setdefault(kind, []).append((done, got.boxes, *used, ratio))
    for kind, some in lines.items():
        middle = [statistics.median(values) for values in zip(*(one[1:] for one in some), strict=True)]
        print(
            f"{title} {NAMES[kind]} | {sum(one[0] for one in some)} of {len(some)} | {middle[0]:.0f}, {middle[1]:.2f}, "
            f"{middle[2]:.2f}, {middle[3]:.4f} (worst {max(one[4] for one in some):.4f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
