"""How far `all-inputs` decides for networks, and how fast: MLPs of scikit-learn on Adult and the tutorial's loans.

    FAIRKIT_DATA=... python benchmarks/all_inputs_networks.py [--tables adult,loans] [--sizes 16-8] [--boxes 10000]

Prints a line for each model and question: the interval, the boxes that were split, and processor seconds.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from all_inputs import NAMES, table

import fairkit
from fairkit.settings import ModelOptions
from fairkit_all_inputs.bounds.networks.model import read_network
from fairkit_all_inputs.bounds.problem import CHANCE, FLIP, SCORE
from fairkit_all_inputs.bounds.questions import answer
from fairkit_all_inputs.bounds.searching import Effort
from fairkit_all_inputs.collect import People
from fairkit_all_inputs.domains import domains_of
from fairkit_all_inputs.findings import _starts
from fairkit_all_inputs.parameters import Parameters
from fairkit_onnx.model import OnnxModel


def loans():
    """Return the tutorial's table."""
    from fairkit_datasets.loans import loans_table

    return loans_table(6_000, seed=1).to_pandas(), "decision", "approved", ["sex"]


def trained(hidden, kind, frame, label, favorable, seed):
    """Return the bytes of an ONNX file: standardised numbers, one-hot texts, and an MLP."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    model = MLPClassifier(hidden, activation=kind, early_stopping=True, random_state=seed)
    features = [c for c in frame if c != label]
    data = frame[features].rename(columns=lambda c: c.replace("-", "_"))
    numbers = [c for c in data if data[c].dtype.kind in "biuf"]
    texts = [c for c in data if c not in numbers]
    data[numbers] = data[numbers].astype(np.float32)
    encode = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    pipe = make_pipeline(make_column_transformer((StandardScaler(), numbers), (encode, texts)), model)
    rows = np.random.default_rng(seed).permutation(len(data))[: len(data) * 4 // 5]
    pipe.fit(data.iloc[rows], (frame[label] == favorable).astype(int).iloc[rows])
    types = [(c, FloatTensorType([None, 1])) for c in numbers]
    types += [(c, StringTensorType([None, 1])) for c in texts]
    options = {id(model): {"zipmap": False}}
    proto = convert_sklearn(pipe, initial_types=types, target_opset={"": 15, "ai.onnx.ml": 3}, options=options)
    return proto.SerializeToString()


def asked(model, frame, label, favorable, column):
    """Return the problem of one column, and people to start from."""
    data = fairkit.load_data(frame, label=label, favorable=favorable, sensitive=[column])
    scorer = OnnxModel.load(model).bind(data, ModelOptions(favorable_class=1))
    columns, people = list(scorer.columns), None
    for batch in data.batches(columns):
        part = People.of(batch, columns, 1_000, 0)
        people = part if people is None else people + part
    rows = {name: values[:3] for name, values in people.columns.items()}
    read = read_network(scorer, rows)
    features = read.sources(rows)
    domains, _ = domains_of(people, columns, [column], features, Parameters())
    problem = read.problem(domains, len(domains) - 1, features)
    return problem, _starts(problem, people)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="adult,loans")
    parser.add_argument("--sizes", default="16-8,64-32,1000-500")
    parser.add_argument("--activation", default="relu")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--boxes", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--questions", default="flip,score,chance")
    parser.add_argument("--models", help="a folder in which the models are kept")
    told = parser.parse_args()
    for name in told.tables.split(","):
        frame, label, favorable, sensitive = loans() if name == "loans" else table(name)
        for size in told.sizes.split(","):
            hidden = tuple(map(int, size.split("-")))
            for seed in range(told.seeds):
                title = f"{name} {told.activation} {size} seed {seed}"
                kept = Path(told.models or ".") / f"{title.replace(' ', '_')}.onnx"
                if told.models and kept.exists():
                    model = kept.read_bytes()
                else:
                    model = trained(hidden, told.activation, frame, label, favorable, seed)
                    if told.models:
                        kept.write_bytes(model)
                ask(model, (frame, label, favorable, sensitive[0]), title, told)


def ask(model, data, title, told):
    clock = time.process_time()
    problem, starts = asked(model, *data)
    print(f"{title}: read in {time.process_time() - clock:.1f} s", flush=True)
    for kind in (FLIP, SCORE, CHANCE):
        if NAMES[kind] not in told.questions:
            continue
        clock = time.process_time()
        got = answer(problem, kind, effort=Effort(boxes=told.boxes, seconds=told.seconds), starts=starts)
        used = time.process_time() - clock
        print(f"{title} {NAMES[kind]}: [{got.lower:.4f}, {got.upper:.4f}], {got.boxes} boxes, {used:.1f} s", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    main()
