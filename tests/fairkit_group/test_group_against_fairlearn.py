"""Every group metric that fairlearn has too, on real and synthetic data: equal to 1e-12."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import fairlearn.metrics as flm
import numpy as np
import pyarrow.parquet as pq
import pytest
import sklearn.metrics as skm

import fairkit
from fairkit_datasets.loans import loans_table

TOLERANCE = 1e-12

DECISION_METRICS: Mapping[str, Callable[..., float]] = {
    "accuracy": skm.accuracy_score,
    "balanced_accuracy": skm.balanced_accuracy_score,
    "selection_rate": flm.selection_rate,
    "true_positive_rate": flm.true_positive_rate,
    "false_positive_rate": flm.false_positive_rate,
    "true_negative_rate": flm.true_negative_rate,
    "false_negative_rate": flm.false_negative_rate,
    "precision": skm.precision_score,
    "f1_score": skm.f1_score,
}
SCORE_METRICS: Mapping[str, Callable[..., float]] = {
    "log_loss": skm.log_loss,
    "brier_score": skm.brier_score_loss,
    "roc_auc": skm.roc_auc_score,
    "mean_prediction": flm.mean_prediction,
}
REGRESSION_METRICS: Mapping[str, Callable[..., float]] = {
    "mean_absolute_error": skm.mean_absolute_error,
    "mean_squared_error": skm.mean_squared_error,
    "mean_prediction": flm.mean_prediction,
    "r2_score": skm.r2_score,
}
SPREADS: Mapping[str, Callable[..., float]] = {
    "demographic_parity_difference": flm.demographic_parity_difference,
    "demographic_parity_ratio": flm.demographic_parity_ratio,
    "equalized_odds_difference": flm.equalized_odds_difference,
    "equalized_odds_ratio": flm.equalized_odds_ratio,
    "equal_opportunity_difference": flm.equal_opportunity_difference,
    "equal_opportunity_ratio": flm.equal_opportunity_ratio,
}


def _score(columns: Mapping[str, np.ndarray], weights: Mapping[str, float], noise: float = 0.7) -> np.ndarray:
    """A logistic score of standardised columns with noise: as good and as biased as any for this."""
    rng = np.random.default_rng(0)
    index = noise * rng.standard_normal(len(next(iter(columns.values()))))
    for name, weight in weights.items():
        values = columns[name].astype(float)
        index += weight * (values - values.mean()) / values.std()
    return 1 / (1 + np.exp(-index))


def _loans(rows: int = 20_000) -> dict[str, np.ndarray]:
    columns = {name: column.to_numpy() for name, column in zip(*_pairs(loans_table(rows, seed=2)), strict=True)}
    columns["label"] = (columns["decision"] == "approved").astype(np.int64)
    columns["score"] = _score(columns, {"income": 1.0, "debt_ratio": -0.5, "age": 0.2})
    return columns


def _pairs(table: Any) -> tuple[list[str], list[Any]]:
    return table.column_names, table.columns


def _public(folder: Path, name: str, rows: int | None, wanted: list[str]) -> dict[str, np.ndarray]:
    table = pq.read_table(folder / f"{name}.parquet", columns=wanted)
    table = table if rows is None else table.slice(0, rows)
    return {name: column.to_numpy() for name, column in zip(*_pairs(table), strict=True)}


def _adult(folder: Path) -> dict[str, np.ndarray]:
    columns = _public(folder, "adult", 12_000, ["age", "education-num", "hours-per-week", "sex", "race", "income"])
    columns["label"] = (columns["income"] == ">50K").astype(np.int64)
    columns["score"] = _score(columns, {"age": 0.4, "education-num": 0.8, "hours-per-week": 0.4})
    return columns


def _compas(folder: Path) -> dict[str, np.ndarray]:
    columns = _public(folder, "compas", None, ["decile_score", "race", "sex", "two_year_recid"])
    columns["label"] = 1 - columns["two_year_recid"]
    columns["score"] = 1 - columns["decile_score"] / 11  # ties: ten distinct scores
    return columns


def _acs(folder: Path) -> dict[str, np.ndarray]:
    columns = _public(folder, "acs_income", 40_000, ["AGEP", "SCHL", "WKHP", "SEX", "RAC1P", "PINCP"])
    columns["label"] = columns["PINCP"]
    columns["score"] = _score(columns, {"AGEP": 0.4, "SCHL": 0.9, "WKHP": 0.5})
    return columns


def _audit(
    columns: Mapping[str, np.ndarray], sensitive: list[str], weights: str | None = None, exact_scores: int = 1_000_000
) -> fairkit.Report:
    table = {name: columns[name] for name in dict.fromkeys([*sensitive, "label", "score", "decision_"])}
    if weights is not None:
        table[weights] = columns[weights]
    data = fairkit.load_data(table, label="label", favorable=1, sensitive=sensitive, weights=weights)
    model = fairkit.PredictedColumns(decision="decision_", score="score")
    return fairkit.audit(model, data, parameters={"group": {"exact_scores": exact_scores}})


def _compare(report: fairkit.Report, frame: flm.MetricFrame, sensitive: str, metrics: Iterable[str]) -> None:
    """Every metric of the frame, over all, by group and between groups."""
    spreads = {"ratio": frame.ratio(), "group_min": frame.group_min(), "group_max": frame.group_max()}
    differences = frame.difference()
    for metric in metrics:
        assert report.find(metric).value == pytest.approx(float(frame.overall[metric]), abs=TOLERANCE)
        by_group = {str(group): float(value) for group, value in frame.by_group[metric].items()}
        found = report.find(f"{metric}_difference", sensitive)
        assert {group.group: group.value for group in found.groups} == pytest.approx(by_group, abs=TOLERANCE)
        assert found.value == pytest.approx(float(differences[metric]), abs=TOLERANCE)
        reported = {f.metric: f.value for f in report.findings if f.sensitive == sensitive}
        for suffix, values in spreads.items():
            name = f"{metric}_{suffix}"
            assert name in reported or suffix != "ratio" or metric == "r2_score"
            if name in reported:
                assert reported[name] == pytest.approx(float(values[metric]), abs=TOLERANCE)


def _check_all(columns: dict[str, np.ndarray], sensitive: list[str]) -> None:
    columns["decision_"] = (columns["score"] >= 0.5).astype(np.int64)
    report = _audit(columns, sensitive)
    for split in sensitive:
        common = {"y_true": columns["label"], "sensitive_features": columns[split]}
        hard = flm.MetricFrame(metrics=dict(DECISION_METRICS), y_pred=columns["decision_"], **common)
        soft = flm.MetricFrame(metrics=dict(SCORE_METRICS), y_pred=columns["score"], **common)
        _compare(report, hard, split, DECISION_METRICS)
        _compare(report, soft, split, SCORE_METRICS)
        for metric, function in SPREADS.items():
            true = function(columns["label"], columns["decision_"], sensitive_features=columns[split])
            assert report.find(metric, split).value == pytest.approx(float(true), abs=TOLERANCE)


@pytest.mark.long
def test_loans_have_the_numbers_of_fairlearn() -> None:
    _check_all(_loans(8_000), ["sex", "ethnicity"])


@pytest.mark.long
def test_adult_has_the_numbers_of_fairlearn(public_data: Path) -> None:
    _check_all(_adult(public_data), ["sex", "race"])


@pytest.mark.long
def test_compas_has_the_numbers_of_fairlearn(public_data: Path) -> None:
    _check_all(_compas(public_data), ["sex", "race"])


@pytest.mark.long
def test_acs_income_has_the_numbers_of_fairlearn(public_data: Path) -> None:
    columns = _acs(public_data)
    _check_all(columns, ["RAC1P"])
    coarse = _audit(columns, ["RAC1P"], exact_scores=10_000)
    for group in coarse.find("roc_auc_difference", "RAC1P").groups:
        positive, score = (columns[name][columns["RAC1P"] == int(group.group)] for name in ("label", "score"))
        bound = coarse.find("roc_auc_difference", "RAC1P").evidence["discretisation_bound"]
        assert 0 < bound < 0.05
        assert group.value == pytest.approx(skm.roc_auc_score(positive, score), abs=bound)


def test_weighted_rows_have_the_numbers_of_fairlearn() -> None:
    columns = _loans(5_000)
    columns["decision_"] = (columns["score"] >= 0.5).astype(np.int64)
    columns["w"] = np.random.default_rng(1).integers(1, 400, 5_000) / 100
    report = _audit(columns, ["ethnicity"], weights="w")
    weighted = {"sample_weight": columns["w"]}
    for metrics, prediction in ((DECISION_METRICS, "decision_"), (SCORE_METRICS, "score")):
        frame = flm.MetricFrame(
            metrics=dict(metrics),
            y_true=columns["label"],
            y_pred=columns[prediction],
            sensitive_features=columns["ethnicity"],
            sample_params=dict.fromkeys(metrics, weighted),
        )
        _compare(report, frame, "ethnicity", metrics)
    for metric, function in SPREADS.items():
        true = function(
            columns["label"], columns["decision_"], sensitive_features=columns["ethnicity"], sample_weight=columns["w"]
        )
        assert report.find(metric, "ethnicity").value == pytest.approx(float(true), abs=TOLERANCE)


def _check_regression(target: np.ndarray, predicted: np.ndarray, group: np.ndarray) -> None:
    data = fairkit.load_data({"g": group, "y": target, "p": predicted}, label="y", sensitive=["g"], features=["p"])
    report = fairkit.audit(fairkit.PredictedColumns(score="p"), data)
    assert report.model.task == "regression"
    frame = flm.MetricFrame(metrics=dict(REGRESSION_METRICS), y_true=target, y_pred=predicted, sensitive_features=group)
    _compare(report, frame, "g", REGRESSION_METRICS)


def test_regression_on_made_up_numbers() -> None:
    rng = np.random.default_rng(4)
    group = np.array(["a", "b", "c"], dtype=object)[rng.integers(0, 3, 3_000)]
    target = 3 + rng.standard_normal(3_000)
    _check_regression(target, target + 0.3 * rng.standard_normal(3_000) + (group == "b"), group)


def test_regression_on_law_school(public_data: Path) -> None:
    columns = _public(public_data, "law_school", None, ["lsat", "ugpa", "race"])
    predicted = 3.2 + (columns["lsat"] - columns["lsat"].mean()) * 0.03
    _check_regression(columns["ugpa"], predicted, columns["race"])
