"""FairGBM on XGBoost: one machine, and two workers whose rates are summed inside the objective."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairkit
from fairkit.errors import EngineError, ParameterError
from fairkit_datasets.loans import loans_table

pytest.importorskip("xgboost", reason="needs the extra fairkit[xgboost]")

ROLES: dict[str, Any] = {"label": "decision", "favorable": "approved", "sensitive": "sex"}
ASKED: dict[str, Any] = {"n_estimators": 15, "num_leaves": 15, "backend": "xgboost", "threads": 1, "iterate": "last"}


def _accuracy(report: Any) -> float:
    return next(f.value for f in report.findings if f.metric == "accuracy" and f.sensitive is None)


def test_two_workers_train_the_model_of_one_machine(engine: Any, write_parts: Any) -> None:
    """The same rows are held out, the same follow the rates; scores differ as far as XGBoost's histograms do."""
    table = loans_table(6_000, 3)
    folder = write_parts("loans", table, [2_000, 2_000, 4_000])
    seen: list[int] = []
    here = fairkit.mitigate("fairgbm", fairkit.load_data(table, **ROLES, name="loans"), **ASKED)
    there = fairkit.mitigate(
        "fairgbm",
        fairkit.load_data(folder, **ROLES),
        **ASKED,
        engine=engine,
        progress=lambda doing, done, total, **numbers: seen.append(done),
    )
    assert there.train_rows == here.train_rows
    assert there.after.data.sha256 == here.after.data.sha256
    assert there.details["groups"] == here.details["groups"]
    paths = [result.details["train"] for result in (here, there)]
    np.testing.assert_allclose(paths[1]["loss"], paths[0]["loss"], atol=0.005)
    for key in ("error", "gap"):  # of the first trees many rows stand at the threshold
        np.testing.assert_allclose(paths[1][key][-6:], paths[0][key][-6:], atol=0.02)
    multipliers = np.array(there.details["multipliers"]), np.array(here.details["multipliers"])
    assert multipliers[0].shape == multipliers[1].shape
    assert (multipliers[0] > 0).any()
    assert _accuracy(there.after) == pytest.approx(_accuracy(here.after), abs=0.015)
    assert _accuracy(there.before) == pytest.approx(_accuracy(here.before), abs=0.01)
    gaps = [result.after.find("equal_opportunity_difference", "sex").value for result in (here, there)]
    assert gaps[1] == pytest.approx(gaps[0], abs=0.03)
    assert len(there.changes) == len(here.changes)


def test_the_rates_are_those_of_all_rows(engine: Any, write_parts: Any) -> None:
    """The path that the booster brings along, against the final model on all training rows."""
    table = loans_table(2_500, 4)
    folder = write_parts("loans", table, [1_000])
    result = fairkit.mitigate(
        "fairgbm",
        fairkit.load_data(folder, **ROLES),
        test=fairkit.load_data(folder, **ROLES),
        engine=engine,
        **ASKED,
        follow="train",
    )
    path = result.details["train"]
    wrong = 1 - _accuracy(result.after)
    assert path["error"][-1] == pytest.approx(wrong, abs=1e-9)
    rates = [group.value for group in result.after.find("false_negative_rate_difference", "sex").groups]
    assert path["rates"][-1][0] == pytest.approx(rates, abs=1e-9)


@pytest.mark.parametrize(
    ("plugin", "more", "message"),
    [
        ("reweigh", {}, "reweigh trains on one machine only"),
        ("fairgbm", {"backend": "lightgbm"}, "backend=lightgbm trains on one machine"),
        ("fairgbm", {"lightgbm": {"max_bin": 63}}, "give xgboost.KEY"),
    ],
)
def test_what_does_not_train_there(
    engine: Any, write_parts: Any, plugin: str, more: dict[str, Any], message: str
) -> None:
    folder = write_parts("loans", loans_table(600, 5), [300])
    with pytest.raises(ParameterError, match=message):
        fairkit.mitigate(plugin, fairkit.load_data(folder, **ROLES), engine=engine, **more)


def test_a_worker_killed_in_training(write_parts: Any, tmp_path: Path) -> None:
    """A clear error, and no file."""
    import os
    import signal
    import threading

    from fairkit.engines import DaskEngine, connected

    folder = write_parts("loans", loans_table(4_000, 6), [2_000])
    target = tmp_path / "fair.onnx"
    with connected(workers=2) as client:
        pids = list(client.run(os.getpid).values())
        killed = threading.Event()

        def kill(doing: str, done: int, total: int, **numbers: float) -> None:
            if doing == "training rounds" and done > 3 and not killed.is_set():
                killed.set()
                os.kill(pids[1], signal.SIGKILL)

        with pytest.raises(EngineError, match="was lost in training"):
            fairkit.mitigate(
                "fairgbm",
                fairkit.load_data(folder, **ROLES),
                engine=DaskEngine(client),
                n_estimators=100_000,
                output=target,
                progress=kill,
            )
    assert killed.is_set()
    assert not target.exists()
