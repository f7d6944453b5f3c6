"""What an alias asks about the model as it is served: rows apart, outputs, inputs, machines."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import onnx
import pytest

from fairkit.results.subjects import ModelInfo
from fairkit_registry.policies import AliasPolicy
from fairkit_registry.promotion.run import evaluate

NOW = datetime(2026, 1, 3, tzinfo=UTC)


@pytest.fixture
def policy(signer):
    rule = {"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.1}
    return AliasPolicy(keys=(signer.public.pem,), rules=(rule,))


def decided(registry, policy, kind="refused"):
    registry.set_alias("credit", "production", policy)
    decision = evaluate(registry, "credit@1", "production", now=NOW)
    return [one.text for one in decision.reasons if one.kind == kind]


def info(path, **serving):
    import hashlib

    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return ModelInfo(name=path.name, sha256=digest, task="binary", notes=("It is odd.",), serving=serving)


def test_rows_that_may_meet_are_refused_by_operator_whatever_the_certificate_says(registry, tmp_path, certify, policy):
    path = tmp_path / "mean.onnx"
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,1] x) => (float[N,1] y)
      { mean = ReduceMean<axes = [0]>(x) y = Sub(x, mean) }""")
    path.write_bytes(proto.SerializeToString())
    claim = {"rows": {"proved": True, "widths": {"x": [1]}}}
    registry.add("credit", path, certificates=[certify(path, seen=info(path, **claim))])
    (text,) = decided(registry, policy)
    assert "rows may meet at ReduceMean" in text
    assert "--allow-operator ReduceMean" in text
    assert decided(registry, replace(policy, operators=("ReduceMean",))) == []
    assert decided(registry, replace(policy, operators=("CumSum",)))


@pytest.mark.parametrize(("key", "option"), [("outputs", "--allow-output"), ("inputs", "--allow-input")])
def test_what_was_not_audited_is_allowed_by_name_only(registry, model, certify, policy, key, option):
    told = info(model(), **{key: {"segment": "3 numbers a row could be a decision"}})
    registry.add("credit", model(), certificates=[certify(model(), seen=told)])
    (text,) = decided(registry, policy)
    assert f"{option} segment" in text
    assert "3 numbers a row" in text
    assert decided(registry, replace(policy, **{key: ("segment",)})) == []
    assert "of the model, says its audit: It is odd." in decided(registry, policy, "note")


def test_an_alias_asks_for_certificates_of_two_machines(registry, model, certify, policy, make):
    def on(threads, value=0.05, day=1):
        machine = {"processor": "x", "threads": threads, "system": "Linux", "onnxruntime": "1"}
        environment = {"fairkit": "0", "python": "3", "plugins": [], "machine": machine}
        findings = [make.finding("demographic_parity_difference", value)]
        return certify(model(), findings, environment=environment, at=datetime(2026, 1, day, tzinfo=UTC))

    registry.add("credit", model(), certificates=[on(2, day=2)])
    both = replace(policy, machines=2)
    (text,) = decided(registry, both)
    assert "2 unlike machines" in text
    registry.attach("credit@1", [on(2)])
    assert decided(registry, both)
    registry.attach("credit@1", [on(8)])
    assert decided(registry, both) == []


def test_the_other_machines_certificate_must_pass_too(registry, model, certify, policy, make):
    environment = {"fairkit": "0", "python": "3", "plugins": []}
    bad = [make.finding("demographic_parity_difference", 0.9)]
    one, other = (environment | {"machine": {"processor": "x", "threads": n, "system": "L"}} for n in (2, 8))
    certificates = [
        certify(model(), bad, environment=other, at=datetime(2026, 1, 1, tzinfo=UTC)),
        certify(model(), environment=one, at=datetime(2026, 1, 2, tzinfo=UTC)),
    ]
    registry.add("credit", model(), certificates=certificates)
    assert decided(registry, policy) == []
    assert any("policy" in text for text in decided(registry, replace(policy, machines=2)))
