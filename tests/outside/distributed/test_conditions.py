"""References, strata, clusters and group probabilities on two worker processes: the numbers of one machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.commands import checked

import fairkit
from fairkit_registry.evidence.certificate import read, read_file


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
    return [(f.key, f.value, f.interval, f.strata, f.groups, f.missing) for f in report.findings]


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
            assert (one[5] is None) == (other[5] is None), one[0]
            if one[5] is not None:
                assert one[5].rows == other[5].rows
                assert one[5].value == pytest.approx(other[5].value, abs=1e-12)


def test_columns_of_predictions_are_compared_as_here(engine: Any, write_parts: Callable[..., Path]) -> None:
    people = _people(3000)
    table = pa.table(people | {"k": (people["s"] > 0.4).astype(int)})
    folder = write_parts("people", table, [5, 1_200, 2_500])
    roles = {"label": "y", "favorable": 1, "sensitive": ["sex"], "within": ["department"], "cluster": "person_id"}
    models = [fairkit.PredictedColumns(decision=name, score="s") for name in "hk"]
    here = fairkit.compare(models, fairkit.load_data(table, name="people", **roles))
    there = fairkit.compare(models, fairkit.load_data(folder, **roles), engine=engine)
    assert here.warnings == there.warnings
    assert len(here.changes[0]) == len(there.changes[0]) > 50
    for one, other in zip(here.changes[0], there.changes[0], strict=True):
        places = [(each.metric, each.sensitive, each.group, each.within) for each in (one, other)]
        assert places[0] == places[1]
        assert one.before == pytest.approx(other.before, abs=1e-12), one
        assert one.interval == pytest.approx(other.interval, abs=1e-7), one


def test_the_commands_certify_and_compare_columns_on_workers(
    write_parts: Callable[..., Path], tmp_path: Path, monkeypatch: Any
) -> None:
    """The same certificate, but for when it was made, and the same comparison, from workers as from here."""
    pytest.importorskip("distributed", reason="needs the extra fairkit[dask]")
    monkeypatch.chdir(tmp_path)
    folder = write_parts("log", pa.table(_people(2_000)), [300, 1_100])
    address = ("--set", "engine.name=dask")

    checked("key", "new", "k")
    about = ("--data", folder, "--label", "y", "--favorable", 1, "--sensitive", "sex", "--cluster", "person_id",
             "--within", "department")  # fmt: skip
    rule = ("--max", "demographic_parity_difference:sex|department=0.4", "--set", "group.missing_share=0.2")
    reports = []
    for name, where in (("here", ()), ("there", address)):
        certified = ("certify", "--predictions", "decision=h,score=s", *about, *rule, "--key", "k", *where)
        checked(*certified, "--output", f"{name}.json")
        body = read(read_file(f"{name}.json"))
        reports.append(body.report)
    assert reports[0].verdict == reports[1].verdict == "pass"
    assert [f.key for f in reports[0].findings] == [f.key for f in reports[1].findings]
    for one, other in zip(reports[0].findings, reports[1].findings, strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-9), one.key
        assert one.interval == pytest.approx(other.interval, abs=1e-7), one.key
    checked("verify", "there.json", "--key", "k.pub", "--data", folder, "--recompute")
    compared = ("compare", "--predictions", "decision=h", "--predictions", "score=s", *about, "--format", "json")
    one, other = (json.loads(checked(*compared, *where).stdout)["changes"][0] for where in ((), ("--engine", "dask")))
    assert [c["before"] for c in one] == pytest.approx([c["before"] for c in other], abs=1e-9)
    for change, again in zip(one, other, strict=True):
        assert change["interval"] == pytest.approx(again["interval"], abs=1e-7), change


def test_rankings_of_parts_on_workers_are_those_of_one_machine(engine: Any, write_parts: Callable[..., Path]) -> None:
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
