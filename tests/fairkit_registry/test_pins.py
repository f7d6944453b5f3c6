"""What a certifier can choose in an audit, and what an alias makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import onnx
import pytest

from fairkit.results.report import ModelInfo
from fairkit.settings import ModelOptions
from fairkit_registry.evidence import settings as pins
from fairkit_registry.evidence.settings import SignedSettings
from fairkit_registry.promotion.run import evaluate, promote
from fairkit_registry.store.index import AliasPolicy

NOW = datetime(2026, 1, 10, tzinfo=UTC)
RULE = {"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.1}
ROLES = {
    "label": "paid",
    "favorable": "yes",
    "sensitive": ["sex"],
    "features": None,
    "drop": [],
    "weights": None,
    "missing": "drop",
}


def told(**changes) -> dict:
    data, options = ROLES | changes.pop("data", {}), ModelOptions(**changes.pop("model", {}))
    return SignedSettings(data=data, options=options, **changes).to_dict()


@pytest.fixture
def policy(signer):
    return AliasPolicy(keys=(signer.public.pem,), rules=(RULE,))


def texts(decision, kind="refused"):
    return [reason.text for reason in decision.reasons if reason.kind == kind]


CHOICES = {
    "threshold 0": ({"model": {"threshold": 0.0}}, "model.threshold"),
    "threshold 1": ({"model": {"threshold": 1.0}}, "model.threshold"),
    "scores read as logits": ({"model": {"score_kind": "logit"}}, "model.score_kind"),
    "another output": ({"model": {"score_output": "other"}}, "model.score_output"),
    "the other class": ({"model": {"favorable_class": 0}}, "model.favorable_class"),
    "a task": ({"model": {"task": "binary"}}, "model.task"),
    "other bins": ({"data": {"sensitive": ["sex:25"]}}, "data.sensitive"),
    "missing values as a group": ({"data": {"missing": "group"}}, "data.missing"),
    "weights": ({"data": {"weights": "w"}}, "data.weights"),
    "features in another order": ({"data": {"features": ["b", "a"]}}, "data.features"),
    "columns left out": ({"data": {"drop": ["a"]}}, "data.drop"),
    "small groups allowed": ({"parameters": {"group": {"min_group": "1"}}}, "audit.group.min_group"),
    "another auditor": ({"auditors": ("group", "dif")}, "audit.auditors"),
    "another seed": ({"seed": 7}, "audit.seed"),
    "an adjustment": ({"adjustment": "benjamini-hochberg"}, "audit.adjust"),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_what_is_not_pinned_must_be_the_default(registry, model, certify, policy, choice):
    changes, name = CHOICES[choice]
    registry.add("credit", model(), certificates=[certify(model(), settings=told(**changes))])
    registry.set_alias("credit", "production", policy)
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "fail"
    assert [f"setting {name} is" in text for text in texts(decision)] == [True]
    assert registry.alias("credit", "production").version is None
    # the same settings, pinned: the auditor and the owner of the alias agree on them
    registry.set_alias("credit", "production", replace(policy, settings=pins.named(told(**changes))))
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert texts(decision) == []
    if name != "data.sensitive" or "bins" in choice:
        assert name in "".join(texts(decision, "note"))


@pytest.mark.parametrize("choice", CHOICES)
def test_a_pin_refuses_the_default_and_every_other_value(registry, model, certify, policy, choice):
    changes, name = CHOICES[choice]
    registry.add("credit", model(), certificates=[certify(model(), settings=told())])
    registry.set_alias("credit", "production", replace(policy, settings=pins.named(told(**changes))))
    refused = texts(promote(registry, "credit@1", "production", now=NOW))
    assert len(refused) == 1
    assert f"setting {name} is" in refused[0]
    assert "the alias pins" in refused[0]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"label": "other"}, "data.label"),
        ({"favorable": "no"}, "data.favorable"),
        ({"sensitive": ["region"]}, "data.sensitive"),
    ],
)
def test_what_has_no_default_is_pinned_or_as_in_the_current_version(registry, model, certify, policy, changes, name):
    for factor, settings in ((1, told()), (2, told(data=changes))):
        registry.add("credit", model(factor), certificates=[certify(model(factor), settings=settings)])
    registry.set_alias("credit", "production", policy)
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "pass"
    assert f"the signer chose data.label {json.dumps('paid')}" in "".join(texts(decision, "note"))
    refused = texts(evaluate(registry, "credit@2", "production", now=NOW))
    assert [f"setting {name} is" in text for text in refused] == [True]
    registry.set_alias("credit", "fresh", replace(policy, settings=pins.named(told())))
    assert f"setting {name} is" in texts(evaluate(registry, "credit@2", "fresh", now=NOW))[0]
    assert evaluate(registry, "credit@1", "fresh", now=NOW).verdict == "pass"
    assert "the signer chose data.label" not in "".join(texts(evaluate(registry, "credit@1", "fresh", now=NOW), "note"))


def test_the_default_written_out_is_the_default(registry, model, certify, policy, make):
    spelled = told(parameters={"group": {"min_group": "30"}}, confidence=0.99)
    assert pins.unusual(spelled) == {"audit.confidence": 0.99}
    findings = [make.finding(RULE["metric"], 0.05, confidence=0.99)]
    registry.add("credit", model(), certificates=[certify(model(), findings, settings=spelled)])
    registry.set_alias("credit", "production", policy)
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"


def test_an_older_certificate_has_fewer_settings_and_they_count_as_default(registry, model, certify, policy):
    old = {key: value for key, value in told().items() if key != "adjustment"}
    old["data"] = {"label": "paid", "favorable": "yes", "sensitive": ["sex"]}
    registry.add("credit", model(), certificates=[certify(model(), settings=old)])
    registry.set_alias("credit", "production", replace(policy, settings=pins.named(told())))
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"


def test_features_that_are_the_models_inputs_are_no_choice(registry, tmp_path, certify, policy, signer):
    from onnx import TensorProto, helper

    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, 1]) for n in ("age", "income")]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])
    graph = helper.make_graph([helper.make_node("Add", ["age", "income"], ["y"])], "g", inputs, [output])
    file = tmp_path / "named.onnx"
    for number, features in enumerate((["income", "age"], ["age"], ["age", "income", "debt"]), 1):
        file.write_bytes(helper.make_model(graph, producer_name=f"p{number}").SerializeToString())
        settings = told(data={"features": features})
        registry.add("credit", file, certificates=[certify(file, settings=settings)])
        registry.set_alias("credit", "production", policy)
        verdict = evaluate(registry, f"credit@{number}", "production", now=NOW).verdict
        assert verdict == ("pass" if number == 1 else "fail"), features


def test_a_rule_without_a_column_needs_pinned_columns(registry, model, certify, policy):
    registry.add("credit", model(), certificates=[certify(model(), settings=told())])
    everywhere = replace(policy, rules=(RULE | {"sensitive": None},))
    registry.set_alias("credit", "production", everywhere)
    assert "names no column" in texts(promote(registry, "credit@1", "production", now=NOW))[0]
    registry.set_alias("credit", "production", replace(everywhere, settings={"data.sensitive": ["sex"]}))
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"


def test_rows_cannot_be_left_out_through_a_column_of_the_signers_choice(registry, model, certify, policy, make):
    sizes = {"f": 40, "m": 60}
    data = make.table(dropped_rows=900, groups={"sex": sizes, "trigger": sizes})
    findings = [make.finding(RULE["metric"], 0.05, sensitive=column) for column in ("sex", "trigger")]
    settings = told(data={"sensitive": ["sex", "trigger"]})
    registry.add("credit", model(), certificates=[certify(model(), findings, data=data, settings=settings)])
    registry.set_alias("credit", "production", replace(policy, data=(make.data,)))
    assert "900 rows were left out" in texts(promote(registry, "credit@1", "production", now=NOW))[0]


def test_the_rows_are_the_signers_choice_unless_the_alias_says(registry, model, certify, policy, make):
    registry.add("credit", model(), certificates=[certify(model(), settings=told())])
    registry.set_alias("credit", "production", policy)
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert "the rows were the signer's choice: people.csv, 100 rows" in "".join(texts(decision, "note"))
    registry.set_alias("credit", "production", replace(policy, data=(make.data,)))
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert "rows were the signer's choice" not in "".join(texts(decision, "note"))
    registry.set_alias("credit", "production", replace(policy, min_rows=41))
    assert "fewer than the 41 rows that the alias asks for: f 40" in "".join(
        texts(promote(registry, "credit@1", "production", now=NOW))
    )
    registry.set_alias("credit", "production", replace(policy, min_rows=40))
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"


def test_of_two_audits_in_the_same_second_both_decide(registry, model, certify, policy, make):
    same = datetime(2026, 1, 3, tzinfo=UTC)
    both = [certify(model(), [make.finding(RULE["metric"], value)], settings=told(), at=same) for value in (0.02, 0.4)]
    registry.add("credit", model(), certificates=both)
    registry.set_alias("credit", "production", policy)
    assert "is 0.4" in texts(promote(registry, "credit@1", "production", now=NOW))[0]


@pytest.mark.long
def test_an_audit_with_other_settings_is_for_another_alias(registry, model, certify, policy, make):
    """Two aliases pin two thresholds; of the audits with its settings the newest decides, good or bad."""
    settings = {value: told(model={"threshold": value}) for value in (0.4, 0.6)}
    days = {0.4: 3, 0.6: 4}
    signed = [
        certify(model(), settings=settings[value], at=datetime(2026, 1, days[value], tzinfo=UTC)) for value in settings
    ]
    registry.add("credit", model(), certificates=signed)
    for alias, value in (("low", 0.4), ("high", 0.6)):
        registry.set_alias("credit", alias, replace(policy, settings=pins.named(settings[value])))
        assert promote(registry, "credit@1", alias, now=NOW).verdict == "pass"
    worse = [make.finding(RULE["metric"], 0.4)]
    registry.attach("credit@1", [certify(model(), worse, settings=settings[0.4], at=datetime(2026, 1, 5, tzinfo=UTC))])
    assert evaluate(registry, "credit@1", "low", now=NOW).verdict == "fail"
    assert evaluate(registry, "credit@1", "high", now=NOW).verdict == "pass"


# What an alias asks about the model as it is served: rows apart, outputs, inputs.
PLAIN = {"rows": {"plain": True, "rows_apart": True}, "probed": {"rows": 400, "differ": 0}}
LATER = datetime(2026, 1, 3, tzinfo=UTC)


@pytest.fixture
def pinned(signer):
    rule = {"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.1}
    return AliasPolicy(keys=(signer.public.pem,), rules=(rule,), plain=True)


def decided(registry, pinned, kind="refused"):
    registry.set_alias("credit", "production", pinned)
    decision = evaluate(registry, "credit@1", "production", now=LATER)
    return [one.text for one in decision.reasons if one.kind == kind]


def info(path, **serving):
    import hashlib

    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return ModelInfo(name=path.name, sha256=digest, task="binary", notes=("It is odd.",), serving=serving)


def test_rows_that_may_meet_are_refused_with_the_rule_whatever_the_certificate_says(
    registry, tmp_path, certify, pinned
):
    path = tmp_path / "mean.onnx"
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,1] x) => (float[N,1] y)
      { mean = ReduceMean<axes = [0]>(x) y = Sub(x, mean) }""")
    path.write_bytes(proto.SerializeToString())
    claim = PLAIN | {"rows": {"plain": True, "rows_apart": True, "widths": {"x": [1]}}}
    registry.add("credit", path, certificates=[certify(path, seen=info(path, **claim))])
    (text,) = decided(registry, pinned)
    assert "not shown that rows of a batch stay apart: at ReduceMean 'mean': it works along the rows" in text
    assert decided(registry, replace(pinned, plain=False)) == []


@pytest.mark.parametrize("key", ["outputs", "inputs"])
def test_what_was_not_audited_is_refused(registry, model, certify, pinned, key):
    told = info(model(), **PLAIN, **{key: {"segment": "3 numbers a row could be a decision"}})
    registry.add("credit", model(), certificates=[certify(model(), seen=told)])
    (text,) = decided(registry, pinned)
    assert "segment" in text
    assert "3 numbers a row" in text
    assert decided(registry, replace(pinned, plain=False)) == []
    assert "from the audit: It is odd." in decided(registry, pinned, "note")


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
def test_what_no_audit_of_today_says_is_refused(registry, model, certify, pinned, told, text):
    registry.add("credit", model(), certificates=[certify(model(), seen=info(model(), **told))])
    assert text in decided(registry, pinned)[0]
