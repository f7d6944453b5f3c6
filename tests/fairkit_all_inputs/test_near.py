"""Inputs near people: logs that are checked without a search, saved metrics, and bounds when the boxes are used up."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fairkit
from fairkit.errors import DataError, ParameterError
from fairkit.results.findings import Finding
from fairkit_registry.evidence.predicate import public_findings
from fairkit_registry.evidence.recompute import compare_reports
from fairkit_similarity import learn
from fairkit_similarity.encode import Encoder
from fairkit_similarity.metric import FairMetric

from .conftest import NUMBERS, ROLES, TEXTS, frame
from .test_all_inputs import FLIP, SCORE, audit, handmade, sides, trusted


@pytest.mark.long
def test_the_logs_near_people_are_checked_and_never_stand_in_a_certificate(loans, tmp_path, monkeypatch):
    import fairkit_all_inputs.people as module

    file = tmp_path / "proof.json"
    told = {"columns": "ethnicity", "near": 0.2, "people": 6, "save_proof": str(file)}
    data = fairkit.load_data(str(loans / "loans.csv"), **ROLES)
    model = loans / "boosted.onnx"

    def run(signed=()):
        return fairkit.audit(
            trusted(model), data, auditors=["all-inputs"], parameters={"all-inputs": told}, signed=signed
        )

    report = run()
    public = json.loads(json.dumps(public_findings([f.to_dict() for f in report.findings])))
    assert all("proof" not in one["evidence"] for one in public), "a log around people says where they are"
    assert "first." not in json.dumps([one["evidence"] for one in public]), "nobody's values"
    signed = [Finding.from_dict(one) for one in public]

    searched = []
    real = module.answer
    monkeypatch.setattr(
        module, "answer", lambda problem, kind, **more: searched.append(kind) or real(problem, kind, **more)
    )
    written = file.read_bytes()
    again = run(signed)
    assert searched.count(1) == len(searched), "a witness of a flip decides; changes are not searched for again"
    assert list(compare_reports(report, again)) == []
    assert file.read_bytes() == written, "whoever checks writes nothing"

    record = json.loads(written)
    record["logs"][SCORE] = record["logs"][SCORE][1:]  # somebody is left out
    file.write_text(json.dumps(record))
    searched.clear()
    assert list(compare_reports(report, run(signed))) == []
    assert 0 in searched, "what does not hold is searched for again"


def test_nobody_near_flips_is_one_proof_for_everybody(loans, tmp_path):
    file = tmp_path / "p.json"
    found = audit(handmade(tmp_path / "sure.onnx"), loans, near=0.3, people=10, save_proof=str(file))
    assert found[FLIP].interval == (0.0, 0.0)
    assert found["all_inputs_flippable"].evidence["flippable"] == 0
    assert found["all_inputs_flippable"].evidence["boxes"] == 0


@pytest.mark.long
@pytest.mark.parametrize("limit", [{"boxes": 1}, {"seconds": 1e-9}])
def test_people_who_were_not_reached_still_count_for_the_upper_end(loans, limit):
    told = {"near": 0.2, "people": 15}
    whole = audit(loans / "forest.onnx", loans, "ethnicity", **told)
    cut = audit(loans / "forest.onnx", loans, "ethnicity", **told, **limit)
    assert whole[FLIP].interval == (1.0, 1.0)
    assert cut[FLIP].interval in ((0.0, 1.0), (1.0, 1.0)), "never a proof that there is none"
    assert cut[SCORE].interval[0] <= whole[SCORE].interval[0] + 1e-9
    assert whole[SCORE].interval[1] - 1e-9 <= cut[SCORE].interval[1] < np.inf


def saved(path, *, scale=1.0):
    table = frame()
    encoder = Encoder.learn({name: table[name].to_numpy() for name in TEXTS + NUMBERS})
    FairMetric.of_sigma(encoder, scale * np.eye(len(encoder.features)), {"kind": "scaled"}).save(path)
    return str(path)


@pytest.mark.long
def test_a_saved_euclidean_metric_is_the_built_in_distance_and_scales(loans, tmp_path):
    told = {"columns": "ethnicity", "people": 12}
    model = loans / "forest.onnx"
    plain = audit(model, loans, near=0.2, **told)
    same = audit(model, loans, near=0.2, fair_metric=saved(tmp_path / "m.json"), **told)
    scaled = audit(model, loans, near=0.8, fair_metric=saved(tmp_path / "n.json", scale=4.0), **told)
    for name, finding in plain.items():
        for other in (same, scaled):
            assert other[name].interval == pytest.approx(finding.interval, abs=1e-9), name
    assert same[SCORE].parameters["fair_metric"] == "m.json"


def mixed(path, ignored=("age", "income")):
    """A projection: two numbers together do not count."""
    table = frame()
    encoder = Encoder.learn({name: table[name].to_numpy() for name in TEXTS + NUMBERS})
    direction = np.zeros(len(encoder.features))
    direction[encoder.places(list(ignored))] = 1.0
    FairMetric.projecting(encoder, direction, {"kind": "made"}).save(path)
    return str(path)


@pytest.mark.long
def test_a_metric_that_ignores_a_subspace_looks_further_and_its_witness_is_near(loans, tmp_path):
    told = {"columns": "ethnicity", "people": 12, "near": 0.1}
    model = loans / "forest.onnx"
    plain = audit(model, loans, fair_metric=saved(tmp_path / "p.json"), **told)
    wide = audit(model, loans, fair_metric=mixed(tmp_path / "m.json"), **told)
    assert wide[SCORE].interval[0] >= plain[SCORE].interval[0] - 1e-9
    assert wide[SCORE].evidence["decided"]
    metric, table = FairMetric.load(tmp_path / "m.json"), frame()
    first, second = sides(wide[SCORE])
    assert {c for c in first if first[c] != second[c]} == {"ethnicity"}
    row = {name: np.array([first[name]] * len(table), dtype=table[name].to_numpy().dtype) for name in TEXTS + NUMBERS}
    row["ethnicity"] = table["ethnicity"].to_numpy()  # it is free
    people = {name: table[name].to_numpy() for name in TEXTS + NUMBERS}
    far = ((metric.transform(row) - metric.transform(people)) ** 2).sum(axis=1)
    assert far.min() <= 0.1
    none = audit(model, loans, fair_metric=str(tmp_path / "m.json"), **{**told, "near": 0.0})
    assert none["all_inputs_flippable"].value <= wide["all_inputs_flippable"].value


@pytest.mark.long
def test_the_metric_of_restricted_dro_is_learned_and_a_second_audit_agrees(loans):
    told = {"columns": "ethnicity", "people": 4, "near": 0.1, "fair_metric": "subspace"}
    found = audit(loans / "forest.onnx", loans, **told)
    assert found[FLIP].parameters["fair_metric"] == "subspace"
    assert found[FLIP].parameters["strength"] == 0.1
    again = audit(loans / "forest.onnx", loans, **told)
    assert {name: one.interval for name, one in found.items()} == {name: one.interval for name, one in again.items()}
    assert audit(loans / "forest.onnx", loans, **told, directions=[])[FLIP].parameters["directions"] == []


@pytest.mark.long
def test_a_metric_that_cannot_be_used_is_one_message(loans, tmp_path):
    file, model = mixed(tmp_path / "mixed.json"), loans / "forest.onnx"
    for settings, error, message in (
        ({"fair_metric": file}, ParameterError, r"add near=0.1"),
        ({"near": 0.1, "strength": 0.5}, ParameterError, "belong to fair_metric=subspace"),
        ({"near": 0.1, "fair_metric": file, "directions": ["sex"]}, ParameterError, "belong to fair_metric=subspace"),
        (
            {"near": 0.1, "fair_metric": file, "save_proof": str(tmp_path / "p.json")},
            ParameterError,
            "leave save_proof out",
        ),
        ({"near": 0.1, "fair_metric": str(tmp_path / "none.json")}, DataError, "cannot be read"),
    ):
        with pytest.raises(error, match=message):
            audit(model, loans, **settings)
    assert not (tmp_path / "p.json").exists()
    learn.euclidean({"shoes": np.arange(4.0)}).save(tmp_path / "shoes.json")
    with pytest.raises(DataError, match="made for 'shoes'"):
        audit(model, loans, near=0.1, fair_metric=str(tmp_path / "shoes.json"))


def test_seconds_bound_the_whole_audit(monkeypatch):
    """Each question gets an even share of what is left; when nothing is left, bounds are taken as they are."""
    from types import SimpleNamespace

    from fairkit_all_inputs import scope as module

    clock = iter([0.0, 2.0, 6.0, 11.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    told = SimpleNamespace(boxes=7, seconds=10.0)
    asked = module.AuditScope(told=told, changing=["sex"], people=None, context=None, began=module.time.monotonic())
    assert [asked.effort(left).seconds for left in (4, 2, 1)] == [2.0, 2.0, 0.0]
    assert (
        module.AuditScope(
            told=SimpleNamespace(boxes=7, seconds=None), changing=[], people=None, context=None, began=0.0
        )
        .effort()
        .seconds
        is None
    )
