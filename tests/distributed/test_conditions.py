"""References, strata, clusters and group probabilities on two worker processes: the numbers of one machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fairkit


def _people(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(6)
    p = np.round(rng.beta(0.5, 0.5, n), 2)
    return {
        "sex": rng.choice(["female", "male", None], n, p=[0.4, 0.5, 0.1]),
        "department": rng.choice(list("ABC"), n),
        "person_id": np.char.add("p", rng.integers(0, n // 3, n).astype(str)),
        "h": rng.integers(0, 2, n),
        "s": np.round(rng.random(n), 3),
        "y": rng.integers(0, 2, n),
        "p_a": p,
        "p_b": 1 - p,
    }


def _findings(data: Any, engine: Any, **roles: Any) -> list[tuple[Any, ...]]:
    loaded = fairkit.load_data(data, label="y", favorable=1, sensitive=["sex"], **roles)
    report = fairkit.audit(fairkit.PredictedColumns(decision="h", score="s"), loaded, engine=engine)
    return [(f.key, f.value, f.interval, f.strata, f.groups) for f in report.findings]


def test_parts_on_workers_give_the_same(engine: Any, write_parts: Callable[..., Path]) -> None:
    table = pa.table(_people(3000))
    folder = write_parts("people", table, [700, 701, 2_000])
    for roles in (
        {"within": ["department"], "reference": ["sex=male"], "cluster": "person_id"},
        {"within": ["department"], "sensitive_probability": ["race=p_a,p_b"]},
    ):
        here, there = (_findings(data, where, **roles) for data, where in ((table, None), (folder, engine)))
        assert [one[0] for one in here] == [one[0] for one in there]
        for one, other in zip(here, there, strict=True):
            assert one[1] == pytest.approx(other[1], abs=1e-12, nan_ok=True), one[0]
            assert one[2] == pytest.approx(other[2], abs=1e-9), one[0]
            assert [s.value for s in one[3]] == pytest.approx([s.value for s in other[3]], abs=1e-12)


def test_rankings_of_parts_on_workers_are_those_of_one_machine(
    engine: Any, write_parts: Callable[..., Path]
) -> None:
    """Items of a query lie in several parts."""
    table = fairkit.datasets.table("hiring").slice(0, 2_000)
    folder = write_parts("hiring", table, [300, 301, 1_500])
    roles: dict[str, Any] = {"label": "relevance", "sensitive": "sex", "query": "opening"}
    model = fairkit.PredictedColumns(prediction="score")
    here, there = (
        fairkit.audit(model, fairkit.load_data(data, **roles), engine=where)
        for data, where in ((table, None), (folder, engine))
    )
    assert [f.key for f in here.findings] == [f.key for f in there.findings]
    for one, other in zip(here.findings, there.findings, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-12), one.key
        assert one.interval == pytest.approx(other.interval, rel=1e-9), one.key
    both = [
        fairkit.compare([model, model], fairkit.load_data(data, **roles), engine=where).find("ndcg")
        for data, where in ((table, None), (folder, engine))
    ]
    assert both[0].before == pytest.approx(both[1].before, rel=1e-12)
