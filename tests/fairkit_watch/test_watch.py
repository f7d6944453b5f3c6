"""A watch from day to day: what is counted, what is refused, what is said."""

from __future__ import annotations

import datetime
import itertools
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairkit import DataError, FairkitError, ParameterError, PolicyError, Rule, Watch
from fairkit_watch.log import StateError
from fairkit_watch.settings import WatchSettings

EOD = ("equal_opportunity_difference:sex=0.1", "max")
LATE = {"label": "outcome", "id": "id", "horizon": 3}


def test_counts_are_those_of_the_table(begun, decisions, day):
    with begun("watch", EOD, ("selection_rate=0.1", "min"), label="outcome", score="score") as watch:
        table = decisions(0)
        added = watch.add(table, day=day(0))
        assert (added.rows, added.days) == (600, (day(0),))
        yes, y = np.array(table["decision"]), np.array(table["outcome"])
        sex, x = np.array(table["sex"]), table["score"]
        look = watch.look()
        for group in look.groups:
            inside = sex == group.group
            assert group.rows == inside.sum()
            value, (low, high) = group.rates["true_positive_rate"]
            assert value == pytest.approx(yes[inside & (y == 1)].mean())
            assert low < value < high
            assert group.rates["mean_score"][0] == pytest.approx(x[inside].mean())
        rates = [yes[(sex == g) & (y == 1)].mean() for g in ("f", "m")]
        assert look.rules[0].value == pytest.approx(abs(rates[0] - rates[1]))
        assert look.rules[1].value == pytest.approx(yes.mean())


@pytest.mark.parametrize(
    "column",
    [
        pa.array([datetime.date(2024, 1, 2)] * 3, pa.date32()),
        pa.array([datetime.datetime(2024, 1, 2, 23, 59)] * 3, pa.timestamp("us", "UTC")),
        pa.array(["2024-01-02T08:00"] * 3),
        pa.array(["2024-01-02"] * 3).dictionary_encode(),
    ],
)
def test_days_may_be_dates_times_or_text(begun, column):
    table = pa.table({"decision": ["yes", "no", "yes"], "sex": ["f", "m", "m"], "on": column})
    with begun(favorable="yes", day="on") as watch:
        assert watch.add(table).days == ("2024-01-02",)
        assert watch.look().rules[0].value == pytest.approx(0.5)


def test_the_same_counts_in_any_order_and_partition_give_the_same_bytes(begun, decisions, day):
    tables = [pa.table(decisions(t, rows=90)) for t in range(4)]
    seen = set()
    for number, order in enumerate(itertools.islice(itertools.permutations(range(4)), 0, 24, 5)):
        with begun(f"w{number}", EOD, label="outcome") as watch:
            for t in order:
                parts = [tables[t]] if number % 2 else [tables[t].slice(0, 31), tables[t].slice(31)]
                for part in parts:
                    watch.add(part, day=day(t), alarms=False)
            seen.add(watch.totals())
    assert len(seen) == 1


def write(path, table):
    pq.write_table(pa.table(table), path)
    return path


def test_a_day_sent_twice_is_counted_once(begun, decisions, day, tmp_path):
    file = write(tmp_path / f"decisions-{day(0)}.parquet", decisions(0))
    with begun() as watch:
        watch.add(file)
        before = watch.totals()
        with pytest.raises(StateError, match="added before"):
            watch.add(file)
        copy = shutil.copy(file, tmp_path / f"copy-{day(0)}.parquet")
        with pytest.raises(StateError, match="holds the same decisions"):
            watch.add(copy)
        pq.write_table(pa.table(decisions(0)), file, compression="none")
        with pytest.raises(StateError, match="added before"):
            watch.add(file)
        write(file, decisions(0, gap=0.3))
        with pytest.raises(StateError, match="with other counts"):
            watch.add(file)
        assert watch.totals() == before
        watch.add(file, batch="the rest of the day")
        assert watch.look().rows == 1200


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decision": None}, "no watched column 'decision'"),
        ({"sex": None}, "no sensitive column 'sex'"),
        ({"decision": ["yes", "no"] * 300}, "holds 'yes', not only 1 and 0"),
        ({"decision": np.linspace(0, 1, 600)}, "not only 1 and 0"),
        ({"decision": [None, 1] * 300}, "300 of 600 rows have no decision"),
        ({"score": [float("nan")] + [0.5] * 599}, "1 of 600 rows have no usable score"),
        ({"weight": [-1.0] + [1.0] * 599}, "1 of 600 rows have no usable weight"),
        ({"on": ["2024-01-01"] * 599 + ["yesterday"]}, "no day"),
        ({"on": ["2023-12-31"] + ["2024-01-01"] * 599}, "before this watch began"),
        ({"on": ["2124-01-01"] * 600}, "correct the days, or the clock"),
    ],
)
def test_bad_tables_are_refused_and_count_nothing(begun, decisions, change, message):
    table = {**decisions(0), "weight": [1.0] * 600, "on": ["2024-01-01"] * 600, **change}
    table = {key: value for key, value in table.items() if value is not None}
    with begun(score="score", weights="weight", day="on", since="2024-01-01") as watch:
        before = len(watch.book.records)
        with pytest.raises(FairkitError, match=message):
            watch.add(table)
        assert len(watch.book.records) == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("told", "values", "share"),
    [
        ({"favorable": "yes"}, ["yes", "no", "no", "no"], 0.25),
        ({"favorable": "yes"}, ["no"] * 4, 0.0),
        ({"favorable": "repaid"}, [1, 0, 0, 0], 0.25),
        ({"favorable": "repaid", "favorable_decision": "approved"}, ["approved", "denied", "denied", "denied"], 0.25),
        ({"favorable_decision": 0}, [1, 0, 0, 0], 0.75),
        ({"favorable_decision": 0}, [1, 1, 1, 1], 0.0),
        ({"favorable": 0}, [1, 1, 1, 1], "is 0 or 1 the favorable decision"),
        ({"favorable": "yse"}, ["yes", "no", "no", "no"], "but never 'yse'"),
        ({}, [True, False, False, False], 0.25),
        ({}, ["yes", "no", "no", "no"], "not only 1 and 0"),
    ],
)
def test_which_decision_is_favorable_is_said_or_asked_for(begun, told, values, share):
    table = {"decision": values, "sex": ["f", "m", "f", "m"]}
    with begun("watch", ("selection_rate=0.1", "min"), **told) as watch:
        if isinstance(share, str):
            with pytest.raises(DataError, match=share):
                watch.add(table, day="2024-01-01")
        else:
            watch.add(table, day="2024-01-01")
            assert watch.look().rules[0].value == share


def test_a_table_without_a_day_is_asked_for_one(begun, decisions):
    with begun() as watch, pytest.raises(DataError, match="which day"):
        watch.add(decisions(0))


def test_settings_that_changed_are_another_sequence(begun, tmp_path):
    begun().close()
    file = tmp_path / "watch" / "policy.json"
    told = json.loads(file.read_text())
    for key, value in (("confidence", 0.9), ("rules", [])):
        file.write_text(json.dumps({**told, key: value}))
        with pytest.raises(StateError, match="changed after this watch began"):
            Watch.open(tmp_path / "watch")
    for text in ("", "{}", "[1", json.dumps({**told, "horizon": -1})):
        file.write_text(text)
        with pytest.raises(StateError, match="was changed and cannot be read"):
            Watch.open(tmp_path / "watch", write=False)
    file.write_text(json.dumps(told, indent=4))
    Watch.open(tmp_path / "watch").close()
    with pytest.raises(StateError, match="there is no watch"):
        Watch.open(tmp_path / "nowhere")


def test_a_watch_begins_in_a_new_folder_or_not_at_all(begun, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(StateError, match="begins in a new folder"):
        begun("full")
    with pytest.raises(PolicyError, match="cannot be watched"):
        begun("none", ("roc_auc=0.7", "min"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


@pytest.mark.parametrize(
    ("rules", "more", "message"),
    [
        ([EOD], {}, "needs outcomes"),
        ([EOD], {"label": "outcome", "horizon": 5}, "name the `id` column"),
        ([EOD], {"label": "decision"}, "decision and outcome are both in the column"),
        ([EOD], {"label": "outcome", "selective": True}, "outcome of a rejected person is unknown"),
        ([("selection_rate:sex=0.1", "min")], {}, "selection_rate_group_min"),
        ([("demographic_parity_difference:race=0.1", "max")], {}, "not watched"),
        ([("selection_rate=0.1", "min")], {"confidence": 1.0}, "between 0 and 1"),
        ([("selection_rate=0.1", "min")], {"horizon": -1}, "too small"),
        ([("selection_rate@5=0.1", "min")], {}, "leave @5 out"),
    ],
)
def test_what_cannot_be_watched_is_refused_at_the_start(begun, rules, more, message):
    with pytest.raises((PolicyError, ParameterError), match=message):
        begun("watch", *rules, **more)


def test_precision_is_watched_where_labels_are_selective(begun, decisions, day):
    with begun("watch", ("precision=0.1", "min"), label="outcome", selective=True) as watch:
        table = decisions(0)
        table["outcome"] = [int(y) if d else None for y, d in zip(table["outcome"], table["decision"], strict=True)]
        watch.add(table, day=day(0))
        assert watch.look().rules[0].verdict == "pass"


def test_selective_labels_that_nobody_declared_give_no_verdict(begun, decisions, day):
    with begun("watch", EOD, label="outcome") as watch:
        for t in range(3):
            table = decisions(t)
            table["outcome"] = [int(y) if d else None for y, d in zip(table["outcome"], table["decision"], strict=True)]
            watch.add(table, day=day(t))
        rule = watch.look().rules[0]
        assert rule.verdict == "undecided"
        assert "outcome of a rejected person is unknown" in rule.reason


def cohorts(watch, decisions, day, delay, days=12):
    """Repayments are known after `delay` days, defaults at once."""
    tables = [decisions(t, rows=300) for t in range(days)]
    for t in range(days):
        own = {key: value for key, value in tables[t].items() if key != "outcome"}
        watch.add(own, day=day(t), alarms=False)
        for ago, wanted in ((0, 0), (delay, 1)):
            if t >= ago:
                table = tables[t - ago]
                known = table["outcome"] == wanted
                ids = list(itertools.compress(table["id"], known))
                watch.label({"id": ids, "outcome": [wanted] * len(ids)}, alarms=False)
    return tables


def test_outcomes_count_when_their_cohort_closes(begun, decisions, day, tmp_path):
    with begun("watch", ("accuracy=0.1", "min"), **LATE) as watch:
        tables = cohorts(watch, decisions, day, delay=2)
        closed = watch.data.splits[""].parts["c"].sum(axis=(1, 2)) > 0
        assert closed.tolist() == [True] * 9 + [False] * 3
        look = watch.look()
        right = np.concatenate([t["decision"] == t["outcome"] for t in tables[:9]])
        assert look.rules[0].value == pytest.approx(right.mean())
        assert look.rules[0].unresolved == 0
        assert look.open == 900
        kept = {path.name.split(".")[0] for path in (tmp_path / "watch" / "pending").iterdir()}
        assert kept == {"labels", day(9), day(10), day(11)}
        files = sorted(path.name for path in (tmp_path / "watch" / "pending").iterdir() if "labels" in path.name)
        assert len(files) <= 6  # labels go with the cohorts that waited when they came
        # what waits are ids, decisions and groups: nothing else of a person
        file = next((tmp_path / "watch" / "pending").glob(f"{day(11)}*"))
        assert set(pq.read_schema(file).names) == {"id", "decision", "label", "group0"}
        assert file.stat().st_mode & 0o077 == 0


def test_outcomes_that_never_came_widen_the_interval(begun, decisions, day):
    with begun("watch", ("accuracy=0.1", "min"), EOD, **LATE) as watch:
        tables = cohorts(watch, decisions, day, delay=5)  # later than the horizon: repayments stay unknown
        rule, other = watch.look().rules
        right = np.concatenate([t["decision"] == t["outcome"] for t in tables[:9]])
        low, high = rule.interval
        assert rule.unresolved > 0.3
        assert "not known" in rule.reason
        assert low < right.mean() < high
        assert high - low > 0.3
        assert other.verdict == "undecided"
        assert watch.look().odd  # the labels came after the cohort closed


def test_labels_that_cannot_be_used(begun, decisions, day):
    with begun("watch", EOD, **LATE) as watch:
        watch.add(decisions(0), day=day(0))
        ids = decisions(0)["id"]
        with pytest.raises(DataError, match="two outcomes"):
            watch.label({"id": [ids[0], ids[0]], "outcome": [0, 1]})
        with pytest.raises(DataError, match="no label column"):
            watch.label({"id": ids[:1], "y": [1]})
        with pytest.raises(DataError, match="no id"):
            watch.label({"id": [None, "1"], "outcome": [1, 1]})
        added = watch.label({"id": [*ids[:5], "nobody"], "outcome": [1] * 6})
        assert (added.rows, added.unknown) == (5, 1)
        assert any("labels for ids" in key for key in watch.look().odd)
        with pytest.raises(DataError, match="600 of 600 ids were added before"):
            watch.add(decisions(0), day=day(0))
        table = decisions(1)
        table["id"][0] = table["id"][1]
        with pytest.raises(DataError, match="1 ids stand twice"):
            watch.add(table, day=day(1))
    with begun("now", EOD, label="outcome") as watch, pytest.raises(ParameterError, match="awaits no labels"):
        watch.label({"id": ["1"], "outcome": [1]})


def test_the_newest_label_counts(begun, decisions, day):
    with begun("watch", ("accuracy=0.1", "min"), **LATE) as watch:
        table = decisions(0, rows=100)
        watch.add({k: v for k, v in table.items() if k != "outcome"}, day=day(0))
        watch.label({"id": table["id"], "outcome": 1 - table["decision"]})
        watch.label({"id": table["id"], "outcome": table["decision"]})
        watch.add(decisions(9), day=day(9))
        assert watch.look().rules[0].value == 1


def test_days_without_decisions_are_not_missing_days(begun, decisions, day):
    with begun() as watch:
        watch.add(decisions(0), day=day(0))
        watch.add({"decision": pa.array([], pa.int64()), "sex": pa.array([], pa.string())}, day=day(1))
        watch.add(decisions(3), day=day(3))
        look = watch.look()
        assert (look.days, look.missing_days) == (3, (day(2),))
        assert look.rows == 1200


def test_a_group_that_appears_after_a_year(begun, decisions, day):
    with begun() as watch:
        for t in range(0, 366, 6):
            watch.add(decisions(t, rows=300), day=day(t), alarms=False)
        before = watch.look().rules[0]
        table = decisions(367, rows=300)
        table["sex"] = ["x" if i < 60 else s for i, s in enumerate(table["sex"])]
        table["decision"][:60] = 0
        added = watch.add(table, day=day(367))
        new = [a for a in added.alarms if a.evidence.get("new")]
        assert [(a.level, a.subject) for a in new] == [("shares", "sex=x")]
        look = watch.look()
        assert [(g.group, g.expected) for g in look.groups] == [("f", True), ("m", True), ("x", False)]
        assert look.rules[0].value > before.value
        assert not any(a.evidence.get("new") for a in watch.add(decisions(368), day=day(368)).alarms)


def test_decisions_without_a_group_are_counted_and_said(begun, decisions, day):
    table = decisions(0)
    table["sex"] = [None if i < 7 else s for i, s in enumerate(table["sex"])]
    with begun() as watch:
        watch.add(table, day=day(0))
        look = watch.look()
        assert look.odd == {"decisions without a value of sex; they are in no group of it": 7}
        assert look.rows == 600
        assert sum(g.rows for g in look.groups) == 593
    with begun("kept", missing="group") as watch:
        watch.add(table, day=day(0))
        assert [g.group for g in watch.look().groups] == ["f", "m", "(missing)"]


def test_an_alarm_is_raised_once_per_change(begun, decisions, day):
    raised = []
    with begun(run_length=100) as watch:
        for t in range(60):
            gap = 0.15 if 20 <= t < 35 else 0.0
            raised += [(t, one.level) for one in watch.add(decisions(t, gap=gap), day=day(t)).alarms]
    changed = [t for t, level in raised if level == "changed"]
    assert len(changed) == 1
    assert 20 < changed[0] <= 26
    assert [level for _, level in raised].count("fail") <= 1


def test_a_failed_rule_is_said_again_only_after_it_passed(begun, decisions, day):
    levels = []
    with begun() as watch:
        for t, (rows, gap) in enumerate([(5_000, 0.25), (90_000, 0.0), (90_000, 0.25), (9_000, 0.25)]):
            added = watch.add(decisions(t, rows=rows, gap=gap), day=day(t))
            levels += [(t, one.level, one.evidence) for one in added.alarms]
    fails = [(t, evidence) for t, level, evidence in levels if level == "fail"]
    assert [t for t, _ in fails] == [0, 2]
    assert all(evidence["interval"][0] > 0.05 for _, evidence in fails)


def test_a_crash_before_an_alarm_was_written_raises_it_later(begun, decisions, day):
    with begun() as watch:
        for t in range(4):
            watch.add(decisions(t, rows=2000, gap=0.3), day=day(t), alarms=False)
        first = watch.new_alarms()
        assert {one.level for one in first} == {"fail", "changed"}
        assert watch.new_alarms() == ()
        assert watch.undelivered("hook") == watch.alarms == first
        watch.delivered(first[0], "hook")
        assert watch.undelivered("hook") == first[1:]
        assert watch.undelivered("file") == first


def test_a_change_of_the_shares_of_groups_is_an_alarm(begun, decisions, day):
    def day_of(t, women):
        table = decisions(t, rows=1000)
        rng = np.random.default_rng(t)
        return {**table, "sex": np.where(rng.random(1000) < women, "f", "m").tolist()}

    with begun() as watch:
        found = [
            (t, one) for t in range(42) for one in watch.add(day_of(t, 0.4 if t < 21 else 0.25), day=day(t)).alarms
        ]
    assert {one.level for _, one in found} == {"shares"}
    assert 21 <= found[0][0] <= 27
    assert len(found) <= 4


def test_a_clock_that_goes_back(begun, decisions, day, monkeypatch):
    from fairkit_watch import records as book

    with begun() as watch:
        monkeypatch.setattr(book, "clock", lambda: "2001-01-01T00:00:00.000Z")
        watch.add(decisions(0), day=day(0))
        times = [one["at"] for one in watch.book.records]
        assert times == sorted(times)
        assert any("clock of this machine went back 1 times" in note for note in watch.look().notes)
        with pytest.raises(DataError, match="today is 2023-12-30"):
            watch.add(decisions(1), day=day(1), today=datetime.date(2023, 12, 30))


def test_weights_give_asymptotic_intervals(begun, decisions, day):
    rng = np.random.default_rng(0)
    with begun(
        "watch", ("selection_rate=0.1", "min"), ("demographic_parity_difference:sex=0.5", "max"), weights="w"
    ) as w:
        w.add({**decisions(0, rows=50), "w": rng.uniform(0.5, 2, 50)}, day=day(0))
        assert w.look().rules[0].interval is None
        table = {**decisions(1, rows=3000), "w": rng.uniform(0.5, 2, 3000)}
        w.add(table, day=day(1))
        look = w.look()
        assert look.rules[0].value == pytest.approx(np.average(table["decision"], weights=table["w"]), abs=0.01)
        low, high = look.rules[0].interval
        assert 0.03 < high - low < 0.12
        assert [one.verdict for one in look.rules] == ["pass", "pass"]
    with begun("ones", ("demographic_parity_difference:sex=0.5", "max"), weights="w") as w:
        w.add({**decisions(1, rows=3000), "w": np.ones(3000)}, day=day(1))
        one = w.look().rules[0]
    with begun("none", ("demographic_parity_difference:sex=0.5", "max")) as w:
        w.add(decisions(1, rows=3000), day=day(1))
        assert one.interval == pytest.approx(w.look().rules[0].interval, abs=1e-9)


def test_equal_questions_share_alpha(begun, decisions, day):
    same = ("selection_rate_difference:sex=0.05", "max")
    with begun("two", ("demographic_parity_difference:sex=0.05", "max"), same) as two, begun() as one:
        for watch in (one, two):
            watch.add(decisions(0, rows=5000), day=day(0))
        assert two.look().rules[0].interval == one.look().rules[0].interval
        assert any("one number under two names" in note for note in two.look().notes)
        assert (one.look().streams, two.look().streams) == (1, 1)
    third = ("equalized_odds_difference:sex=0.5", "max")
    with begun("three", ("demographic_parity_difference:sex=0.05", "max"), third, label="outcome") as three:
        three.add(decisions(0, rows=5000), day=day(0))
        assert three.look().streams == 2
        assert three.look().rules[1].verdict == "pass"


def test_settings_survive_their_json(begun):
    with begun("watch", EOD, **LATE) as watch:
        told = json.loads(json.dumps(watch.settings.to_dict()))
        assert WatchSettings.from_dict(told) == watch.settings
        assert WatchSettings.from_dict(told).digest == watch.settings.digest
    assert Rule.parse(EOD[0], "max") in watch.settings.policy()


def test_a_look_is_json(begun, decisions, day):
    with begun("watch", EOD, ("selection_rate_ratio:sex=0.8", "min"), **LATE) as watch:
        empty = json.loads(json.dumps(watch.look().to_dict(), allow_nan=False))
        assert (empty["verdict"], empty["rows"], empty["since"]) == ("undecided", 0, None)
        watch.add(decisions(0), day=day(0))
        assert json.loads(json.dumps(watch.look().to_dict(), allow_nan=False))["schema"] == "fairkit.watch/1"
