"""Promotion: what an alias asks, what stops it, and how two evaluations compare."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fairkit import plugins
from fairkit.plugins.loading import Plugin, PluginInfo
from fairkit.promotions import PromotionCheck, Remark
from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence import signed as dsse
from fairkit_registry.evidence.signed import PAYLOAD_TYPE
from fairkit_registry.promotion.case import difference_interval, worse_findings
from fairkit_registry.promotion.run import evaluate, promote
from fairkit_registry.store.index import AliasPolicy

NOW = datetime(2026, 1, 10, tzinfo=UTC)
RULE = {"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.1}


@pytest.fixture
def policy(signer):
    return AliasPolicy(keys=(signer.public.pem,))


def texts(decision, kind="refused"):
    return [reason.text for reason in decision.reasons if reason.kind == kind]


def test_a_valid_certificate_that_meets_the_policy_promotes(registry, model, certify, policy):
    version = registry.add("credit", model(), certificates=[certify(model())])
    registry.set_alias("credit", "production", replace(policy, rules=(RULE,)))
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "pass"
    assert {reason.kind for reason in decision.reasons} == {"note"}
    assert registry.version("credit@production") == version
    assert registry.alias("credit", "production").certificate == version.certificates[0]
    assert registry.log(limit=1)[0].body["certificate"] == version.certificates[0]


def test_without_a_certificate_or_a_trusted_key_nothing_is_promoted(registry, model, certify):
    registry.add("credit", model())
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "fail"
    assert "trusts no key" in texts(decision)[0]
    assert "has no certificate" in texts(decision)[1]
    assert registry.alias("credit", "production") is None
    registry.attach("credit@1", [certify(model())])
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "fail"


def test_an_open_alias_asks_for_nothing(registry, model):
    registry.add("credit", model())
    registry.set_alias("credit", "dev", AliasPolicy(open=True))
    assert promote(registry, "credit@1", "dev").verdict == "pass"


def test_a_stranger_cannot_promote(registry, model, certify, policy, stranger):
    registry.add("credit", model(), certificates=[certify(model(), by=[stranger.secret])])
    registry.set_alias("credit", "production", policy)
    assert "not signed by a key that you trust" in texts(promote(registry, "credit@1", "production", now=NOW))[0]


def test_all_reasons_come_at_once(registry, model, certify, policy, make):
    findings = [
        make.finding("demographic_parity_difference", 0.3),
        make.finding("accuracy", 0.7, 0.05, better="higher", sensitive=None),
    ]
    registry.add("credit", model(), certificates=[certify(model(), findings)])
    rules = (
        RULE,
        {"metric": "accuracy", "sensitive": None, "min": 0.72},
        {"metric": "dif", "sensitive": None, "max": 1},
    )
    registry.set_alias(
        "credit", "production", replace(policy, rules=rules, max_age_days=2, data=("e" * 64,), checks=("eyes",))
    )
    decision = promote(registry, "credit@1", "production", now=NOW)
    refused = "\n".join(texts(decision))
    for part in ("about the data that", "too old", "demographic_parity_difference for sex is 0.3", "'dif'", "'eyes'"):
        assert part in refused
    assert "accuracy" in texts(decision, "inconclusive")[0]
    assert decision.verdict == "fail"
    assert len(texts(decision)) == 5


def test_an_interval_that_holds_the_limit_is_inconclusive(registry, model, certify, policy, make):
    findings = [make.finding("demographic_parity_difference", 0.095)]
    registry.add("credit", model(), certificates=[certify(model(), findings)])
    registry.set_alias("credit", "production", replace(policy, rules=(RULE,)))
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "inconclusive"
    assert registry.alias("credit", "production").version is None


@pytest.mark.parametrize(
    ("verdict", "expected", "words"),
    [
        ("fail", "fail", "failed its policy"),
        ("inconclusive", "inconclusive", "inconclusive"),
        (None, "fail", "neither the certificate nor the alias has a policy"),
    ],
)
def test_without_rules_the_signed_verdict_decides(registry, model, certify, policy, verdict, expected, words):
    registry.add("credit", model(), certificates=[certify(model(), verdict=verdict)])
    registry.set_alias("credit", "production", policy)
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == expected
    assert words in decision.reasons[0].text


def test_intervals_of_low_confidence_do_not_count(registry, model, certify, policy, make):
    findings = [make.finding("demographic_parity_difference", 0.05, confidence=0.5)]
    registry.add("credit", model(), certificates=[certify(model(), findings, confidence=0.5)])
    registry.set_alias("credit", "production", replace(policy, rules=(RULE,)))
    assert "at confidence 0.5" in texts(promote(registry, "credit@1", "production", now=NOW))[0]
    registry.set_alias("credit", "production", policy)
    assert "confidence is 0.5" in texts(promote(registry, "credit@1", "production", now=NOW))[0]


def test_the_newest_audit_decides_so_that_nobody_picks_the_best(registry, model, certify, policy, make):
    good = certify(model(), at=NOW - timedelta(days=5))
    bad = certify(model(), [make.finding("demographic_parity_difference", 0.3)], at=NOW - timedelta(days=1))
    registry.add("credit", model(), certificates=[good, bad])
    registry.set_alias("credit", "production", replace(policy, rules=(RULE,)))
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "fail"
    later = certify(model(), at=NOW - timedelta(hours=1))
    registry.attach("credit@1", [later])
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"


def test_a_strangers_certificate_beside_a_good_one_is_a_note(registry, model, certify, policy, stranger):
    both = [certify(model()), certify(model(), by=[stranger.secret])]
    registry.add("credit", model(), certificates=both)
    registry.set_alias("credit", "production", policy)
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "pass"
    assert "does not count" in texts(decision, "note")[0]


def test_an_audit_in_the_future_is_refused(registry, model, certify, policy):
    registry.add("credit", model(), certificates=[certify(model(), at=NOW + timedelta(days=1))])
    registry.set_alias("credit", "production", policy)
    assert "in the future" in texts(promote(registry, "credit@1", "production", now=NOW))[0]


@pytest.mark.parametrize("what", ["model", "certificate"])
def test_a_changed_byte_is_refused(registry, model, certify, policy, what):
    version = registry.add("credit", model(), certificates=[certify(model())])
    registry.set_alias("credit", "production", policy)
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"
    path = registry.blobs.path(version.model if what == "model" else version.certificates[0])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(content))
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "fail"
    assert "was changed or damaged" in "\n".join(texts(decision))


def test_the_data_that_the_alias_asks_for(registry, model, certify, policy, make):
    elsewhere = make.table(name="x", sha256="e" * 64)
    registry.add("credit", model(), certificates=[certify(model(), data=elsewhere)])
    registry.set_alias("credit", "production", replace(policy, data=(make.data,)))
    assert "about the data" in texts(promote(registry, "credit@1", "production", now=NOW))[0]
    registry.attach("credit@1", [certify(model())])
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "pass"
    assert decision.certificate.report.data.sha256 == make.data


@pytest.mark.long
def test_not_significantly_worse_than_the_current_version(registry, model, certify, policy, make):
    def add(factor, difference, accuracy):
        findings = [
            make.finding("demographic_parity_difference", difference),
            make.finding("accuracy", accuracy, sensitive=None, better="higher"),
        ]
        signed = certify(model(factor), findings, verdict=None)
        return registry.add("credit", model(factor), certificates=[signed])

    policy = replace(policy, rules=(RULE | {"max": 0.9},))
    add(1, 0.05, 0.80)
    add(2, 0.055, 0.70)
    add(3, 0.20, 0.90)
    wanted = replace(policy, no_worse=("demographic_parity_difference:sex",))
    registry.set_alias("credit", "production", wanted)
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"
    assert (
        "demographic_parity_difference:sex goes from 0.05 to 0.2"
        in texts(evaluate(registry, "credit@3", "production", now=NOW))[0]
    )
    assert evaluate(registry, "credit@2", "production", now=NOW).verdict == "pass"
    registry.set_alias("credit", "production", replace(policy, no_worse=("all",)))
    assert texts(evaluate(registry, "credit@2", "production", now=NOW))[0].startswith(
        "significantly worse than credit@1"
    )
    assert "accuracy goes" in texts(evaluate(registry, "credit@2", "production", now=NOW))[0]
    registry.set_alias("credit", "production", replace(policy, no_worse=("roc_auc",)))
    assert "no finding 'roc_auc'" in texts(evaluate(registry, "credit@2", "production", now=NOW))[0]
    # the holder itself may always be promoted again
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"


def test_a_finding_that_is_gone_cannot_be_compared_and_other_data_are_noted(registry, model, certify, policy, make):
    elsewhere = make.table(name="x", sha256="e" * 64)
    both = [make.finding("demographic_parity_difference", 0.05), make.finding("accuracy_difference", 0.1)]
    registry.add("credit", model(1), certificates=[certify(model(1), both)])
    registry.add("credit", model(2), certificates=[certify(model(2), data=elsewhere)])
    registry.set_alias("credit", "production", replace(policy, no_worse=("all",)))
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"
    decision = promote(registry, "credit@2", "production", now=NOW)
    assert decision.verdict == "inconclusive"
    assert "accuracy_difference:sex of credit@1 cannot be compared" in texts(decision, "inconclusive")[0]
    assert "on different data" in texts(decision, "note")[0]


def test_a_holder_without_a_certificate_cannot_be_compared_with(registry, model, certify, policy):
    registry.add("credit", model(1))
    registry.add("credit", model(2), certificates=[certify(model(2))])
    registry.set_alias("credit", "production", AliasPolicy(open=True))
    assert promote(registry, "credit@1", "production").verdict == "pass"
    registry.set_alias("credit", "production", replace(policy, no_worse=("all",)))
    decision = promote(registry, "credit@2", "production", now=NOW)
    assert decision.verdict == "inconclusive"
    assert "no valid certificate to compare with" in decision.reasons[0].text


class Veto(PromotionCheck):
    name = "veto"

    def check(self, promotion):
        assert promotion.model_path.read_bytes()
        yield Remark(text=f"not {promotion.name}@{promotion.version} to {promotion.alias}")
        yield Remark(text="by the way", veto=False)


class Broken(PromotionCheck):
    name = "broken"

    def check(self, promotion):
        raise KeyError("oops")


class Quiet(PromotionCheck):
    name = "quiet"

    def check(self, promotion):
        return None


def install(monkeypatch, *classes, failures=()):
    plugin = Plugin(PluginInfo("x", "x", "x-dist", "1"), None, promotion_checks=classes)
    monkeypatch.setattr(plugins, "third_party", lambda: ([plugin], list(failures)))


def test_plugins_may_veto_and_note(registry, model, monkeypatch):
    install(monkeypatch, Veto, Quiet)
    registry.add("credit", model())
    registry.set_alias("credit", "dev", AliasPolicy(open=True))
    decision = promote(registry, "credit@1", "dev")
    assert texts(decision) == ["veto: not credit@1 to dev"]
    assert texts(decision, "note") == ["veto: by the way"]
    assert registry.alias("credit", "dev").version is None


def test_a_check_that_breaks_is_a_veto_and_a_plugin_that_does_not_load_is_a_note(registry, model, monkeypatch):
    install(monkeypatch, Broken, failures=["the plugin 'y' does not load"])
    registry.add("credit", model())
    registry.set_alias("credit", "dev", AliasPolicy(open=True))
    decision = promote(registry, "credit@1", "dev")
    assert "the check broke (KeyError: 'oops')" in texts(decision)[0]
    assert "does not load" in texts(decision, "note")[0]


def test_an_alias_can_insist_on_a_check(registry, model, monkeypatch):
    install(monkeypatch, Quiet)
    registry.add("credit", model())
    registry.set_alias("credit", "dev", AliasPolicy(open=True, checks=("quiet",)))
    assert promote(registry, "credit@1", "dev").verdict == "pass"
    registry.set_alias("credit", "dev", AliasPolicy(open=True, checks=("four-eyes",)))
    assert "asks for the check 'four-eyes'" in texts(promote(registry, "credit@1", "dev"))[0]


def test_a_policy_that_changes_while_it_is_decided_is_held_against_again(registry, model, certify, policy, monkeypatch):
    registry.add("credit", model(), certificates=[certify(model())])
    registry.set_alias("credit", "production", policy)

    class Meddler(PromotionCheck):
        name = "meddler"
        done = False

        def check(self, promotion):
            if not Meddler.done:
                Meddler.done = True
                registry.set_alias("credit", "production", replace(policy, max_age_days=1))
            return ()

    install(monkeypatch, Meddler)
    assert "too old" in texts(promote(registry, "credit@1", "production", now=NOW))[0]
    assert registry.alias("credit", "production").version is None


def test_a_plugin_is_found_by_its_entry_point(registry, model, tmp_path, monkeypatch):
    """The door that everybody's plugins come through: an installed distribution, with nothing replaced."""
    (tmp_path / "four_eyes.py").write_text(
        "import fairkit\n"
        "class FourEyes(fairkit.PromotionCheck):\n"
        "    name = 'four-eyes'\n"
        "    def check(self, promotion):\n"
        "        if promotion.alias == 'production' and len(promotion.keyids) < 2:\n"
        "            yield fairkit.Remark(text='two people must sign')\n"
        "@fairkit.hookimpl\n"
        "def fairkit_promotion_checks():\n"
        "    return [FourEyes]\n"
    )
    info = tmp_path / "four_eyes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: four-eyes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fairkit]\nfour-eyes = four_eyes\n")
    monkeypatch.syspath_prepend(tmp_path)
    row = next(row for row in plugins.explain_all() if row.found.name == "four-eyes")
    assert (row.kinds, row.reason) == (("promotion check",), None)
    registry.add("credit", model())
    registry.set_alias("credit", "production", AliasPolicy(open=True, checks=("four-eyes",)))
    decision = promote(registry, "credit@1", "production")
    assert "four-eyes: two people must sign" in texts(decision)


def test_two_signatures_satisfy_four_eyes(registry, model, certify, signer, stranger, monkeypatch):
    seen = []

    class Count(PromotionCheck):
        name = "count"

        def check(self, promotion):
            seen.append((set(promotion.keyids), promotion.report.verdict, promotion.holder))
            return ()

    install(monkeypatch, Count)
    both = certify(model(), by=[signer.secret, stranger.secret])
    registry.add("credit", model(), certificates=[both])
    registry.set_alias("credit", "production", AliasPolicy(keys=(signer.public.pem, stranger.public.pem)))
    assert promote(registry, "credit@1", "production", now=NOW).verdict == "pass"
    assert seen == [({signer.public.keyid, stranger.public.keyid}, "pass", None)]


def test_a_newer_audit_that_arrives_while_it_is_decided_decides(registry, model, certify, policy, make, monkeypatch):
    registry.add("credit", model(), certificates=[certify(model())])
    registry.set_alias("credit", "production", replace(policy, rules=(RULE,)))
    later = certify(model(), [make.finding("demographic_parity_difference", 0.4)], at=NOW - timedelta(hours=1))

    class Meddler(PromotionCheck):
        name = "meddler"

        def check(self, promotion):
            registry.attach("credit@1", [later])
            return ()

    install(monkeypatch, Meddler)
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert "demographic_parity_difference for sex is 0.4" in texts(decision)[0]
    assert registry.alias("credit", "production").version is None


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_no_calendar_holds_is_refused(registry, model, certify, policy, signer, tmp_path, time):
    good = json.loads(certify(model()).read_bytes())
    payload = base64.b64decode(good["payload"]).replace(b"2026-01-02T03:04:05Z", time.encode())
    forged = tmp_path / "forged.json"
    forged.write_bytes(dsse.sign(payload, PAYLOAD_TYPE, [signer.secret]).to_bytes())
    with pytest.raises(CertificateError, match="a time in it is none"):
        registry.add("credit", model(), certificates=[forged])


def test_the_file_of_a_bad_certificate_that_is_taken_away_does_not_make_the_good_one_decide(
    registry, model, certify, policy, make
):
    good = certify(model(), at=NOW - timedelta(days=5))
    bad = certify(model(), [make.finding("demographic_parity_difference", 0.4)], at=NOW - timedelta(days=1))
    version = registry.add("credit", model(), certificates=[good, bad])
    registry.set_alias("credit", "production", policy)
    for digest in version.certificates:
        if registry.certificate(digest) == bad.read_bytes():
            registry.blobs.path(digest).unlink()
    decision = promote(registry, "credit@1", "production", now=NOW)
    assert decision.verdict == "fail"
    assert "cannot be read" in texts(decision)[0]


# How a metric is compared with that of the version before.
def test_two_symmetric_intervals_add_in_squares(make):
    before, after = make.finding("m", 0.5, 0.03), make.finding("m", 0.6, 0.04)
    assert difference_interval(before, after, 0.95) == pytest.approx((0.05, 0.15))
    # at another confidence, by the ratio of normal quantiles: 1.6449 / 1.9600
    low, high = difference_interval(before, after, 0.90)
    assert (high - low) / 2 == pytest.approx(0.05 * 1.6448536 / 1.9599640)


def test_lopsided_intervals_use_the_near_bounds(make):
    before = make.finding("m", 0.0, interval=(0.0, 0.02))
    after = make.finding("m", 0.1, interval=(0.07, 0.2))
    assert difference_interval(before, after, 0.95) == pytest.approx(
        (0.1 - math.hypot(0.03, 0.02), 0.1 + math.hypot(0.1, 0.0))
    )


def test_the_interval_covers_the_difference_of_two_independent_rates(make):
    rng = np.random.default_rng(5)
    n, p, q, z, covered, rounds = 400, 0.3, 0.35, 1.959964, 0, 2000
    for a, b in zip(rng.binomial(n, p, rounds) / n, rng.binomial(n, q, rounds) / n, strict=True):
        one = make.finding("m", a, z * math.sqrt(a * (1 - a) / n))
        other = make.finding("m", b, z * math.sqrt(b * (1 - b) / n))
        low, high = difference_interval(one, other, 0.95)
        covered += low <= q - p <= high
    assert 0.935 <= covered / rounds <= 0.965


@pytest.mark.parametrize(
    ("before", "after", "better", "is_worse"),
    [
        (0.5, 0.6, "lower", True),
        (0.5, 0.6, "higher", False),
        (0.5, 0.4, "lower", False),
        (0.5, 0.4, "higher", True),
        (0.5, 0.4, "none", False),
        (0.5, 0.505, "lower", False),
    ],
)
def test_what_is_significantly_worse_is_named(make, model, before, after, better, is_worse):
    sides = [make.report(model(), [make.finding("m", value, better=better)]) for value in (before, after)]
    worse, unknown = worse_findings(*sides)
    assert [one.title for one in worse] == ["m:sex"] * is_worse
    assert unknown == []


def test_findings_pair_by_auditor_metric_column_and_parameters(make, model):
    one = make.report(model(), [make.finding("m", 0.1), make.finding("gap", 0.2, parameters={"epsilon": 0.1})])
    other = make.report(model(), [make.finding("gap", 0.9, parameters={"epsilon": 0.5}), make.finding("m", 0.1)])
    worse, unknown = worse_findings(one, other)
    assert worse == []
    assert [(pair.title, pair.before, pair.after) for pair in unknown] == [("gap:sex", 0.2, None)]


@pytest.mark.long
def test_many_comparisons_of_equal_models_seldom_name_anything(make, model):
    """Without care for their number, 20 comparisons name something in about half of all cases."""
    rng = np.random.default_rng(1)
    alarms = 0
    rounds, half = 300, 1.959964 * 0.01
    for _ in range(rounds):
        sides = [
            make.report(
                model(), [make.finding(f"m{k}", value, half) for k, value in enumerate(rng.normal(0.5, 0.01, 20))]
            )
            for _ in range(2)
        ]
        alarms += bool(worse_findings(*sides)[0])
    assert alarms / rounds <= 0.06  # one direction of two: about .025 is expected


def test_what_cannot_be_compared_any_more_is_told(make, model):
    before = make.report(model(), [make.finding("m", 0.1), make.finding("n", 0.1, interval=None)])
    after = make.report(model(), [make.finding("n", 0.9, interval=None)])
    worse, unknown = worse_findings(before, after)
    assert worse == []
    assert [pair.title for pair in unknown] == ["m:sex"]
    assert [pair.title for pair in worse_findings(before, after, ["n"])[1]] == ["n:sex"]
