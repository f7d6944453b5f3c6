"""The search over groups finds the same on a cluster: its totals are sums of whole numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit.models.columns import PredictedColumns


@pytest.mark.parametrize("weights", [None, "w"])
def test_a_cluster_finds_the_same_groups_with_the_same_bytes(engine, write_parts, weights):
    rng = np.random.default_rng(3)
    n = 3000
    age, job = rng.integers(18, 66, n), rng.choice(["a", "b", None], n)
    score = np.round(rng.random(n), 6)
    decision = np.where((age > 50) & (rng.random(n) < 0.5), 0, (score > 0.4).astype(int))
    table = pa.table(
        {
            "age": age,
            "job": pa.array(job),
            "score": score,
            "decision": decision,
            "outcome": (rng.random(n) < score).astype(int),
            "w": rng.uniform(0.1, 3, n),
        }
    )
    folder = write_parts("people", table, [700, 1900])
    roles = {"label": "outcome", "favorable": 1, "sensitive": ["age"], "weights": weights, "name": "people"}
    settings = {"columns": ["age", "job"], "metrics": ["selection_rate", "calibration_residual", "mean_loss"]}
    model = PredictedColumns(score="score", decision="decision")

    def audit(source, **more):
        data = fairkit.load_data(source, **roles)
        return fairkit.audit(model, data, auditors=["subgroups"], parameters={"subgroups": settings}, **more)

    spread, here = audit(str(folder), engine=engine), audit(table)
    assert [one.to_dict() for one in spread.findings] == [one.to_dict() for one in here.findings]
    assert any(one.metric == "subgroup_gap" for one in here.findings)
