"""Aliases on probation: what keeps them, what ends them, and how somebody would cheat."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pytest

from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.evidence.attestations import sign_attestation
from fairkit_registry.evidence.heartbeats import sign_heartbeat
from fairkit_registry.policies import AliasPolicy
from fairkit_registry.promotion.demotion import settle_probation
from fairkit_registry.promotion.probation import take_evidence
from fairkit_registry.promotion.run import evaluate, promote
from fairkit_registry.store import events
from fairkit_registry.store.maintenance import check

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULE = {"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.1}


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test turns: the registry's only one."""
    state = SimpleNamespace(now=START)

    def to(days: float) -> None:
        state.now = START + timedelta(days=days)

    monkeypatch.setattr(events, "now", lambda: state.now.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
    state.to = to
    return state


@pytest.fixture
def story(registry, model, certify, signer, tmp_path, clock):
    """A version promoted on 1 March to an alias on probation for ten days, and whoever watches it."""
    watcher = signer

    class Story:
        sha256 = hashlib.sha256(model().read_bytes()).hexdigest()
        policy = AliasPolicy(keys=(signer.public.pem,), rules=(RULE,), probation_days=10)
        lines: list[bytes]

        def __init__(self):
            self.lines = []

        def promote(self, factor=1.0, version=1):
            registry.add("credit", model(factor), certificates=[certify(model(factor))])
            if registry.alias("credit", "production") is None:
                registry.set_alias("credit", "production", self.policy)
            decision = promote(registry, f"credit@{version}", "production", now=clock.now)
            assert decision.verdict == "pass", decision.reasons
            return decision

        def line(self, day, *, verdict="pass", by=None, lines=None, sha256=None, since=None, rules=None):
            """Sign a statement for a day, after those before it."""
            lines = self.lines if lines is None else lines
            previous = hashlib.sha256(lines[-1]).hexdigest() if lines else None
            body = {
                "since": since or START.date().isoformat(),
                "rows": 100,
                "rules": [RULE | {"verdict": verdict}] if rules is None else rules,
            }
            of = (START.date() + timedelta(days=day)).isoformat()
            subject = ("credit@1", sha256 or self.sha256)
            lines.append(sign_heartbeat(of, subject, body, previous, [by or watcher.secret]))
            return lines

        def statements(self, lines=None):
            path = tmp_path / "heartbeats.jsonl"
            path.write_bytes(b"".join(one + b"\n" for one in (self.lines if lines is None else lines)))
            return take_evidence(registry, "credit", "production", [("watch", path)])

        def attest(self, *, differ=0, by=None, at=None, sha256=None, rows=50):
            digest = sha256 or self.sha256
            record = {"model_sha256": digest, "differ": differ, "matches": differ == 0, "rows": rows}
            comparison = SimpleNamespace(model_name="m", model_sha256=digest, to_dict=lambda: record)
            path = tmp_path / "attestation.json"
            path.write_bytes(sign_attestation(comparison, [by or watcher.secret], attested_at=at or clock.now))
            return take_evidence(registry, "credit", "production", [("attestation", path)])

        def day(self, number, **changes):
            """A day on which everything arrives."""
            clock.to(number)
            self.line(number, **changes)
            self.attest()
            return self.statements()

        def state(self):
            return registry.probation(registry.alias("credit", "production"))

    return Story()


def test_ten_days_of_statements_and_attestations_keep_an_alias(story, registry, clock):
    decision = story.promote()
    assert any("on probation for 10 days" in one.text for one in decision.reasons)
    assert story.state().state == "running"
    assert "no statement yet, the next by 2026-03-08" in story.state().reason
    for number in (3, 7, 9):
        assert story.day(number).state == "running"
    assert registry.version("credit@production").version == 1
    assert story.day(10).state == "kept"
    clock.to(400)  # nothing more is asked for
    assert story.state().state == "kept"
    assert registry.version("credit@production").version == 1
    assert check(registry).problems == ()


@pytest.mark.parametrize(
    ("statements", "attestations", "fell", "said"),
    [
        ((), (), 8, "no signed statement of a watch"),
        ((3, 6), (), 8, "no signed attestation"),
        ((), (3, 6), 8, "no signed statement of a watch"),
        ((1,), (1, 6, 12), 9, "no signed statement of a watch over its decisions (the last: 2026-03-02)"),
        ((1, 6, 9), (1,), 9, "no signed attestation that its endpoint serves this file (the last: 2026-03-02)"),
        ((2, 9), (2, 9), 17, "no signed statement"),
    ],
)
def test_silence_ends_it_by_itself(story, registry, clock, statements, attestations, fell, said):
    story.promote()
    for number in sorted({*statements, *attestations, fell - 0.6}):
        clock.to(number)
        if number == fell - 0.6:
            assert registry.version("credit@production").version == 1
        if number in statements:
            story.line(number)
            story.statements()
        if number in attestations:
            story.attest()
    clock.to(max(fell, *statements, *attestations, 0))
    state = story.state()
    assert (state.state, state.day) == ("fallen", START.date() + timedelta(days=fell))
    assert said in state.reason
    for use in (registry.version, lambda name: registry.version(f"{name}")):
        with pytest.raises(RegistryError, match="means nothing since"):
            use("credit@production")
    assert registry.version("credit@1").version == 1  # the version itself stays
    clock.to(fell + 30)  # what comes too late changes nothing
    story.line(fell + 30)
    story.statements()
    story.attest()
    assert (story.state().state, story.state().day) == ("fallen", START.date() + timedelta(days=fell))


def test_a_broken_limit_ends_it_and_a_later_pass_does_not_bring_it_back(story, registry, clock):
    story.promote()
    story.day(2)
    assert story.day(4, verdict="fail").state == "fallen"
    assert "broke the limit on demographic_parity_difference:sex" in story.state().reason
    story.day(5)
    story.day(10)
    assert story.state().state == "fallen"
    with pytest.raises(RegistryError, match="means nothing"):
        registry.version("credit@production")
    decision = promote(registry, "credit@1", "production", now=clock.now)
    assert decision.verdict == "fail"
    assert "which ended on 2026-03-05" in decision.reasons[0].text


def test_an_endpoint_that_answers_otherwise_ends_it(story):
    story.promote()
    story.day(2)
    assert story.attest(differ=1).state == "fallen"


def test_days_that_decide_nothing_do_not_keep_it(story):
    story.promote()
    story.day(5, verdict="undecided")
    state = story.day(10, verdict="undecided")
    assert state.state == "fallen"
    assert "do not decide the limit" in state.reason


def test_promoting_again_or_another_version_between_does_not_begin_anew(story, registry, clock):
    story.promote()
    clock.to(6)
    assert promote(registry, "credit@1", "production", now=clock.now).verdict == "pass"
    story.promote(2.0, version=2)
    assert promote(registry, "credit@1", "production", now=clock.now).verdict == "pass"
    clock.to(8)
    assert story.state().state == "fallen"
    # a copy of the same file is the same model
    registry.add("credit", registry.model_path(registry.version("credit@1")))
    assert evaluate(registry, "credit@3", "production", now=clock.now).verdict == "fail"


def test_a_fallen_version_is_taken_back_with_a_line_in_the_log(story, registry, clock):
    story.promote(3.0)
    assert settle_probation(registry, "credit", "production") is None
    registry.set_alias("credit", "production", replace(story.policy, probation_days=None))
    registry.set_alias("credit", "production", story.policy)
    clock.to(5)
    story.promote(version=2)
    clock.to(13)
    assert settle_probation(registry, "credit", "production").now is None  # the first has fallen, too
    event = registry.log("credit")[0]
    assert event.action == "demote"
    assert event.body["evidence"]["probation"]["state"] == "fallen"
    assert check(registry).problems == ()


def test_an_alias_that_asks_later_begins_then(story, registry, clock):
    policy, story.policy = story.policy, replace(story.policy, probation_days=None)
    story.promote()
    assert story.state() is None
    clock.to(20)
    registry.set_alias("credit", "production", policy)
    assert story.state().since == date(2026, 3, 21)
    clock.to(27)
    assert story.state().state == "running"
    clock.to(28)
    assert story.state().state == "fallen"


def test_forged_or_fitted_evidence_is_refused(story, registry, clock, stranger):
    """Eleven ways to keep a probation with statements that do not speak about these days of this file."""
    story.promote()
    clock.to(3)
    story.line(1)
    story.line(2)
    story.statements()
    good = list(story.lines)
    before = len(registry.log("credit"))
    stricter = RULE | {"max": 0.05, "verdict": "undecided"}
    attempts = {
        "not signed by a key that you trust": story.line(3, by=stranger.secret, lines=good[:]),
        "about another file": story.line(3, sha256="e" * 64, lines=good[:]),
        "before the promotion": story.line(3, since="2026-01-01", lines=[]),
        "has not come": story.line(5, lines=good[:]),
        "goes back": story.line(1, lines=good[:]),
        "does not judge demographic": story.line(3, rules=[RULE | {"max": 0.2, "verdict": "pass"}], lines=good[:]),
        "does not say which rules": story.line(3, rules=[{"metric": "x", "verdict": "pass"}], lines=good[:]),
        "missing or were replaced": good[:1],
        "does not continue": [good[0], story.line(3, lines=good[:])[2]],
        "no statement of a watch in it": [],
        "does not say its days": story.line(3, since="soon", lines=[]),
    }
    for said, lines in attempts.items():
        with pytest.raises(CertificateError, match=said):
            story.statements(lines)
    for said, changes in {
        "not signed": {"by": stranger.secret},
        "about another file": {"sha256": "e" * 64},
        "lies in the future": {"at": clock.now + timedelta(days=2)},
    }.items():
        with pytest.raises(CertificateError, match=said):
            story.attest(**changes)
    assert len(registry.log("credit")) == before
    assert story.statements(story.line(3, rules=[stricter], lines=good[:])).state == "running"


def test_a_second_watch_does_not_hide_that_the_first_fell_silent(story, clock):
    story.promote()
    story.day(2)
    fresh: list[bytes] = []
    for number in (4, 8, 9):
        clock.to(number)
        story.attest()
        story.statements(story.line(number, lines=fresh, since="2026-03-05"))
    clock.to(10)
    assert story.state().state == "fallen"


def test_an_attestation_of_before_the_promotion_or_of_no_rows_counts_for_nothing(story, clock):
    story.promote()
    clock.to(7)
    story.line(7)
    story.statements()
    story.attest(at=START - timedelta(days=1))
    clock.to(8)
    assert "no signed attestation" in story.state().reason
    assert story.attest(rows=0).state == "fallen"


def test_only_the_keys_of_the_watch_count_where_the_alias_names_them(story, registry, clock, stranger):
    story.policy = replace(story.policy, watch_keys=(stranger.public.pem,))
    story.promote()
    clock.to(2)
    story.line(2)
    with pytest.raises(CertificateError, match="not signed"):
        story.statements()
    assert story.statements(story.line(2, by=stranger.secret, lines=[])).state == "running"
    assert AliasPolicy.from_dict(story.policy.to_dict()) == story.policy


def test_a_revoked_watcher_has_said_nothing(story, registry, clock, signer):
    from fairkit_registry.evidence.revocations import Entry, issue

    story.promote()
    story.day(5)
    clock.to(9)
    assert story.state().state == "running"
    entry = Entry(kind="key", sha256=signer.public.keyid, at=clock.now, reason="lost")
    raw = issue(signer.secret, [entry], previous=None, next_update=clock.now + timedelta(days=30))
    registry.revoke([("list", raw)], [signer.public])
    assert story.state().state == "fallen"


def test_evidence_that_was_changed_in_the_store_is_no_state(story, registry, clock):
    story.promote()
    story.day(2)
    digest = next(one.body["file"] for one in registry.log("credit") if one.action == "served")
    path = registry.blobs.path(digest)
    path.chmod(0o600)
    path.write_bytes(b"{}")
    with pytest.raises(RegistryError):
        registry.version("credit@production")
    assert check(registry).problems


def test_a_clock_that_is_turned_back_brings_nothing_back(story, registry, clock, model):
    """The log's own times count where the clock lies behind them: what fell stays, and nothing arrives before it."""
    story.promote()
    clock.to(8)
    assert story.state().state == "fallen"
    registry.add("other", model(7.0))  # any event of that day
    clock.to(5)
    assert story.state().state == "fallen"
    story.line(5)
    story.attest(at=clock.now)
    assert story.statements().state == "fallen"
    clock.to(9)
    assert story.state().state == "fallen"
    times = [one.at for one in registry.log() if one.action == "served"]
    assert min(times) >= (START + timedelta(days=8)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_a_promotion_with_a_clock_that_was_turned_back_begins_no_earlier(story, registry, clock, model):
    clock.to(20)
    registry.add("credit", model())
    clock.to(0)
    story.policy = replace(story.policy, rules=())
    registry.set_alias("credit", "production", replace(story.policy, keys=(), watch_keys=story.policy.keys, open=True))
    assert promote(registry, "credit@1", "production", now=clock.now).verdict == "pass"
    assert story.state().since == (START + timedelta(days=20)).date()


def test_an_attestation_of_another_file_or_of_another_kind_is_none(story, clock):
    story.promote()
    clock.to(2)
    story.line(1)
    with pytest.raises(CertificateError, match="about another file"):
        story.attest(sha256="f" * 64)
    path_of_watch = story.statements  # a watch's statements are no attestation
    assert path_of_watch().state == "running"
    clock.to(8)
    assert "no signed attestation" in story.state().reason
