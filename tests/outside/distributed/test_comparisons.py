"""Comparisons and frontiers on two worker processes: the numbers of one machine."""

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

ROLES: dict[str, Any] = {"label": "y", "favorable": 1, "sensitive": ["g", "h"], "weights": "w"}


def people(n: int, seed: int = 0) -> pa.Table:
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
    table = people(3_000)
    folder = write_parts("d", table, [5, 5, 1_200, 2_500], csv=csv)
    models = [fairkit.PredictedColumns(score=column) for column in "st"]
    there = fairkit.compare(models, fairkit.load_data(folder, **ROLES), engine=engine)
    here = fairkit.compare(models, fairkit.load_data(table, **ROLES, name="d"))
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
