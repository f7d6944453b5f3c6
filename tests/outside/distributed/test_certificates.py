"""Certificates, comparisons and frontiers over a cluster: what one machine finds."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit.errors import ParameterError
from fairkit_datasets.loans import loans_table
from fairkit_repair.frontiers.training import Sweep

from .test_group_audit import same

pytest.importorskip("numba", reason="needs the extra fairkit[individual]")


def people(n: int, seed: int = 0) -> pa.Table:
    """Rows with ties and repeats, a text column, weights, and a score that depends on what the metric ignores."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    age, income = rng.integers(20, 60, n), np.round(rng.normal(size=n), 1)
    logit = 0.8 * income + 0.02 * (age - 40) + 0.7 * (sex == "m")
    score = np.round(1 / (1 + np.exp(-logit)), 4)
    return pa.table(
        {
            "sex": sex,
            "age": age,
            "income": income,
            "s": score,
            "y": (rng.random(n) < score).astype(int),
            "w": rng.integers(1, 4, n),
        }
    )


ROLES: dict[str, Any] = {"label": "y", "favorable": 1, "sensitive": "sex"}
CASES: dict[str, Any] = {
    "losses": ("restricted-dro", {"epsilon": [0.0, 0.05], "columns": ["age", "income"]}, {}),
    "sampled": (
        "restricted-dro",
        {"epsilon": [0.05], "columns": ["age", "income"], "queries": 1_000},
        {"weights": "w"},
    ),
    "outputs": ("dif", {"epsilon": [0.01, 0.05], "columns": ["age", "income"]}, {}),
    "probabilities": (
        "dif",
        {"epsilon": [0.5], "fair_metric": "euclidean", "columns": ["age", "income"], "output": "probability"},
        {},
    ),
}


def compare(here: Any, there: Any) -> None:
    """The numbers that matter, to 1e-9; the gain of the first pair."""
    assert len(here.findings) == len(there.findings)
    for one, other in zip(here.findings, there.findings, strict=True):
        assert other.value == pytest.approx(one.value, abs=1e-9)
        assert other.interval == pytest.approx(one.interval, abs=1e-6)
        assert other.parameters == one.parameters
        assert other.notes == one.notes
        for key in ("lower_bound", "baseline_loss", "baseline"):
            assert other.evidence.get(key) == pytest.approx(one.evidence.get(key), abs=1e-9)
        assert other.evidence["dual"] == pytest.approx(one.evidence["dual"], rel=1e-6)
        gains = [[pair["gain"] for pair in f.evidence["pairs"]][:1] for f in (one, other)]
        assert gains[0] == pytest.approx(gains[1], rel=1e-9)  # of equal rows another may stand for the first


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_of_one_machine(engine: Any, write_parts: Any, case: str) -> None:
    auditor, parameters, more = CASES[case]
    table = people(3_000)
    folder = write_parts("d", table, [700, 700, 2_100])
    asked: dict[str, Any] = {"auditors": [auditor], "parameters": {auditor: parameters}}
    model = fairkit.PredictedColumns(score="s")
    here = fairkit.audit(model, fairkit.load_data(table, **ROLES, **more, name="d"), **asked)
    there = fairkit.audit(model, fairkit.load_data(folder, **ROLES, **more), **asked, engine=engine)
    compare(here, there)
    assert there.data == here.data


def test_the_parts_do_not_matter(engine: Any, write_parts: Any, monkeypatch: Any) -> None:
    """Two pieces or five: the same optimum."""
    table = people(3_000, 1)
    folder = write_parts("d", table, [500, 1_000, 1_500, 2_000])
    asked: dict[str, Any] = {
        "auditors": ["restricted-dro"],
        "parameters": {"restricted-dro": {"epsilon": 0.02, "columns": ["age", "income"]}},
    }
    model = fairkit.PredictedColumns(score="s")
    two = fairkit.audit(model, fairkit.load_data(folder, **ROLES), **asked, engine=engine)
    monkeypatch.setattr(type(engine), "workers", lambda self: 5)
    five = fairkit.audit(model, fairkit.load_data(folder, **ROLES), **asked, engine=engine)
    compare(two, five)


def test_a_metric_of_a_sample(engine: Any, write_parts: Any, monkeypatch: Any) -> None:
    """Many rows: the metric is learned from a sample, the same on both."""
    monkeypatch.setattr("fairkit_individual.certificate.METRIC_ROWS", 800)
    table = people(2_000, 2)
    folder = write_parts("d", table, [1_000])
    asked: dict[str, Any] = {
        "auditors": ["restricted-dro"],
        "parameters": {"restricted-dro": {"epsilon": 0.02, "columns": ["age", "income"]}},
    }
    model = fairkit.PredictedColumns(score="s")
    here = fairkit.audit(model, fairkit.load_data(table, **ROLES, name="d"), **asked)
    there = fairkit.audit(model, fairkit.load_data(folder, **ROLES), **asked, engine=engine)
    compare(here, there)
    assert "learned from 800 rows" in " ".join(there.findings[0].notes)


# Comparisons and frontiers on two worker processes: the numbers of one machine.
TWICE: dict[str, Any] = {"label": "y", "favorable": 1, "sensitive": ["g", "h"], "weights": "w"}


def scored(n: int, seed: int = 0) -> pa.Table:
    """Two models' scores with ties, weights, and groups of which one stands in the last part only."""
    rng = np.random.default_rng(seed)
    first = np.round(rng.random(n), 2)
    return pa.table(
        {
            "g": np.where(np.arange(n) < n * 0.7, rng.choice(["a", "b"], n), "c"),
            "h": rng.choice(["x", "y"], n),
            "y": (rng.random(n) < first).astype(int),
            "s": first,
            "t": np.round(np.clip(first + 0.1 * rng.normal(size=n), 0, 1), 2),
            "w": rng.integers(1, 4, n),
        }
    )


@pytest.mark.parametrize("csv", [False, True])
def test_a_comparison_has_the_numbers_of_one_machine(engine: Any, write_parts: Any, csv: bool) -> None:
    table = scored(3_000)
    folder = write_parts("d", table, [5, 5, 1_200, 2_500], csv=csv)
    models = [fairkit.PredictedColumns(score=column) for column in "st"]
    there = fairkit.compare(models, fairkit.load_data(folder, **TWICE), engine=engine)
    here = fairkit.compare(models, fairkit.load_data(table, **TWICE, name="d"))
    assert {change.metric for change in here.changes[0]} >= {"roc_auc", "statistical_parity_ks", "accuracy"}
    same(there.to_dict(), here.to_dict(), within=1e-9)


def plain(result: Any) -> dict[str, Any]:
    """All but the times."""
    points = tuple(dataclasses.replace(point, seconds=0) for point in result.points)
    record: dict[str, Any] = dataclasses.replace(result, points=points).to_dict()
    return record


ASKED: dict[str, Any] = {"learner": "logistic", "threads": 1}
SWEEP = Sweep(plugin="reweigh", vary={"strength": [0, 0.5, 1]})
LOANS: dict[str, Any] = {"label": "decision", "favorable": "approved", "sensitive": ["sex"]}


def test_a_frontier_has_the_points_of_one_machine(engine: Any, write_parts: Any, tmp_path: Path) -> None:
    table = loans_table(900, 1)
    folder = write_parts("loans", table, [300])
    told: list[int] = []
    there = fairkit.frontier(
        [SWEEP],
        fairkit.load_data(folder, **LOANS),
        **ASKED,
        engine=engine,
        state=tmp_path / "state.json",
        progress=lambda doing, done, total, **_: told.append(done) if doing == "training points" else None,
    )
    here = fairkit.frontier([SWEEP], fairkit.load_data(table, **LOANS, name="loans"), **ASKED, jobs=1)
    same(plain(there), plain(here))
    assert there.model == here.model
    assert max(told) == 4
    again = fairkit.frontier(
        [SWEEP], fairkit.load_data(folder, **LOANS), **ASKED, engine=engine, state=tmp_path / "state.json"
    )
    assert [p.seconds for p in again.points] == [round(p.seconds, 3) for p in there.points]  # none was trained anew


def test_jobs_are_for_this_machine(engine: Any) -> None:
    data = fairkit.load_data(loans_table(200, 1), **LOANS)
    with pytest.raises(ParameterError, match="jobs=2 is for the processes of this machine"):
        fairkit.frontier([SWEEP], data, **ASKED, jobs=2, engine=engine)


def test_the_command_compares_on_workers(loans_model: Any) -> None:
    code = "import sys; from fairkit_cli.main import run; sys.argv[0] = 'fairkit'; run()"
    command = [sys.executable, "-c", code, "compare", str(loans_model.path), str(loans_model.path)]
    command += ["--data", str(loans_model.data), "--sensitive", "sex", "--format", "json"]
    command += ["--label", "decision", "--favorable", "approved"]
    outputs = [
        json.loads(subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout)
        for more in ([], ["--engine", "dask"])
    ]
    same(outputs[1], outputs[0], within=1e-9)
    assert {change["outcome"] for change in outputs[0]["changes"][0]} <= {"same", "undecided"}
