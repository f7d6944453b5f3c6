"""The data, splits and measures of Vargo et al. (2021): German credit, Adult, COMPAS.

The splits are drawn from the seeds in the authors' repository (UMich-FATML/BuDRO), by its rules.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from papers_kit import read

import fairkit
from fairkit.mitigators import Table
from fairkit_onnx.write.export import export

if TYPE_CHECKING:
    import pandas as pd

SEEDS = {
    "german": (99776, 44777, 31321, 5482, 65332, 89335, 18565, 75043, 52647, 55193),
    "adult": (80147, 63811, 90326, 27837, 49906, 11676, 12806, 26656, 82225, 11968),
    "compas": (1, 6, 8, 26, 27, 30, 36, 47, 63, 70),
}
ROLES = {
    "german": {"label": "class", "favorable": 2, "sensitive": "age:25", "name": "German"},
    "adult": {"label": "income", "favorable": ">50K", "sensitive": ["sex", "white"], "name": "Adult"},
    "compas": {"label": "two_year_recid", "favorable": 1, "sensitive": ["sex", "race"], "name": "COMPAS"},
}
FLIPS: Mapping[str, Mapping[str, dict]] = {
    "german": {"S-cons": {"sensitive": ["personal_status"]}},
    "adult": {
        "S-cons": {"sensitive": ["relationship"], "values": {"relationship": ["Husband", "Wife"]}},
        "GR-cons": {"sensitive": ["sex+white"]},
    },
    "compas": {"G-cons": {"sensitive": ["sex"]}, "R-cons": {"sensitive": ["race"]}},
}
GAPS = {"german": {"age": "age"}, "adult": {"sex": "sex", "white": "race"}, "compas": {"sex": "sex", "race": "race"}}
NUMBERS = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]


class Parts(NamedTuple):
    """One split: training rows, and held-out rows as a data set."""

    table: Table
    test: fairkit.Dataset
    train_frame: pd.DataFrame


@functools.cache
def frame(name: str) -> pd.DataFrame:
    """Return the rows and columns that the paper uses, in the file's order."""
    return {"german": german, "adult": adult, "compas": compas}[name]()


def german() -> pd.DataFrame:
    """All 20 features. Two-valued texts stand twice: the paper encodes both values, so that a change counts 2 in d²."""
    found = read("german")
    for column in ("own_telephone", "foreign_worker"):
        first, second = sorted(found[column].unique())
        found[f"not_{column}"] = found[column].map({first: "yes", second: "no"})
    return found


def adult() -> pd.DataFrame:
    """The 45,222 rows without missing cells; race as white or not."""
    found = read("adult").dropna()
    found["white"] = np.where(found["race"] == "White", "yes", "no")
    texts = ["workclass", "marital-status", "occupation", "relationship", "sex", "white"]
    return found[[*NUMBERS, *texts, "income"]].reset_index(drop=True)


def compas() -> pd.DataFrame:
    """ProPublica's filter, two races: 5,278 rows, 7 encoded columns."""
    found = read("compas")
    found = found[
        found["days_b_screening_arrest"].between(-30, 30)
        & (found["is_recid"] != -1)
        & (found["c_charge_degree"] != "O")
        & (found["score_text"] != "N/A")
        & found["race"].isin(["African-American", "Caucasian"])
    ]
    kept = ["age_cat", "priors_count", "sex", "race", "c_charge_degree", "two_year_recid"]
    return found[kept].reset_index(drop=True)


def order(name: str, number: int, rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the training and the test rows of a split."""
    seed, most = SEEDS[name][number], int(0.8 * len(rows))
    if name == "german":  # stratified by the label
        from sklearn.model_selection import StratifiedShuffleSplit

        splitter = StratifiedShuffleSplit(n_splits=1, train_size=most, random_state=seed)
        return next(splitter.split(np.zeros((len(rows), 1)), rows["class"]))
    found = np.random.RandomState(seed).permutation(len(rows))
    return found[:most], found[most:]


@functools.lru_cache(maxsize=1)
def split(name: str, number: int, rows: int | None = None) -> Parts:
    """Return one of ten splits, of all rows or of a random sample."""
    whole = frame(name)
    if rows is not None and rows < len(whole):
        whole = whole.sample(rows, random_state=0).reset_index(drop=True)
    train, test = (whole.iloc[part].reset_index(drop=True) for part in order(name, number, whole))
    return Parts(
        Table.from_dataset(fairkit.load_data(train, **ROLES[name])), fairkit.load_data(test, **ROLES[name]), train
    )


def ratio(table: Table) -> float:
    """Return zeros over ones."""
    return float((table.target == 0).sum() / (table.target == 1).sum())


def measure(model, parts: Parts, name: str) -> dict[str, float]:
    """Export a model and audit the file on the held-out rows: performance, consistencies, gaps."""
    content = export(model, parts.table).SerializeToString()
    report = fairkit.audit(content, parts.test)
    first = "accuracy" if name == "compas" else "balanced_accuracy"
    found = {first.replace("_", " "): report.find(first).value}
    for shown, how in FLIPS[name].items():
        flipped = fairkit.audit(content, parts.test, auditors=["consistency"], parameters={"consistency": how})
        found[shown] = flipped.find("consistency").value
    for column, shown in GAPS[name].items():
        for size in ("max", "rms"):
            found[f"{shown} gap {size}"] = report.find(f"gap_{size}", column).value
    return found


def race_strength(train: pd.DataFrame) -> float:
    """Return the l2 penalty of race's regression on COMPAS, against the mean loss, as cross-validation picks it."""
    from sklearn.linear_model import LogisticRegressionCV

    from fairkit_similarity.encode import Encoder

    raw = {c: train[c].to_numpy(object if train[c].dtype == object else None) for c in train.columns[:-1]}
    raw = {c: values if values.dtype.kind in "if" else np.asarray(values, object) for c, values in raw.items()}
    encoder = Encoder.learn(raw)
    features = encoder.encode(raw)
    own = encoder.places(["race"])
    target = features[:, own[0]].copy()
    features[:, own] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of defaults that will change
        fitted = LogisticRegressionCV(Cs=100, cv=5, max_iter=5000).fit(features, target)
    return 1.0 / (float(fitted.C_[0]) * len(train))
