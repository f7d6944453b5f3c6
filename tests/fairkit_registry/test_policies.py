"""What an alias asks: as it is kept, as earlier versions kept it, and as its file has it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fairkit_registry.errors import RegistryError
from fairkit_registry.evidence import settings as pins
from fairkit_registry.promotion.conditions import conditions, read_policy
from fairkit_registry.promotion.run import evaluate
from fairkit_registry.store.index import AliasPolicy

NOW = datetime(2026, 1, 3, tzinfo=UTC)
RULE = {"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.1}
POLICY = AliasPolicy(rules=(RULE,), keys=("PEM",), plain=True, no_worse=("all",))


def test_what_is_written_is_read():
    assert AliasPolicy.from_dict(POLICY.to_dict()) == POLICY
    old = {name: value for name, value in POLICY.to_dict().items() if name not in ("plain", "locked", "unseen")}
    assert AliasPolicy.from_dict(old) == replace(POLICY, plain=False)


@pytest.mark.parametrize("name", ["rules", "keys", "max_age_days", "data", "no_worse", "confidence", "checks", "open"])
def test_a_condition_that_was_taken_out_is_no_policy_without_it(name):
    record = POLICY.to_dict()
    del record[name]
    with pytest.raises(TypeError, match=name):
        AliasPolicy.from_dict(record)


def test_what_an_earlier_version_asked_for_and_is_gone_refuses(registry, model, certify, signer):
    """Nothing that an alias asked for is dropped in silence; what was off is dropped."""
    asked = AliasPolicy(keys=(signer.public.pem,), rules=(RULE,))
    old = asked.to_dict() | {
        "sequential": True,
        "probation_days": 30,
        "machines": 1,
        "revokers": [],
        "timestamp_roots": [],
    }
    policy = AliasPolicy.from_dict(old)
    assert policy.gone == ("probation_days", "sequential")
    assert AliasPolicy.from_dict(policy.to_dict()) == policy
    assert AliasPolicy.from_dict(old | {"pre_registered": True}).locked
    registry.add("credit", model(), certificates=[certify(model())])
    registry.set_alias("credit", "production", asked)
    assert evaluate(registry, "credit@1", "production", now=NOW).verdict == "pass"
    registry.set_alias("credit", "production", policy)
    decision = evaluate(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "fail"
    assert "asks for probation_days, sequential, which fairkit no longer checks" in decision.reasons[0].text


@pytest.fixture
def written(tmp_path, signer):
    (tmp_path / "auditor.pub").write_bytes(signer.pub.read_bytes())

    def write(text: str):
        (tmp_path / "alias.toml").write_text(text)
        return tmp_path / "alias.toml"

    return write


def test_a_file_has_all_of_it(written, signer, certify, model, make, tmp_path):
    path = certify(model(), settings=make.settings | {"model": {"threshold": 0.4}})
    path.rename(tmp_path / "agreed.json")
    (tmp_path / "people.csv").write_text("a,b\n1,2\n3,4\n")
    found = read_policy(
        written(
            f"""
            keys = ["auditor.pub"]
            data = ["people.csv", "{make.data}", "auditor.pub"]
            max_age_days = 90
            min_rows = 200
            confidence = 0.9
            plain = true
            locked = true
            unseen = true
            no_worse = ["all"]
            checks = ["legal"]
            like = "agreed.json"

            [[rules]]
            metric = "demographic_parity_difference"
            sensitive = "sex"
            max = 0.1
            """
        )
    )
    assert found.keys == found.data_keys == (signer.public.pem,)
    assert len(found.data) == 2
    assert found.data[1] == make.data
    assert (found.max_age_days, found.min_rows, found.confidence, found.no_worse) == (90, 200, 0.9, ("all",))
    assert found.settings["model.threshold"] == 0.4
    assert found.rules == (RULE,)
    assert found.plain
    assert found.locked
    assert found.unseen
    assert AliasPolicy.from_dict(found.to_dict()) == found
    names = [type(one).__name__ for one in conditions(found)]
    assert names == ["Fresh", "Rules", "Settings", "NothingDropped", "MinRows", "Plain", "Locked", "NoWorse", "Choices"]


def test_settings_stand_as_in_the_configuration(written):
    found = read_policy(
        written(
            """
            keys = ["auditor.pub"]
            [settings.data]
            label = "paid"
            sensitive = "sex"
            test = "t.csv"
            [settings.model]
            threshold = 0.4
            [settings.audit]
            seed = 3
            [settings.audit.restricted-dro]
            epsilon = 0.1
            """
        )
    )
    assert found.settings == {
        "data.label": "paid",
        "data.sensitive": ["sex"],
        "model.threshold": 0.4,
        "audit.seed": 3,
        "audit.restricted-dro.epsilon": 0.1,
    }
    assert pins.lines({}) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("keys = [", "not valid TOML"),
        ("sequential = true", "no alias asks for 'sequential'"),
        ("min_row = 3", "min_rows"),
        ("min_rows = true", "not of the form"),
        ('plain = "yes"', "not of the form"),
        ('keys = "auditor.pub"', "not of the form"),
        ("confidence = 2", "is not between 0 and 1"),
        ("rules = [{max = 0.1}]", "rules"),
        ('[[rules]]\nmetric = "x"', "rules"),
        ('like = "c.json"', "name its keys"),
        ('like = "c.json"\n[settings.model]\nthreshold = 1', "give one of them"),
        ("[settings.model]\ntreshold = 1", "there is no setting 'model.treshold'"),
        ('[settings.policy]\nmetric = "x"', "policy is no setting"),
        ("[settings]\ndata = 3", "write its keys below that heading"),
        ('[settings.data]\ntest = "x"', "nothing to pin"),
        ('keys = ["nobody.pub"]', "nobody.pub"),
    ],
)
def test_a_file_that_asks_for_what_nobody_can_is_one_message(written, text, words):
    from fairkit.errors import FairkitError

    with pytest.raises(FairkitError, match=words):
        read_policy(written(text))


def test_a_policy_without_a_file_is_one_message(tmp_path):
    with pytest.raises((RegistryError, ValueError), match="cannot read"):
        read_policy(tmp_path / "none.toml")
