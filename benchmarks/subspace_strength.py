"""The subspace metric's l2 penalty and directions: how stable it is, and what it does to certificates and models.

    FAIRKIT_DATA=... python benchmarks/subspace_strength.py [german compas credit adult]
    FAIRKIT_DATA=... python benchmarks/subspace_strength.py --directions [german compas credit adult]

For several penalties, weighed against the mean loss, or with --directions for several choices of the sensitive
columns that get a predictor (all, each alone, none): the dimensions of the metric; the mean |cosine| of the principal
angles between the directions that two disjoint halves of the data give; performance gaps of a linear and of a boosted
model at ε = .1; the AUC with which a linear model tells each sensitive column from the coordinates that the metric
leaves; and, for a linear model of those coordinates, balanced accuracy and the rms gaps in true positive and true
negative rates.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fairkit_similarity.design import Design
from fairkit_similarity.encode import Encoder
from fairkit_similarity.learn import subspace
from fairkit_similarity.predict import logistic_directions
from fairkit_similarity.transport import Support

FOLDER = Path(os.environ.get("FAIRKIT_DATA", "."))
HALVINGS = 3


def table(name):
    """Return a frame, its label, the favorable value and the sensitive columns."""
    if name == "adult":
        frame = pd.read_parquet(FOLDER / "adult.parquet").dropna().drop(columns=["fnlwgt", "split"])
        return frame, "income", ">50K", ["sex", "race"]
    if name == "compas":
        frame = pd.read_parquet(FOLDER / "compas.parquet")
        used = (frame.days_b_screening_arrest.abs() <= 30) & (frame.is_recid != -1)
        used &= (frame.c_charge_degree != "O") & (frame.score_text != "N/A")
        used &= frame.race.isin(["African-American", "Caucasian"])
        kept = ["sex", "race", "age_cat", "priors_count", "c_charge_degree", "two_year_recid"]
        return frame.loc[used, kept], "two_year_recid", 0, ["sex", "race"]
    if name == "german":
        frame = pd.read_parquet(FOLDER / "german.parquet")
        frame["young"] = (frame.age < 25).astype(int)
        frame["sex"] = np.where(frame.personal_status == "A92", "female", "male")
        return frame.drop(columns=["personal_status", "age"]), "class", 1, ["young", "sex"]
    frame = pd.read_parquet(FOLDER / "credit_default.parquet").drop(columns=["ID"])
    frame = frame.astype({"SEX": str, "MARRIAGE": str, "EDUCATION": str})
    return frame, "default_payment_next_month", 0, ["SEX", "MARRIAGE"]


def directions(encoder, columns, sensitive, strength):
    """Return an orthonormal basis of the learned directions, the same encoder for all rows."""
    found = []
    for name in sensitive:
        values, code = np.unique(columns[name].astype(str), return_inverse=True)
        targets = np.array([code == k for k in range(len(values))] if len(values) > 2 else [code == 1])
        targets = targets[targets.any(axis=1)]
        design = Design(encoder, columns, name)
        rows = np.zeros((len(targets), len(encoder.features)))
        rows[:, design.kept] = logistic_directions(design, targets, strength * design.rows)
        found.append(rows)
    own = encoder.places(sensitive)
    stacked = np.concatenate(found)
    stacked[:, own] = 0.0
    _, size, axes = np.linalg.svd(stacked, full_matrices=False)
    return axes[size > 1e-10 * size.max()]


def stability(encoder, columns, sensitive, strength, rng):
    """Return the mean |cosine| between the directions of two halves."""
    n, found = len(next(iter(columns.values()))), []
    if not sensitive:
        return 1.0
    for _ in range(HALVINGS):
        order = rng.permutation(n)
        halves = [{k: v[part] for k, v in columns.items()} for part in (order[: n // 2], order[n // 2 :])]
        one, other = (directions(encoder, half, sensitive, strength) for half in halves)
        found.append(np.linalg.svd(one @ other.T, compute_uv=False).mean())
    return float(np.mean(found))


def rms_gap(decided, favorable, group):
    """Return the rms over both labels of the gap in decisions between a group and the others."""
    gaps = [decided[group & (favorable == y)].mean() - decided[~group & (favorable == y)].mean() for y in (0, 1)]
    return float(np.sqrt(np.mean(np.square(gaps))))


def choices(frame, sensitive, of_directions):
    """Return what is varied: pairs of a penalty and the columns that get a predictor."""
    if not of_directions:
        return [(strength, sensitive) for strength in (0.1 / len(frame), 0.001, 0.01, 0.1, 1.0)]
    return [(0.1, chosen) for chosen in (sensitive, *([one] for one in sensitive), [])]


def study(name, of_directions):
    """Print the rows of one table."""
    rng = np.random.default_rng(0)
    frame, label, value, sensitive = table(name)
    favorable = (frame.pop(label) == value).to_numpy().astype(int)
    texts = [column for column in frame if frame[column].dtype.kind not in "if"]
    numbers = [column for column in frame if column not in texts]
    columns = {c: (frame[c].astype(object) if c in texts else frame[c]).to_numpy() for c in frame}
    test = rng.random(len(frame)) < 0.3
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), texts), (StandardScaler(), numbers)
    )
    scores = {}
    for kind, model in (
        ("linear", LogisticRegression(max_iter=500)),
        ("boosted", HistGradientBoostingClassifier(random_state=0, max_iter=80)),
    ):
        fitted = make_pipeline(encode, model).fit(frame[~test], favorable[~test])
        scores[kind] = np.clip(fitted.predict_proba(frame[test])[:, 1], 1e-6, 1 - 1e-6)
    encoder, labels = Encoder.learn(columns), favorable[test]
    for strength, predicted in choices(frame, sensitive, of_directions):
        metric = subspace(columns, sensitive, strength=strength, directions=predicted)
        z = metric.transform(columns)
        support, told = Support(z[test]), {"dimensions": float(z.shape[1])}
        for kind, score in scores.items():
            losses = np.stack([-np.log(1 - score), -np.log(score)])
            told[f"gap {kind}"] = support.losses(losses, labels).solve(0.1).value - float(
                losses[labels, np.arange(len(labels))].mean()
            )
        weight = np.where(favorable == 1, (1 - favorable[~test]).mean() / favorable[~test].mean(), 1.0)
        plain = LogisticRegression(max_iter=300).fit(z[~test], favorable[~test], sample_weight=weight[~test])
        decided = plain.predict(z[test])
        told["bacc"] = float((decided[labels == 1].mean() + 1 - decided[labels == 0].mean()) / 2)
        for column in sensitive:
            _, code = np.unique(columns[column].astype(str), return_inverse=True)
            largest = code == np.bincount(code).argmax()
            teller = LogisticRegression(max_iter=300).fit(z[~test], largest[~test])
            told[f"AUC {column}"] = roc_auc_score(largest[test], teller.predict_proba(z[test])[:, 1])
            told[f"rms {column}"] = rms_gap(decided, labels, largest[test])
        told["halves"] = stability(encoder, columns, predicted, strength, rng)
        shown = "  ".join(f"{key} {number:.3f}" for key, number in told.items())
        print(f"{name} strength {strength:.3g} directions {','.join(predicted) or 'none'}: {shown}", flush=True)


if __name__ == "__main__":
    names = [word for word in sys.argv[1:] if word != "--directions"]
    for wanted in names or ["german", "compas", "credit", "adult"]:
        study(wanted, "--directions" in sys.argv)
