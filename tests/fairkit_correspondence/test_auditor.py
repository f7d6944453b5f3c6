"""The auditor on tables: differences, contexts, refusals, floors on counts, placebo, drift, policy, certificates."""

from __future__ import annotations

import re
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fairkit
from fairkit.errors import FairkitError
from fairkit.results.report import Report, validate_report
from fairkit.results.rules import Rule
from fairkit_correspondence.answers import adjusted
from fairkit_correspondence.auditor import by_name
from fairkit_correspondence.planning import Cells, limits, parts

from .tables import answers_table

LIMIT = Rule("correspondence_difference:race", max=0.05)


def audit(table, policy=(), **parameters):
    data = fairkit.load_data(table, sensitive=["race"], predictions={"answer": "answer"}, name="answers")
    return fairkit.audit(
        None,
        data,
        auditors=["correspondence"],
        policy=policy,
        parameters={"correspondence": parameters} if parameters else None,
    )


def difference(report):
    return report.find("correspondence_difference", "race")


def test_the_difference_is_the_interval_of_its_cells():
    table = answers_table(gap=0.1)
    report = audit(table, [LIMIT])
    finding = difference(report)
    rows = table.to_pylist()
    names = sorted({(r["race"], r["name"]) for r in rows})
    y = np.array([r["answer"] for r in rows])
    cells = Cells(
        np.array([int(r["document"][1:]) for r in rows]),
        np.zeros(len(rows), dtype=int),
        np.array([names.index((r["race"], r["name"])) for r in rows]),
        np.array([r["race"] == "white" for r in rows]),
        y,
        y,
        60,
    )
    low, high = limits(parts(cells), 0.95)
    assert finding.interval == pytest.approx((low, high))
    assert finding.value == pytest.approx(parts(cells).value)
    assert low < 0.1 < high
    assert report.verdict == "fail"
    assert [group.group for group in finding.groups] == ["black", "white"]
    pair = by_name(finding.evidence["correspondence_pairs"])["black - white, all contexts"]
    assert pair["low"] == pytest.approx(-high)
    validate_report(report.to_dict())
    assert Report.from_dict(report.to_dict()).to_dict() == report.to_dict()


def test_rows_in_any_order_give_the_same_numbers():
    table = answers_table(gap=0.1, contexts=2)
    shuffled = table.take(np.random.default_rng(0).permutation(table.num_rows))
    one, other = audit(table), audit(shuffled)
    assert difference(one).interval == pytest.approx(difference(other).interval, abs=1e-12)
    assert difference(one).evidence["names_sha256"] == difference(other).evidence["names_sha256"]


def test_the_worst_context_has_one_bound():
    report = audit(answers_table(gap=0.12, contexts=3), [Rule("correspondence_difference:race|context", max=0.5)])
    finding = next(f for f in report.findings if f.within)
    truth = 0.12
    assert finding.interval[0] < truth < finding.interval[1]
    assert [s.stratum for s in finding.strata] == ["c0", "c1", "c2"]
    assert finding.strata[2].value > finding.strata[0].value > 0
    assert report.verdict == "pass"
    worst = difference(audit(answers_table(gap=0.12, contexts=3), worst="context"))
    assert worst.interval == finding.interval


def test_more_pairs_make_the_lower_end_wider_and_not_the_upper():
    groups = ("asian", "black", "white")
    report = audit(answers_table(gap=0.1, groups=groups))
    finding = difference(report)
    pairs = list(by_name(finding.evidence["correspondence_pairs"]).values())
    assert len(pairs) == 3
    assert finding.interval[1] == pytest.approx(max(max(abs(p["low"]), abs(p["high"])) for p in pairs))
    own = max(min(abs(p["low"]), abs(p["high"])) for p in pairs if p["low"] * p["high"] > 0)
    assert finding.interval[0] < own


def test_few_names_and_few_documents_give_no_verdict():
    few = audit(answers_table(names=12), [LIMIT])
    assert few.verdict == "inconclusive"
    assert "12 names cannot stand for a group; 30 do, 40 are planned" in few.policy[0].reason
    assert difference(few).interval is not None
    fixed = audit(answers_table(names=12), [LIMIT], names="fixed")
    assert fixed.verdict == "fail"
    assert any("these very names" in note for note in difference(fixed).notes)
    # half of a group's answers are about one name: 40 names say what four would
    table = answers_table(documents=80)
    half = np.random.default_rng(0).random(table.num_rows) < 0.5
    rows = zip(table.column("name").to_pylist(), table.column("race").to_pylist(), half, strict=True)
    names = ["black 0" if race == "black" and moved else name for name, race, moved in rows]
    heavy = audit(table.set_column(table.column_names.index("name"), "name", pa.array(names)), [LIMIT])
    assert heavy.verdict == "inconclusive"
    assert "a few names have most of the answers of a group" in heavy.policy[0].reason
    small = audit(answers_table(documents=20), [LIMIT])
    assert "20 documents cannot stand for others like them" in small.policy[0].reason


def test_refusals_widen_by_their_bounds():
    plain, open_ones = audit(answers_table(gap=0.0)), audit(answers_table(gap=0.0, refused=0.1))
    rate = next(f for f in open_ones.findings if f.metric == "refusal_rate_difference")
    assert rate.value == pytest.approx(0.1, abs=0.04)
    assert rate.interval[0] > 0
    wider = difference(open_ones).interval[1] - difference(plain).interval[1]
    # (r_g + r_h) / 2 of the interval's either side
    assert wider == pytest.approx(rate.value / 2, abs=0.04)
    no = audit(answers_table(gap=0.0, refused=0.1), refused="no")
    assert difference(no).value == pytest.approx(0.045, abs=0.03)
    counts = by_name(rate.evidence["refusals"])["black"]
    assert counts["refused"] + counts["answered"] == 240


def test_a_missing_answer_without_outcomes_is_open():
    table = answers_table(gap=0.0, refused=0.1).drop_columns(["outcome"])
    rate = next(f for f in audit(table).findings if f.metric == "refusal_rate_difference")
    assert rate.evidence["refusals"]["black: unreadable"] > 10


def test_the_unresolved_probability_is_open_too():
    table = answers_table(gap=0.0)
    wide = table.append_column("unresolved", pa.array(np.full(table.num_rows, 0.02)))
    one, other = difference(audit(table)), difference(audit(wide))
    assert other.interval[1] - one.interval[1] == pytest.approx(0.02, abs=0.004)


def test_drift_forbids_a_verdict():
    table = answers_table(gap=0.1)
    late = pc.greater(table.column("order"), table.num_rows // 2)
    drifted = pc.add(table.column("answer"), pc.multiply(pc.cast(late, pa.float64()), 0.1))
    table = table.set_column(table.column_names.index("answer"), "answer", drifted)
    report = audit(table, [LIMIT])
    assert report.verdict == "inconclusive"
    assert "the served model changed while it was asked" in report.policy[0].reason
    assert difference(report).evidence["drift"]["shift"] == pytest.approx(0.1, abs=0.02)


@pytest.mark.long
def test_drift_is_seldom_seen_where_there_is_none():
    found = [
        difference(audit(answers_table(seed=s, documents=30, names=30))).evidence["drift"]["found"] for s in range(25)
    ]
    assert sum(found) <= 2


def test_two_models_in_one_table_are_no_audit():
    table = answers_table()
    names = ["a" if i < 300 else "b" for i in range(table.num_rows)]
    report = audit(table.append_column("stated_model", pa.array(names)), [LIMIT])
    assert "more than one model answered (a and b)" in report.policy[0].reason


def test_a_placebo_arm_is_compared_with_its_own_group():
    table = answers_table(gap=0.1, groups=("black", "street", "white"))
    report = audit(table, [LIMIT], placebo="street=black")
    arm = next(f for f in report.findings if f.metric == "placebo_difference")
    assert arm.value < 0.03
    assert len(by_name(difference(report).evidence["correspondence_pairs"])) == 1
    with pytest.raises(FairkitError, match="names no two groups of 'race'"):
        audit(table, placebo="strasse=black")


def test_halves_of_one_group_are_the_placebo_that_costs_nothing():
    splits = difference(audit(answers_table(gap=0.1))).evidence["placebo_splits"]
    assert set(splits) == {"black", "white"}
    assert all(0.001 < value < 0.03 for value in splits.values())


def test_effects_of_places_are_taken_out():
    table = answers_table(gap=0.1, noise=0.01)
    place = np.random.default_rng(1).integers(0, 4, table.num_rows)
    answers = np.clip(table.column("answer").to_numpy() + 0.1 * place - 0.15, 0, 1)
    table = table.set_column(table.column_names.index("answer"), "answer", pa.array(answers))
    table = table.append_column("place", pa.array(place))
    plain, adjusted = audit(table), audit(table, adjust=["place"])
    narrower = np.diff(difference(adjusted).interval)[0] / np.diff(difference(plain).interval)[0]
    assert narrower < 0.8
    assert difference(adjusted).interval[0] < 0.1 < difference(adjusted).interval[1]


def placed(seed=0, **settings):
    """Return answers that depend on two columns as well, in a design that is not balanced; some are open."""
    table, rng = answers_table(seed, **settings), np.random.default_rng(seed + 1)
    place, form = rng.integers(0, 4, table.num_rows), rng.choice(["long", "short", "odd"], table.num_rows)
    place[[race == "white" for race in table.column("race").to_pylist()]] %= 3
    y = table.column("answer").to_numpy(zero_copy_only=False) + 0.05 * place + 0.1 * (form == "odd") - 0.1
    y = pa.array(np.where(np.isnan(y), None, np.clip(y, 0, 1)), pa.float64())
    table = table.set_column(table.column_names.index("answer"), "answer", y)
    return table.append_column("place", pa.array(place)).append_column("form", pa.array(form))


def without_effects(table, columns):
    """Return the answers less the columns' effects, of least squares on an explicit matrix of dummies of full rank."""
    y = table.column("answer").to_numpy(zero_copy_only=False).astype(float)
    blocks = []
    for column in ("race", *columns):
        values = np.array(table.column(column).to_pylist())
        blocks.append(np.stack([values == one for one in sorted(set(values.tolist()))[1:]], axis=1))
    matrix, used = np.column_stack([np.ones(len(y)), *blocks]), ~np.isnan(y)
    assert np.linalg.matrix_rank(matrix[used]) == matrix.shape[1]
    effects = np.linalg.solve(matrix[used].T @ matrix[used], matrix[used].T @ y[used])
    start, rest = 1 + blocks[0].shape[1], y.copy()
    for block in blocks[1:]:
        part = block @ effects[start : start + block.shape[1]]
        rest -= part - part[used].mean()
        start += block.shape[1]
    return rest


@pytest.mark.parametrize("columns", [["place"], ["place", "form"]])
@pytest.mark.parametrize("seed", range(4))
def test_adjusted_answers_are_those_of_least_squares_on_dummies(columns, seed):
    table = placed(seed, gap=0.1, refused=0.05, contexts=1 + seed % 2, noise=0.1)
    rest = without_effects(table, columns)
    by_hand = table.set_column(
        table.column_names.index("answer"), "answer", pa.array(np.where(np.isnan(rest), None, rest), pa.float64())
    )
    group = np.array(table.column("race").to_pylist()) == "white"
    y = table.column("answer").to_numpy(zero_copy_only=False).astype(float)
    np.testing.assert_allclose(adjusted(table, y, group.astype(np.int64), columns), rest, atol=1e-12)
    low, high = difference(audit(table, adjust=columns)).interval
    assert (low, high) == pytest.approx(difference(audit(by_hand)).interval, abs=1e-9)


def test_planned_looks_use_their_own_confidence():
    table = answers_table(gap=0.1, documents=100)
    look = [int(text[1:]) // 20 + 1 for text in table.column("document").to_pylist()]
    table = table.append_column("look", pa.array(look))
    outcome = ["not asked" if one > 2 else "answered" for one in look]
    partly = table.set_column(table.column_names.index("outcome"), "outcome", pa.array(outcome))
    whole, early = difference(audit(table)), difference(audit(partly))
    assert early.parameters["look"] == 2
    assert early.evidence["counts"]["documents"] == 40
    assert early.evidence["counts"]["unfinished"] == 60
    rows = table.filter(pc.less_equal(table.column("look"), 2)).drop_columns(["look"])
    alone = difference(audit(rows))
    ratio = np.diff(early.interval)[0] / np.diff(alone.interval)[0]
    assert ratio == pytest.approx(3.357 / 1.96, rel=0.1)  # Student's, too
    assert np.diff(whole.interval)[0] < np.diff(early.interval)[0]


BAD = {
    "lacks a group": (lambda t: t.slice(4), r"the document 'd000' has no answer for 'black'; every document needs"),
    "no documents": (lambda t: t.drop_columns(["document"]), r"no column 'document' for the document"),
    "outside": (
        lambda t: t.set_column(t.column_names.index("answer"), "answer", pa.array([7.0] * t.num_rows)),
        r"leaves \[0, 1\]",
    ),
    "odd outcome": (
        lambda t: t.set_column(t.column_names.index("outcome"), "outcome", pa.array(["maybe"] * t.num_rows)),
        "holds 'maybe'; outcomes are",
    ),
    "no document at all": (
        lambda t: t.set_column(t.column_names.index("outcome"), "outcome", pa.array(["not asked"] * t.num_rows)),
        "no document has all of its answers yet",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_table_that_cannot_be_audited_is_one_sentence(case):
    change, message = BAD[case]
    with pytest.raises(FairkitError, match=message) as raised:
        audit(change(answers_table()))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("role", [{"reference": "race=white"}, {"within": "context"}, {"cluster": "document"}])
def test_roles_that_would_be_ignored_are_refused(role):
    data = fairkit.load_data(
        answers_table(contexts=2), sensitive=["race"], predictions={"answer": "answer"}, **role, name="t"
    )
    with pytest.raises(FairkitError, match=f"leave `{next(iter(role))}` out"):
        fairkit.audit(None, data, auditors=["correspondence"])


def test_other_auditors_refuse_answers():
    data = fairkit.load_data(answers_table(), sensitive=["race"], predictions={"answer": "answer"}, name="answers")
    with pytest.raises(FairkitError, match="this task is answers"):
        fairkit.audit(None, data, auditors=["group"])


def test_somebodys_decisions_can_be_audited_too():
    table = answers_table(gap=0.1).drop_columns(["outcome", "order", "context"])
    yes = pc.cast(pc.greater(table.column("answer"), 0.5), pa.int64())
    table = table.append_column("invited", yes).rename_columns(
        {"document": "cv", "name": "who"} | {c: c for c in ("race", "answer", "invited")}
    )
    data = fairkit.load_data(table, sensitive=["race"], predictions={"answer": "invited"}, drop=["answer"], name="t")
    parameters = {"correspondence": {"document": "cv", "name": "who"}}
    report = fairkit.audit(None, data, auditors=["correspondence"], parameters=parameters)
    assert 0.05 < report.find("correspondence_difference", "race").value < 0.4


def test_a_million_answers_take_a_second():
    size, contexts, each = 5_000, 5, 20
    rng = np.random.default_rng(0)
    shape = (size, contexts, 2, each)
    document, context, side, i = (axis.reshape(-1) for axis in np.indices(shape))
    name = (document * each + i) % 100 + 100 * side
    y = rng.random(document.size)
    cells = Cells(document, context, name, side == 0, y, y, size)
    started = time.process_time()
    low, high = limits(parts(cells), 0.95)
    taken = time.process_time() - started
    assert document.size == 10**6
    assert low < 0 < high
    assert taken < 5  # about 0.3 s; the bound only says that nothing grows with answers x names


def test_rows_without_a_group_are_in_no_comparison():
    table = answers_table(gap=0.1)
    nobody = table.slice(0, 60)
    nobody = nobody.set_column(nobody.column_names.index("race"), "race", pa.array([None] * 60, pa.string()))
    place = np.arange(table.num_rows + 60) % 4
    more = pa.concat_tables([table, nobody]).append_column("place", pa.array(place))
    plain, adjusted = audit(more), audit(more, adjust=["place"])
    assert difference(plain).interval == pytest.approx(difference(audit(table)).interval)
    assert difference(adjusted).value == pytest.approx(difference(plain).value, abs=0.01)


@pytest.mark.long
def test_an_undecided_rule_says_documents_and_names_and_not_rows():
    """The advice is about enough: in audits of that size the rule passes about as often as is said."""
    report = audit(answers_table(documents=60, names=40, each=2, gap=0.03, noise=0.2), [LIMIT])
    result = report.policy[0]
    assert result.verdict == "inconclusive"
    assert "rows" not in result.reason
    words = re.search(r"About ([\d,]+) documents in all with (\d+) names a group", result.reason)
    documents, names = int(words[1].replace(",", "")), int(words[2])
    assert documents > 60
    assert names >= 40
    numbers = [
        audit(answers_table(seed, documents=documents, names=names, each=2, gap=0.03, noise=0.2), [LIMIT]).verdict
        for seed in range(12)
    ]
    assert numbers.count("pass") >= 5  # .8 if the first audit's value and variances were the truth


def test_other_findings_ask_for_documents_and_names():
    rule = Rule("refusal_rate_difference:race", max=0.01)
    result = audit(answers_table(refused=0.01), [rule]).policy[0]
    assert result.verdict == "inconclusive"
    assert result.reason.endswith("More documents and more names would narrow the interval")
