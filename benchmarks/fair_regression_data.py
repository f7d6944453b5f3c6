"""The data of the fair-regression benchmarks in the paper's form, split in halves within the groups."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from papers_kit import folder

import fairkit


class Problem(NamedTuple):
    name: str
    train: fairkit.Dataset
    test: fairkit.Dataset
    loss: str
    label_range: tuple[float, float]


def adult() -> tuple[pd.DataFrame, dict]:
    """The train part without nulls: 30,162 rows; income above 50K, by sex."""
    frame = pd.read_parquet(folder() / "adult.parquet")
    frame = frame[frame["split"] == "train"].drop(columns="split").dropna()
    return frame, {"label": "income", "favorable": ">50K", "sensitive": ["sex"]}


def law_school() -> tuple[pd.DataFrame, dict]:
    """20,800 rows without nulls; grade average / 4, by White against others."""
    frame = pd.read_parquet(folder() / "law_school_fair_regression.parquet").dropna()
    frame["race"] = np.where(frame["race"] == 7, "White", "others")
    frame["ugpa"] = frame["ugpa"] / 4
    return frame, {"label": "ugpa", "sensitive": ["race"]}


def communities() -> tuple[pd.DataFrame, dict]:
    """1,994 rows; violent crimes, by whether racePctWhite is the largest of the four columns, which go."""
    frame = pd.read_parquet(folder() / "communities_crime.parquet")
    four = ["racepctblack", "racePctWhite", "racePctAsian", "racePctHisp"]
    frame["race"] = np.where(frame[four].idxmax(axis=1) == "racePctWhite", "White", "others")
    frame = frame.drop(columns=[*four, "state", "county", "community", "communityname", "fold"])
    return frame.dropna(axis=1), {"label": "ViolentCrimesPerPop", "sensitive": ["race"]}


SOURCES = {"adult": adult, "law school": law_school, "communities & crime": communities}


def load(name: str, seed: int = 0, rows: int | None = None) -> Problem:
    """Load one problem; `rows` takes a random sample, as the paper does with 2,000."""
    frame, roles = SOURCES[name]()
    rng = np.random.default_rng(seed)
    if rows is not None:
        frame = frame.iloc[np.sort(rng.permutation(len(frame))[:rows])]
    groups = frame[roles["sensitive"][0]].to_numpy()
    held = np.zeros(len(frame), dtype=bool)
    for group in np.unique(groups):
        places = rng.permutation(np.flatnonzero(groups == group))
        held[places[: len(places) // 2]] = True
    binary = "favorable" in roles
    features = [column for column in frame.columns if column != roles["label"]]
    train, test = (
        fairkit.load_data(part.reset_index(drop=True), features=features, **roles)
        for part in (frame[~held], frame[held])
    )
    return Problem(name, train, test, "logistic" if binary else "squared", (0.0, 1.0))
