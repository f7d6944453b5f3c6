"""The numbers of the laws against scipy, published examples and hand-made counts."""

from __future__ import annotations

import dataclasses
import datetime
import itertools

import numpy as np
import pyarrow as pa
import pytest

import fairkit
from fairkit_laws import fairkit_packs
from fairkit_laws.files import PackError, read_facts, render
from fairkit_laws.files import read as read_pack
from fairkit_laws.impact import (
    MOST_BOSCHLOO,
    Context,
    NotAnsweredError,
    adverse_impact,
    deviations,
    exact_tests,
    more_selections,
    ratio_interval,
    selection_rates,
    unknown,
    within_bands,
)
from fairkit_laws.technical import alternatives

PACKS = {cls.name: read_pack(cls.name, cls.text()) for cls in fairkit_packs()}
UCB = {"male": (1198, 2691), "female": (557, 1835)}
"""UC Berkeley, 1973, the six largest departments (Bickel, Hammel & O'Connell 1975): admitted, applied."""


def built_in():
    """The packs of fairkit by name."""
    return {cls.name: read_pack(cls.name, cls.text()) for cls in fairkit_packs()}


def table(counts: dict[str, tuple[int, int]], column: str = "group", unknown: int = 0) -> pa.Table:
    """A table of decisions: selected and all, by group."""
    groups: list[str | None] = []
    chosen: list[int] = []
    for name, (selected, rows) in counts.items():
        groups += [name] * rows
        chosen += [1] * selected + [0] * (rows - selected)
    groups += [None] * unknown
    chosen += [i % 2 for i in range(unknown)]
    return pa.table({column: pa.array(groups, pa.string()), "chosen": chosen})


def audited(counts: dict[str, tuple[int, int]], **more: int) -> fairkit.Report:
    data = fairkit.load_data(table(counts, **more), sensitive=["group"], predictions={"decision": "chosen"})
    return fairkit.audit(None, data)


def rows_of(found: list, column: str) -> dict[str, object]:
    names = [one.name for one in found[0].columns]
    return {row[0]: row[names.index(column)] for row in found[0].rows}


FOUR_FIFTHS = {"four-fifths (4/5)": 0.8}


def test_admissions_of_berkeley():
    from scipy import stats

    report = audited(UCB)
    found = adverse_impact(Context(report=report, thresholds=FOUR_FIFTHS))
    assert rows_of(found, "rate")["male"] == pytest.approx(0.445, abs=5e-4)
    assert rows_of(found, "rate")["female"] == pytest.approx(0.304, abs=5e-4)
    assert rows_of(found, "ratio")["female"] == pytest.approx(0.30354 / 0.44519, abs=1e-4)
    fisher = stats.fisher_exact([[557, 1278], [1198, 1493]])[1]
    assert rows_of(found, "Fisher p")["female"] == pytest.approx(fisher, rel=1e-9)
    chi = stats.chi2_contingency([[557, 1278], [1198, 1493]], correction=False)[0]
    assert rows_of(found, "standard deviations")["female"] == pytest.approx(-np.sqrt(chi), rel=1e-9)
    assert rows_of(found, "Boschloo p")["female"] is None  # 2691 x 1835 tables
    assert rows_of(found, "reading")["female"].startswith("below four fifths and significant")
    needed = rows_of(found, "more selections to 4/5")["female"]
    assert (557 + needed) / 1835 >= 0.8 * 1198 / 2691 > (557 + needed - 1) / 1835


@pytest.mark.parametrize("counts", [(3, 10, 8, 10), (0, 5, 4, 9), (20, 40, 30, 41), (1, 1, 7, 60)])
def test_exact_tests_are_scipys(counts: tuple[int, int, int, int]):
    from scipy import stats

    one, n, two, m = counts
    fisher, boschloo = exact_tests(*counts)
    cells = [[one, two], [n - one, m - two]]
    assert fisher == pytest.approx(stats.fisher_exact(cells)[1])
    assert boschloo == pytest.approx(stats.boschloo_exact(cells).pvalue)


def test_tests_of_many_and_of_nobody():
    assert exact_tests(0, 10, 0, 10) == (1.0, None)
    size = int(MOST_BOSCHLOO**0.5) + 1
    assert exact_tests(5, size, 5, size)[1] is None
    assert deviations(0, 10, 0, 10) is None
    assert deviations(10, 10, 10, 10) is None
    assert more_selections(8, 10, 1.0) == 0
    assert more_selections(7, 10, 1.0) == 1
    assert more_selections(0, 3, 0.0) == 0


@pytest.mark.long
def test_the_interval_of_a_ratio_covers_and_bears_zero():
    from scipy import stats

    assert ratio_interval((0.0, (0.0, 0.1)), (0.5, (0.4, 0.6)))[0] == 0.0
    assert ratio_interval((0.5, (0.4, 0.6)), (0.0, (0.0, 0.1))) is None
    assert ratio_interval((0.5, None), (0.5, (0.4, 0.6))) is None
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        a, b = rng.binomial(200, 0.4), rng.binomial(300, 0.5)
        ends = [tuple(stats.binomtest(k, n).proportion_ci(0.95, "wilson")) for k, n in ((a, 200), (b, 300))]
        low, high = ratio_interval((a / 200, ends[0]), (b / 300, ends[1]))
        hits += low <= 0.8 <= high
    assert hits >= 366  # 95 % less four standard deviations


CULTURE_FIT = {
    "sex": ({"Male": (50, 92), "Female": (34, 76)}, {"Male": (54.3, 1.00), "Female": (44.7, 0.82)}),
    "race": (
        {
            "Hispanic or Latino": (18, 28), "White": (15, 40), "Black or African American": (16, 32),
            "Native Hawaiian or Pacific Islander": (5, 8), "Asian": (10, 24),
        },
        {
            "Hispanic or Latino": (64.2, 1.00), "White": (37.5, 0.58), "Black or African American": (50.0, 0.78),
            "Native Hawaiian or Pacific Islander": (62.5, 0.97), "Asian": (41.7, 0.65),
        },
    ),
}  # fmt: skip
"""The example of 6 RCNY 5-301(d): counts of people (of those above the median, from the rate), scoring rates, ratios.

The rule prints 64.2 for 18 of 28, which is 64.29: it cuts where the others are rounded.
"""
SCREENING = {
    "sex": ({"Male": (667, 1390, "1.00"), "Female": (555, 1181, "0.979")}),
    "race": {
        "Hispanic or Latino": (204, 408, "0.97"), "White": (412, 797, "1.00"),
        "Black or African American": (170, 390, "0.84"), "Native Hawaiian or Pacific Islander": (52, 119, "0.85"),
        "Asian": (302, 616, "0.95"), "Native American or Alaska Native": (18, 41, "0.85"),
        "Two or More Races": (96, 213, "0.87"),
    },
    "intersections": {
        "Hispanic or Latino Male": (90, 205, "0.841"), "Hispanic or Latino Female": (82, 190, "0.827"),
        "White Male": (215, 412, "1.000"), "Black or African American Male": (95, 226, "0.806"),
        "Native Hawaiian or Pacific Islander Male": (37, 87, "0.815"), "Asian Male": (167, 321, "0.997"),
        "Native American or Alaska Native Male": (11, 24, "0.878"), "Two or More Races Male": (52, 115, "0.866"),
        "White Female": (197, 385, "0.981"), "Black or African American Female": (75, 164, "0.876"),
        "Native Hawaiian or Pacific Islander Female": (15, 32, "0.898"), "Asian Female": (135, 295, "0.877"),
        "Native American or Alaska Native Female": (7, 17, "0.789"), "Two or More Races Female": (44, 98, "0.860"),
    },
}  # fmt: skip
"""The example of 6 RCNY 5-301(b): selected, applicants, and the printed ratio; 250 people of unknown category."""


@pytest.mark.parametrize("name", CULTURE_FIT)
def test_the_scoring_example_of_the_rule(name: str):
    counts, printed = CULTURE_FIT[name]
    found = selection_rates(Context(report=audited(counts)))
    for group, (rate, ratio) in printed.items():
        assert 100 * rows_of(found, "selection rate")[group] == pytest.approx(rate, abs=0.1)
        assert round(rows_of(found, "impact ratio")[group], 2) == ratio


@pytest.mark.parametrize("name", SCREENING)
def test_the_selection_example_of_the_rule_to_all_printed_digits(name: str):
    printed = SCREENING[name]
    counts = {group: (selected, people) for group, (selected, people, _) in printed.items()}
    report = audited(counts, unknown=250)
    found = selection_rates(Context(report=report, options={"two_percent": True}))
    ratios = rows_of(found, "impact ratio")
    for group, (_, _, ratio) in printed.items():
        assert f"{ratios[group]:.{len(ratio) - 2}f}" == ratio, group
    assert unknown(Context(report=report))[0].rows == (("group", 250),)
    if name == "race":  # 41 of 2,834 people: left out only where the auditor says so
        assert any("Native American or Alaska Native" in note for note in found[0].notes)


CORNERS = {"many": (400, 8000), "none": (0, 800), "few": (10, 185), "one": (1, 1), "small": (3, 90)}


def test_nothing_vanishes_in_the_corners():
    report = audited(CORNERS, unknown=300)
    found = selection_rates(Context(report=report, options={"two_percent": True}))
    assert set(rows_of(found, "people").items()) == {(name, rows) for name, (_, rows) in CORNERS.items()}
    ratios = rows_of(found, "impact ratio")
    assert ratios["one"] == 1.0  # the highest rate is that of one person, and a note says so
    assert any("one, which has 1 people" in note for note in found[0].notes)
    assert ratios["none"] == 0.0
    assert ratios["many"] == pytest.approx(0.05)
    assert any(note.startswith("300 people whose group is unknown") for note in found[0].notes)
    assert any("few, one, small" in note for note in found[0].notes)  # 185 of 9,376 are 1.97 %
    assert unknown(Context(report=report))[0].rows == (("group", 300),)


def test_small_categories_are_left_out_only_with_a_justification():
    report = audited(CORNERS, unknown=300)
    with pytest.raises(NotAnsweredError, match="no justification"):
        selection_rates(Context(report=report, facts={"exclude_small_categories": True}))
    facts = {"exclude_small_categories": True, "exclusion_justification": "too few for a rate"}
    found = selection_rates(Context(report=report, facts=facts))
    ratios, rates = rows_of(found, "impact ratio"), rows_of(found, "selection rate")
    assert ratios["one"] is None
    assert rates["one"] == 1.0  # its count and rate stay
    assert ratios["many"] == 1.0
    assert ratios["none"] == 0.0
    assert any("too few for a rate" in note for note in found[0].notes)


@pytest.mark.long
def test_adverse_impact_of_the_corners():
    found = adverse_impact(Context(report=audited(CORNERS, unknown=300), thresholds=FOUR_FIFTHS))
    said = rows_of(found, "reading")
    assert said["many"] == "the group that others are compared with"  # the highest of those with at least 2 %
    assert said["one"] == "less than 2 % of the audited people: no reading"
    assert said["none"].startswith("below four fifths and significant")
    named = adverse_impact(Context(report=audited(CORNERS), facts={"reference": "group=none"}, thresholds=FOUR_FIFTHS))
    assert rows_of(named, "reading")["many"] == "the reference rate is 0: no ratio"
    plain = adverse_impact(Context(report=audited(CORNERS)))[0]
    assert "reading" not in [column.name for column in plain.columns]  # a clause without a number judges nothing
    assert all(len(row) == len(plain.columns) for row in plain.rows)
    with pytest.raises(NotAnsweredError, match="nobody"):
        adverse_impact(Context(report=audited(CORNERS), facts={"reference": "group=nobody"}))


def test_scores_count_above_the_median_only():
    rng = np.random.default_rng(0)
    score = rng.integers(0, 20, 500) / 20
    data = pa.table({"score": score, "group": rng.choice(["a", "b"], 500)})
    median = float(np.median(score))

    def at(threshold: float) -> fairkit.Report:
        from fairkit.settings import ModelOptions

        opened = fairkit.load_data(data, sensitive=["group"], predictions={"score": "score"})
        return fairkit.audit(None, opened, options=ModelOptions(threshold=threshold))

    facts = {"tool_scores": True}
    found = selection_rates(Context(report=at(float(np.nextafter(median, 1))), facts=facts))
    groups = np.asarray(data["group"])
    for name, rate in rows_of(found, "scoring rate").items():
        assert rate == pytest.approx((score[groups == name] > median).mean())
    with pytest.raises(NotAnsweredError, match="not the median"):
        selection_rates(Context(report=at(0.1), facts=facts))


def test_every_built_in_pack_says_every_gap():
    report = audited({"a": (10, 60), "b": (20, 60)})
    signed = {"sha256": "a" * 64, "audited_at": "2026-01-01T00:00:00Z", "keyids": ["k"]}
    for name, pack in PACKS.items():
        made = render(pack, report, {}, signed, today=datetime.date(2026, 1, 1))
        required = [fact.title for fact in pack.facts if fact.required]
        for title in required:
            assert any(gap.endswith(f"not stated: {title}") for gap in made.gaps), (name, title)
        assert pack.source.startswith("https://")
        assert "no legal advice" in pack.notice
        facts = {fact.key for item in pack.items for fact in pack.facts if fact.key in item.facts}
        assert facts == {fact.key for fact in pack.facts}  # no fact is asked for and shown nowhere
    ll144 = PACKS["nyc-ll144"]
    told = " ".join([ll144.title, ll144.notice, *(item.says for item in ll144.items)])
    assert "0.8" not in told
    assert "four fifths" not in told


@pytest.mark.parametrize(
    ("audited_on", "last"), [("2025-01-01", "2026-01-01"), ("2024-02-29", "2025-02-28"), ("2023-03-01", "2024-03-01")]
)
def test_an_old_audit_and_an_unsigned_one_are_said(audited_on: str, last: str):
    report = audited({"a": (10, 60), "b": (20, 60)})
    stated = {"sha256": "a" * 64, "audited_at": f"{audited_on}T00:00:00Z", "keyids": ["k"]}
    day = datetime.date.fromisoformat(last)
    after = day + datetime.timedelta(days=1)
    for name, pack in PACKS.items():
        if pack.kept_until is None:
            assert render(pack, report, {}, stated, today=day).notes == ()
            aged = render(pack, report, {}, stated, today=after).notes
            assert [note for note in aged if "more than a year ago: 6 RCNY 5-301(a)" in note] == list(aged)
            assert len(aged) == (name == "nyc-ll144")  # no other law names an age
    pack = PACKS["nyc-ll144"]
    assert render(pack, report, {}, {}, today=day).notes == ("Nobody has signed these numbers.",)


def test_bands_have_the_ratio_to_the_reference_and_the_pooled_numbers():
    table = fairkit.datasets.table("admissions")
    columns = {name: table.column(name).to_pylist() for name in ("department", "sex", "admitted")}
    data = fairkit.load_data(
        columns, sensitive=["sex"], within=["department"], reference=["sex=male"],
        predictions={"decision": "admitted"},
    )  # fmt: skip
    report = fairkit.audit(None, data)
    (found,) = within_bands(Context(report=report))
    rows = {row[2:4]: row[4] for row in found.rows}
    pooled = report.find("impact_ratio", "sex", within="department", reference="male").value
    assert rows["female", "impact ratio to male"] == pooled
    assert pooled > 1 > report.find("impact_ratio", "sex", reference="male").value  # inside departments it turns
    assert rows["all", "odds ratio"] == pytest.approx(0.905, abs=1e-3)


def searched(**more: object) -> dict[str, object]:
    """A certificate that states a search."""
    stated: dict[str, object] = {"considered": 12, "searched": 9, "policy": [], **more}
    return {"sha256": "a" * 64, "audited_at": "2026-01-01T00:00:00Z", "mitigation": {"search": stated}}


def test_alternatives_that_are_as_good_are_counted():
    report = audited({"a": (10, 60), "b": (20, 60)})
    least = {"name": "rto (tolerance = 0.02)", "accuracy": 0.81, "values": {"impact:sex": 0.0123456}}
    told = searched(as_good=4, least_disparity=least)
    rows = dict(alternatives(Context(report=report, certificate=told))[0].rows)
    key = "as accurate as the model without mitigation, within noise"
    assert rows[f"{key} (paired 95 % interval)"] == "4"
    assert rows["of these, the least disparity"] == "rto (tolerance = 0.02): impact:sex 0.01235"
    older = dict(alternatives(Context(report=report, certificate=searched()))[0].rows)
    assert older[key] == "not recorded by this version"


def test_a_search_that_was_certified_answers_the_item():
    report = audited({"a": (10, 60), "b": (20, 60)})
    notes = ("none: none of the 245 that loses at most 0.01 has more than 0.012 less", "Each end holds by itself.")
    search = dataclasses.replace(report.findings[0], metric="alternatives_reduction", notes=notes)
    report = dataclasses.replace(report, findings=(*report.findings, search))
    rows = alternatives(Context(report=report, certificate={}))[0].rows
    assert tuple(rows[0]) == ("none", "none of the 245 that loses at most 0.01 has more than 0.012 less")
    with pytest.raises(NotAnsweredError, match="fairkit alternatives MODEL"):
        alternatives(Context(report=audited({"a": (10, 60), "b": (20, 60)}), certificate={}))


def test_a_fact_is_needed_where_another_says_so():
    pack = PACKS["nyc-ll144"]
    report = audited({"a": (10, 60), "b": (20, 60)})
    told = read_facts(pack, {"auditor_no_part": False, "auditor_no_employment": True})
    gaps = render(pack, report, told, {}, today=datetime.date(2026, 1, 1)).gaps
    assert any("stated as not so: The auditor has had no part" in gap for gap in gaps)
    assert not any("employment" in gap for gap in gaps)
    for facts, gap in (({"test_data": True}, True), ({"test_data": False}, False), ({}, False)):
        made = render(pack, report, read_facts(pack, facts), {}, today=datetime.date(2026, 1, 1))
        assert any("Why historical data is insufficient" in one for one in made.gaps) == gap


GOOD = """
title = "T"
law = "L"
source = "https://example.org"
checked = 2026-01-01
notice = "No legal advice."
[[facts]]
key = "who"
title = "Who"
[[items]]
clause = "1"
title = "One"
table = "policy"
facts = ["who"]
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "T"', 'title = ""', "title takes a text"),
        ("checked = 2026-01-01", 'checked = "2026-01-01"', "checked is a date"),
        ('table = "policy"', 'table = "polices"', "policy"),
        ('facts = ["who"]', 'facts = ["hwo"]', "who"),
        ('facts = ["who"]', 'facts = "who"', "list of keys"),
        ('law = "L"', 'lew = "L"', "no key 'lew'"),
        ('key = "who"', 'key = "who"\nkind = "number"', "text, date, flag"),
        ('notice = "No legal advice."', "", "notice"),
        ('key = "who"', 'key = "who"\nrequired_with = "x"', "required_with 'x'"),
        ("[[items]]", "[items]", "lists of tables"),
        ("[[facts]]", "[audit]\nstrata = 1\n[[facts]]", "intersections"),
        ("title", "\0title", "TOML"),
        ("checked", 'status = "valid"\nchecked', "status is in_force, adopted"),
        ("checked", 'mark = "X"\nchecked', "mark is O, Oc"),
        ("checked", "sources = []\nchecked", "sources is a list of tables"),
        ("checked", 'sources = [{ citation = "1" }]\nchecked', "address, citation"),
        ("checked", 'sources = [{ citation = "1", address = " " }]\nchecked', "take texts"),
        ("checked", "in_force = { since = 2026-01-01 }\nchecked", "in_force is a table"),
        ("checked", 'in_force = { from = "2026-01-01" }\nchecked', "in_force.from is a date"),
        ("checked", "in_force = { from = 2026-01-02, to = 2026-01-01 }\nchecked", "which is before"),
        ("checked", 'status = "repealed"\nchecked', "until when it was law"),
        ("checked", "recheck_by = 2026-06-01\nchecked", "at most 90 days after checked: 2026-04-01"),
        ("checked", 'watch = [{ what = "a bill" }]\nrecheck_by = 2026-03-01\nchecked', "at most 30 days"),
        ("checked", f'quote = "{"word " * 41}"\nchecked', "belong to an item"),
        ('table = "policy"', f'table = "policy"\nquote = "{"word " * 41}"', "more than 40 words"),
        ("checked", 'refuses = ["women"]\nchecked', "refuses is a list of sensitive_probability"),
        ("checked", 'refuses = ["sensitive_probability"]\nchecked', "refuses_because"),
        ("checked", "age_limit = 366\nchecked", "age_limit is a table"),
        ('table = "policy"', 'table = "policy"\nthresholds = { "4/5" = 0.8 }', "does not have the words '4/5'"),
    ],
)
def test_a_pack_that_cannot_be_used_says_why(old: str, new: str, said: str):
    assert read_pack("mine", GOOD).items[0].facts == ("who",)
    with pytest.raises(PackError, match=said):
        read_pack("mine", GOOD.replace(old, new, 1))


def test_facts_are_checked():
    pack = PACKS["nyc-ll144"]
    assert read_facts(pack, {"distribution_date": datetime.date(2026, 1, 2), "tool": " "}) == {
        "distribution_date": "2026-01-02"
    }
    wrong = ({"tol": "x"}, {"tool": 3}, {"distribution_date": "soon"}, {"tool_scores": "yes"})
    for one, said in itertools.zip_longest(wrong, ("tool", "takes a text", "takes a date", "true or false")):
        with pytest.raises(PackError, match=said):
            read_facts(pack, one)
