"""What an alias asks about the model as it is served: rows apart, outputs, inputs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import onnx
import pytest

from fairkit.results.report import ModelInfo
from fairkit_registry.promotion.run import evaluate
from fairkit_registry.store.index import AliasPolicy

PLAIN = {"rows": {"plain": True, "rows_apart": True}, "probed": {"rows": 400, "differ": 0}}
NOW = datetime(2026, 1, 3, tzinfo=UTC)


@pytest.fixture
def policy(signer):
    rule = {"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.1}
    return AliasPolicy(keys=(signer.public.pem,), rules=(rule,), plain=True)


def decided(registry, policy, kind="refused"):
    registry.set_alias("credit", "production", policy)
    decision = evaluate(registry, "credit@1", "production", now=NOW)
    return [one.text for one in decision.reasons if one.kind == kind]


def info(path, **serving):
    import hashlib

    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return ModelInfo(name=path.name, sha256=digest, task="binary", notes=("It is odd.",), serving=serving)


def test_rows_that_may_meet_are_refused_with_the_rule_whatever_the_certificate_says(
    registry, tmp_path, certify, policy
):
    path = tmp_path / "mean.onnx"
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,1] x) => (float[N,1] y)
      { mean = ReduceMean<axes = [0]>(x) y = Sub(x, mean) }""")
    path.write_bytes(proto.SerializeToString())
    claim = PLAIN | {"rows": {"plain": True, "rows_apart": True, "widths": {"x": [1]}}}
    registry.add("credit", path, certificates=[certify(path, seen=info(path, **claim))])
    (text,) = decided(registry, policy)
    assert "not shown that rows of a batch stay apart: at ReduceMean 'mean': it works along the rows" in text
    assert decided(registry, replace(policy, plain=False)) == []


@pytest.mark.parametrize("key", ["outputs", "inputs"])
def test_what_was_not_audited_is_refused(registry, model, certify, policy, key):
    told = info(model(), **PLAIN, **{key: {"segment": "3 numbers a row could be a decision"}})
    registry.add("credit", model(), certificates=[certify(model(), seen=told)])
    (text,) = decided(registry, policy)
    assert "segment" in text
    assert "3 numbers a row" in text
    assert decided(registry, replace(policy, plain=False)) == []
    assert "from the audit: It is odd." in decided(registry, policy, "note")


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"rows": {"proved": True}, "probed": PLAIN["probed"]}, "not shown that rows of a batch stay apart"),  # of old
        ({"rows": PLAIN["rows"]}, "not run again in every other way"),
        (
            PLAIN | {"probed": {"rows": 400, "differ": 0, "untried": ["without graph optimisation"]}},
            "not run again in every other way",
        ),
    ],
)
def test_what_no_audit_of_today_says_is_refused(registry, model, certify, policy, told, text):
    registry.add("credit", model(), certificates=[certify(model(), seen=info(model(), **told))])
    assert text in decided(registry, policy)[0]
