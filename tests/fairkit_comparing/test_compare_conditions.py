"""Two models compared under conditions: pooled inside strata, against a reference, with dependent rows."""

from __future__ import annotations

import numpy as np
import pytest

import fairkit


def _rows(rng: np.random.Generator, n: int = 2000) -> dict[str, np.ndarray]:
    who = rng.integers(0, n // 8, n)
    chance = rng.beta(0.6, 1.4, n // 8)[who]
    columns = {"g": np.where(who % 2 == 0, "a", "b"), "d": rng.choice(list("xyz"), n), "who": who}
    columns |= {name: (rng.random(n) < chance).astype(int) for name in ("h", "k", "y")}
    return columns | {"s": chance, "t": np.clip(chance + rng.normal(0, 0.1, n), 0, 1)}


def _compare(columns: dict[str, np.ndarray], **roles: object) -> fairkit.Comparison:
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"], **roles)
    models = [fairkit.PredictedColumns(decision=d, score=s) for d, s in (("h", "s"), ("k", "t"))]
    return fairkit.compare(models, data)


def test_pooled_and_referred_changes_are_those_of_the_audits() -> None:
    columns = _rows(np.random.default_rng(0))
    roles = {"within": ["d"], "reference": ["g=b"]}
    found = _compare(columns, **roles)
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"], **roles)
    for place, decision in (("before", "h"), ("after", "k")):
        report = fairkit.audit(fairkit.PredictedColumns(decision=decision, score="s"), data)
        inside = found.find("demographic_parity_difference", "g", within="d")
        expected = report.find("demographic_parity_difference", "g", within="d").value
        assert getattr(inside, place) == pytest.approx(expected, abs=1e-12)
        signed = found.find("demographic_parity_difference", "g", group="a", reference="b")
        known = report.find("demographic_parity_difference", "g", reference="b").value
        assert getattr(signed, place) == pytest.approx(known, abs=1e-12)


@pytest.mark.long
def test_dependent_rows_widen_and_cover() -> None:
    rng = np.random.default_rng(1)
    hits = {"demographic_parity_difference": 0, "roc_auc": 0}
    runs = 25
    for _ in range(runs):
        found = _compare(_rows(rng), cluster="who")
        one = found.find("demographic_parity_difference", "g").interval
        assert one is not None
        hits["demographic_parity_difference"] += one[0] <= 0 <= one[1]
        area = found.find("roc_auc").interval
        assert area is not None
        hits["roc_auc"] += area[0] <= -0.02 <= area[1]
    assert hits["demographic_parity_difference"] >= 0.8 * runs


def test_every_row_its_own_cluster_changes_little() -> None:
    columns = _rows(np.random.default_rng(2), 8000)
    alone = columns | {"who": np.arange(8000)}
    bare, same = _compare(columns), _compare(alone, cluster="who")
    for metric in ("accuracy", "brier_score", "roc_auc", "f1_score"):
        one, other = (c.find(metric).interval for c in (bare, same))
        assert one is not None
        assert other is not None
        assert other[1] - other[0] == pytest.approx(one[1] - one[0], rel=0.15), metric
