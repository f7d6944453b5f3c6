"""Dated packs under a fake clock: every boundary of every clause, what a page says, what `--strict` lets pass."""

from __future__ import annotations

import datetime
import json
import socket
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import fairkit
import fairkit_laws
from fairkit_cli.text.packs import complete as all_answered
from fairkit_cli.text.packs import convention, flags_of, pack_record
from fairkit_laws.files import RefusedError, render
from fairkit_laws.files import read as read_pack
from fairkit_laws.impact import Context, NotAnsweredError, categories, selection_rates

if TYPE_CHECKING:
    from fairkit.packs import PackFile, Rendering

DAY = datetime.timedelta(days=1)
PACKS = {cls.name: read_pack(cls.name, cls.text()) for cls in fairkit_laws.fairkit_packs()}


def day(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)


@pytest.fixture(scope="module")
def report() -> fairkit.Report:
    data = fairkit.load_data(
        pa.table({"sex": ["Male", "Female"] * 50, "chosen": [1, 0, 1, 1] * 25}),
        sensitive=["sex"], reference=["sex=Male"], predictions={"decision": "chosen"},
    )  # fmt: skip
    return fairkit.audit(None, data)


def rendered(
    pack: PackFile, report: fairkit.Report, audited: str | None, today: str, accepted: dict[str, str] | None = None
) -> Rendering:
    signed = {"sha256": "a" * 64, "audited_at": f"{audited}T12:00:00Z", "keyids": ["k"]} if audited else {}
    return render(pack, report, {}, signed, today=day(today), accepted=accepted)


def severities(made: Rendering, clause: str) -> set[str]:
    (one,) = [one for one in made.items if one.item.clause == clause]
    return {flag.severity for flag in one.flags}


def states(made: Rendering, clause: str) -> str:
    (one,) = [one for one in made.items if one.item.clause == clause]
    return one.law["states"][-1]


EFFECTS = "12 CFR 1002.6(a), comment 2 (ended)"


def test_the_effects_test_ends_on_its_day(report: fairkit.Report):
    pack = PACKS["ecoa"]
    made = rendered(pack, report, "2026-05-01", "2026-11-23")
    assert states(made, EFFECTS) == "2026-05-01: applied. Today (2026-11-23): repealed 2026-07-21."
    assert severities(made, EFFECTS) == {"red", "grey"}
    for audited, today, red in (
        ("2026-07-20", "2026-07-20", False),
        ("2026-07-20", "2026-07-21", True),
        ("2026-07-21", "2026-07-21", False),  # nothing rests on it, and it held on neither day: history
    ):
        made = rendered(pack, report, audited, today)
        assert ("red" in severities(made, EFFECTS)) == red
        assert ("amber" in severities(made, "12 CFR 1002.6(a)")) == (audited == "2026-07-20")
    assert pack.to_dict()["edition"] == "2026-11-23"


def test_a_kept_edition_renders_an_old_audit_as_then_and_refuses_a_new_one(report: fairkit.Report):
    pack = PACKS["ecoa@2026-07-20"]
    clause = "Disparate impact: 12 CFR 1002.6(a), comment 2"
    for today in ("2026-07-20", "2026-07-21", "2030-01-01"):
        made = rendered(pack, report, "2026-07-20", today)
        assert severities(made, clause) == {"grey"}
        (one,) = [one for one in made.items if one.item.clause == clause]
        assert one.tables
        assert not convention(one)
    assert states(made, clause).endswith("repealed 2026-07-21.")
    with pytest.raises(
        RefusedError, match="is for audits until 2026-07-20, and this one is of 2026-07-21: use `pack=ecoa`"
    ):
        rendered(pack, report, "2026-07-21", "2026-11-23")
    with pytest.raises(RefusedError, match="nobody has signed"):
        rendered(pack, report, None, "2026-11-23")


@pytest.mark.parametrize(
    ("name", "clause", "first"),
    [
        ("eu-ai-act", "Annex IV 2(g)", "2027-12-02"),
        ("eu-ai-act", "Article 4a", "2027-12-02"),
        ("california-ads", "2 CCR 11009(f)", "2025-10-01"),
        ("new-jersey", "N.J.A.C. 13:16-2.2(a)", "2025-12-15"),
        ("colorado-admt", "C.R.S. 6-1-1704", "2027-01-01"),
        ("colorado-insurance", "Regulation 10-1-1, section 5", "2025-10-15"),
        ("illinois", "775 ILCS 5/2-102(L)(1)", "2026-01-01"),
        ("sr-26-2", "SR 26-2, VI", "2026-04-17"),
        ("nyc-ll144", "5-301(d)", "2023-07-05"),
        ("ecoa", "12 CFR 1002.6(a)", "2026-07-21"),
    ],
)
def test_a_clause_applies_from_its_day(name: str, clause: str, first: str, report: fairkit.Report):
    before = str(day(first) - DAY)
    early, late = (rendered(PACKS[name], report, one, one) for one in (before, first))
    assert "amber" in severities(early, clause)
    assert f"applies from {first}" in states(early, clause)
    (one,) = [one for one in late.items if one.item.clause == clause]
    assert not [flag for flag in one.flags if flag.severity == "amber" and "checked" not in flag.text]
    assert states(late, clause) == f"{first}: applied. Today ({first}): applies."


def test_every_boundary_of_every_clause(report: fairkit.Report):
    """Walk the clock over each date that a clause names, a day before and a day after, against a second reading."""
    seen = 0
    for pack in PACKS.values():
        for item in pack.items:
            law = item.validity
            dates = [one for one in (law.begins, law.ends, law.applies_from, law.recheck_by) if one is not None]
            for at in [one + step * DAY for one in dates for step in (-1, 0, 1)]:
                begun = all(first is None or first <= at for first in (law.begins, law.applies_from))
                over = law.ends is not None and law.ends < at
                plain = law.status not in ("stayed", "proposed", "withdrawn")
                made_up = law.binding in ("own", "practice")
                assert (law.on(at) == "applies") == (made_up or (begun and not over and plain)), (item.clause, at)
                seen += 1
        for today in {item.validity.recheck_by for item in pack.items}:
            audited = str(pack.kept_until or today)
            on_time, late = (rendered(pack, report, audited, str(one)) for one in (today, today + DAY))
            overdue = [sum("to be checked again by" in f.text for f in flags_of(made)) for made in (on_time, late)]
            assert overdue[0] < overdue[1] or pack.kept_until is not None
            assert not (overdue[1] and all_answered(late))
    assert seen > 300


def test_amber_passes_where_its_state_is_accepted_and_grey_by_a_name(report: fairkit.Report):
    text = """
title = "T"
law = "L"
source = "https://example.org"
checked = 2026-01-01
notice = "No legal advice."
status = "STATUS"
mark = "MARK"
sources = [{ citation = "L 1", address = "https://example.org/1" }]
DATES
[[items]]
clause = "1"
title = "One"
table = "unknown"
"""

    def complete(status: str, mark: str, dates: str = "", today: str = "2026-01-01", **accepted: object) -> bool:
        pack = read_pack("mine", text.replace("STATUS", status).replace("MARK", mark).replace("DATES", dates))
        return all_answered(rendered(pack, report, "2026-01-01", today, accepted))

    assert complete("in_force", "O")
    assert not complete("in_force", "O", today="2026-04-02")  # overdue: no acceptance helps
    assert not complete("in_force", "O", today="2026-04-02", later="", unread="J. Doe")
    assert not complete("in_force", "S2")
    assert complete("in_force", "S2", unread="J. Doe")
    for state in ("stayed", "proposed"):
        assert not complete(state, "O")
        assert not complete(state, "O", adopted="")
        assert complete(state, "O", **{state: ""})
    later = "in_force = { from = 2026-02-01 }"
    assert not complete("in_force", "O", later)
    assert complete("in_force", "O", later, later="")
    assert complete("adopted", "O", later, adopted="")
    everything = {"later": "", "adopted": "", "stayed": "", "proposed": "", "unread": "J. Doe"}
    assert not complete("withdrawn", "O", **everything)
    assert not complete("repealed", "O", "in_force = { to = 2025-12-31 }", **everything)


def test_the_page_names_what_was_accepted(report: fairkit.Report):
    made = rendered(
        PACKS["eu-ai-act"], report, "2026-11-23", "2026-11-23",
        {"later": "", "unread": "J. Doe"},
    )  # fmt: skip
    assert all(flag.accepted for flag in flags_of(made))
    assert made.notes == (
        "Accepted although later: 27 clauses that do not apply yet.",
        "Accepted by J. Doe: 1 clauses that were not compared with the official text.",
    )


def test_a_pack_without_the_new_keys_has_an_unknown_status_and_never_passes(report: fairkit.Report):
    old = 'title = "T"\nlaw = "L"\nsource = "https://example.org"\nchecked = 2026-01-01\nnotice = "No advice."\n'
    pack = read_pack("mine", f'{old}[[items]]\nclause = "1"\ntitle = "One"\ntable = "groups"\n')
    made = rendered(pack, report, "2026-01-01", "2026-01-01", {"unread": "J. Doe"})
    assert [(flag.severity, flag.text) for flag in flags_of(made)] == [("red", "status unknown")]
    assert convention(made.items[0])
    assert made.items[0].tables  # the numbers stay
    assert not all_answered(made)


def test_every_item_of_a_release_has_its_source_mark_and_status():
    for path in Path(fairkit_laws.__file__).with_name("laws").glob("*.toml"):
        record = tomllib.loads(path.read_text("utf-8"))
        assert all("mark" in item for item in record["items"]), path  # its own, not the pack's
        assert "mark" not in record
    for name, pack in PACKS.items():
        for item in pack.items:
            law = item.validity
            where = f"{name}: {item.clause}"
            assert law.mark is not None, where
            assert law.status is not None, where
            assert law.sources, where
            assert law.checked <= law.recheck_by <= law.checked + 90 * DAY, where
            assert all(one.address.startswith("https://") for one in law.sources), where
            assert law.read_by is not None or law.mark in ("K", "N"), where
            assert law.mark != "O" or "project" not in str(law.read_by)  # only a person reads officially
            for words, number in item.thresholds.items():
                assert words in str(law.quote)
                assert (words, number) == ("four-fifths (4/5)", 0.8)
    named = {name for name, pack in PACKS.items() for item in pack.items if item.thresholds}
    assert named == {"ugesp", "california-ads"}  # no other law names a number
    assert {name for name, pack in PACKS.items() if pack.refuses} == {"nyc-ll144"}
    assert {name for name, pack in PACKS.items() if pack.age_limit} == {"nyc-ll144"}
    assert len(PACKS) == 14


def test_rendering_asks_nothing_of_the_network(report: fairkit.Report, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a rendering used the network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for name, pack in PACKS.items():
        made = rendered(pack, report, "2026-07-20", "2026-11-23")
        for one in made.items:
            sources = one.law["sources"]
            assert one.item.validity.binding == "own" or any(line.startswith("Source: ") for line in sources)
        record = pack_record(made, "Signed.")
        assert json.loads(json.dumps(record)) == json.loads(json.dumps(record, default=repr))
        assert record["pack"]["sha256"] == pack.sha256
        written = "2026-11-27" if name in ("texas", "uk") else "2026-11-23"
        assert record["pack"]["edition"] == ("2026-07-20" if "@" in name else written)
        assert len(record["items"]) == len(pack.items)


def test_new_york_refuses_groups_that_are_only_probable(report: fairkit.Report):
    p = [0.2, 0.8] * 50
    data = fairkit.load_data(
        pa.table({"a_w": p, "a_b": [1 - one for one in p], "chosen": [1, 0, 0, 1] * 25}),
        sensitive_probability=["race=a_w,a_b"], predictions={"decision": "chosen"},
    )  # fmt: skip
    guessed = fairkit.audit(None, data)
    assert Context(report=guessed).probable == ("race",)
    assert Context(report=report).probable == ()
    with pytest.raises(RefusedError, match=r"groups of race are only probable, and imputed or inferred data"):
        rendered(PACKS["nyc-ll144"], guessed, "2026-11-23", "2026-11-23")
    settings = {"data": {"sensitive_probability": ["race=a_w,a_b"]}}
    signed = {"sha256": "a" * 64, "audited_at": "2026-11-23T00:00:00Z", "keyids": [], "settings": settings}
    with pytest.raises(RefusedError):  # an auditor without such findings does not hide it
        render(PACKS["nyc-ll144"], report, {}, signed, today=day("2026-11-23"))
    rendered(PACKS["ecoa"], guessed, "2026-11-23", "2026-11-23")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"sex": ["male", "Female"], "race": ["White (Not Hispanic or Latino)", "asian"]}, None),
        ({"sex": ["M", "F"], "race": ["White", "Asian"]}, "does not have: sex F, sex M"),
        ({"sex": ["Male", "Female"], "race": ["White", "Other"]}, "does not have: race Other"),
        ({"sex": ["Male", "Female"]}, "no column has the categories of race/ethnicity"),
        ({"race": ["American Indian or Alaska Native", "Two or More Races"]}, "the categories of sex"),
    ],
)
def test_labels_of_the_eeo_report(columns: dict[str, list[str]], said: str | None):
    table = {name: values * 20 for name, values in columns.items()}
    data = fairkit.load_data(
        pa.table({**table, "chosen": [0, 1, 1, 1] * 10}), sensitive=[*columns], predictions={"decision": "chosen"}
    )
    made = fairkit.audit(None, data)
    if said is None:
        assert len(categories(Context(report=made))[0].rows) == 4
        return
    with pytest.raises(NotAnsweredError, match=said):
        categories(Context(report=made))
    assert categories(Context(report=made, facts={"category_labels": "as in the form"}))


def test_a_tool_that_puts_people_into_groups_has_a_table_for_each():
    label = ["coach", "driver", "thinker"]
    style = [label[i % 3] if i % 5 else label[0] for i in range(120)]
    sex = ["Male", "Female"] * 60
    data = fairkit.load_data(
        pa.table({"sex": sex, "style": style, "y": style}),
        label="y", sensitive=["sex"], predictions={"class": "style"},
    )  # fmt: skip
    made = fairkit.audit(None, data)
    found = selection_rates(Context(report=made))
    assert [one.title for one in found] == [f"sex, put into {one}" for one in label]
    for table, name in zip(found, label, strict=True):
        rows = {row[0]: row for row in table.rows}
        for group in ("Male", "Female"):
            count = sum(one == name for one, who in zip(style, sex, strict=True) if who == group)
            assert rows[group][1:4] == (60, count, pytest.approx(count / 60))
