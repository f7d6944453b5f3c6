"""Two models on one plan: the difference of their differences, its bounds, refusals of other plans, the command."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import checked

from fairkit_correspondence.planning import Cells, limits, parts

from .fake_server import Behaviour, FakeServer
from .plans import write_plan
from .tables import answers_table
from .test_auditor import placed, without_effects
from .test_interval import benchmark, brute_force


def compared(folder, before, after, *words, code=0):
    pq.write_table(before, folder / "a.parquet")
    pq.write_table(after, folder / "b.parquet")
    result = checked("compare", *tables(folder), "--format", "json", *words, code=code)
    if code == 2:
        return result
    record = json.loads(result.stdout)
    changes = [one for one in record["changes"][0] if one["metric"] == "correspondence_difference"]
    return record | {"changes": [changes]}


def tables(folder, before="a.parquet", after="b.parquet", sensitive="race"):
    """Return the words that compare two tables of answers."""
    columns = ("--predictions", "answer=answer", "--sensitive", sensitive, "--auditor", "correspondence")
    return ("--data", folder / before, "--against", folder / after, *columns)


def shifted(table, seed=1):
    """Return the answers of another model to the same questions."""
    rng, rows = np.random.default_rng(seed), table.to_pylist()
    for row in rows:
        if row["answer"] is not None:
            moved = row["answer"] + 0.08 * (row["race"] == "white") + rng.normal(0, 0.05)
            row["answer"] = float(np.clip(moved, 0, 1))
    return pa.Table.from_pylist(rows, schema=table.schema)


def by_hand(before, after, ends):
    """Return the cells of (1 + y' - y) / 2 with open answers of either model at one of the `ends`."""
    rows, others = before.to_pylist(), after.to_pylist()
    names = sorted({(row["race"], row["name"]) for row in rows})
    y, other = (
        np.array([end if r["answer"] is None else r["answer"] for r, end in zip(part, at, strict=True)])
        for part, at in zip((rows, others), ends, strict=True)
    )
    values = (1 + other - y) / 2
    return Cells(
        np.array([int(row["document"][1:]) for row in rows]),
        np.array([int(row["context"][1:]) for row in rows]),
        np.array([names.index((row["race"], row["name"])) for row in rows]),
        np.array([row["race"] == "black" for row in rows]),
        values,
        values,
        len({row["document"] for row in rows}),
    )


def test_the_number_is_the_difference_of_the_two_with_the_two_way_interval(tmp_path):
    before = answers_table(gap=0.1, contexts=2)
    after = shifted(before)
    record = compared(tmp_path, before, after.take(np.random.default_rng(0).permutation(after.num_rows)))
    ((change,),) = record["changes"]
    cells = by_hand(before, after, [[0.0] * before.num_rows] * 2)
    assert change["interval"] == pytest.approx([2 * end for end in limits(parts(cells), 0.95)])
    value, *_ = brute_force(cells, 0.5)
    assert change["difference"] == pytest.approx(2 * value)
    assert change["difference"] == pytest.approx(-0.08, abs=0.02)
    assert change["outcome"] == "changed"
    assert (change["group"], change["reference"]) == (None, "white")
    assert change["parameters"] == {"pair": "black - white"}
    assert "correspondence difference" in checked("compare", *tables(tmp_path)).stdout
    # pairing: far narrower than two independent audits
    alone = [json.loads(checked("audit", tmp_path / f"{one}.parquet", "--sensitive", "race", "--format", "json").stdout)
             for one in "ab"]  # fmt: skip
    widths = [np.diff(one["findings"][0]["interval"])[0] for one in alone]
    assert np.diff(change["interval"])[0] < 0.8 * np.hypot(*widths)


def test_open_answers_of_either_model_could_have_been_anything(tmp_path):
    before = answers_table(gap=0.1, refused=0.05)
    after = shifted(answers_table(gap=0.1))
    ((change,),) = compared(tmp_path, before, after)["changes"]
    size, reach = before.num_rows, []
    for ends in itertools.product((0.0, 1.0), repeat=2):
        low, high = limits(parts(by_hand(before, after, [[ends[0]] * size, [ends[1]] * size])), 0.95)
        reach += [2 * low, 2 * high]
    assert change["interval"] == pytest.approx([min(reach), max(reach)])


def test_of_several_groups_every_pair_has_its_interval_and_all_hold_together(tmp_path):
    before = answers_table(gap=0.1, groups=("asian", "black", "white"))
    after = shifted(before)
    (changes,) = compared(tmp_path, before, after)["changes"]
    pairs = [one["parameters"]["pair"] for one in changes]
    assert sorted(pairs) == ["asian - black", "asian - white", "black - white"]
    assert [one["group"] for one in changes] == [None, *(pair.split(" - ")[0] for pair in pairs[1:])]
    sizes = [abs(one["difference"]) for one in changes]
    assert sizes == sorted(sizes, reverse=True)
    two = [row["race"] != "asian" for row in before.to_pylist()]
    (alone,) = compared(tmp_path, before.filter(two), after.filter(two))["changes"]
    ratio = np.diff(changes[pairs.index("black - white")]["interval"])[0] / np.diff(alone[0]["interval"])[0]
    assert ratio == pytest.approx(2.394 / 1.960, rel=0.03)  # 1 - .05/3 for 1 - .05, by normal quantiles


def test_effects_of_columns_are_taken_out_of_either_model(tmp_path):
    before = placed(gap=0.1)
    after = shifted(before)
    (change,), (plain,) = (
        compared(tmp_path, before, after, *more)["changes"][0]
        for more in (("--set", "correspondence.adjust=place,form"), ())
    )
    rests = [without_effects(table, ["place", "form"]) for table in (before, after)]
    at = before.column_names.index("answer")
    cells = by_hand(*(before.set_column(at, "answer", pa.array(rest)) for rest in rests), [[0.0] * 480] * 2)
    assert change["interval"] == pytest.approx([2 * end for end in limits(parts(cells), 0.95)])
    assert change["difference"] == pytest.approx(plain["difference"], abs=0.02)


def renamed(table):
    return table.set_column(2, "race", pa.array([race[:3] for race in table.column("race").to_pylist()]))


OTHER = {
    "documents": (lambda t: t.filter([row["document"] != "d003" for row in t.to_pylist()]), {}),
    "names": (lambda t: answers_table(names=36), {}),
    "groups": (renamed, {}),
    "contexts": (lambda t: answers_table(contexts=2), {}),
    "plans": (lambda t: t.set_column(t.num_columns - 1, "plan", pa.array(["other"] * t.num_rows)), {"plan": "this"}),
}


@pytest.mark.parametrize("what", OTHER)
def test_answers_to_other_questions_are_not_compared(what, tmp_path):
    change, more = OTHER[what]
    table = answers_table()
    for name, value in more.items():
        table = table.append_column(name, pa.array([value] * table.num_rows))
    refused = compared(tmp_path, table, change(table), code=2)
    assert f"a.parquet and b.parquet have different {what}: models are compared on answers to one" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_other_pairs_of_names_and_documents_are_other_questions(tmp_path):
    table = answers_table(each=2)
    names = table.column("name").to_pylist()
    names[0], names[1] = names[4], names[5]
    refused = compared(tmp_path, table, table.set_column(3, "name", pa.array(names)), code=2)
    assert "have different contexts" in refused.stderr or "have different names" in refused.stderr


def test_rules_judge_the_second_model_and_few_names_leave_it_undecided(tmp_path):
    before = answers_table(gap=0.02)
    after = shifted(before)
    rule = ("--max", "correspondence_difference:race=0.06")
    record = compared(tmp_path, before, after, *rule, code=1)
    assert [rules[0]["verdict"] for rules in record["policy"]] == ["pass", "fail"]
    compared(tmp_path, after, before, *rule)
    few = answers_table(gap=0.02, names=12)
    ((change,),) = compared(tmp_path, few, shifted(few), *rule, code=3)["changes"]
    assert change["outcome"] == "undecided"
    assert "a.parquet: 12 names cannot stand for a group" in change["parameters"]["inconclusive"]
    ((change,),) = compared(tmp_path, few, shifted(few), "--set", "correspondence.names=fixed")["changes"]
    assert change["outcome"] == "changed"


@pytest.mark.long
def test_two_served_models_on_one_plan(tmp_path):
    """One is decided at an early look: the two are compared on the documents that both have answered."""
    words = ("--model", "m", "--budget", "1", "--output")

    def ask(looks, gap, name, code=0):
        plan = write_plan(tmp_path, documents=120, names=40, looks=looks, asking="limit = 0.05")
        with FakeServer(Behaviour(gap=gap)) as server:
            return checked("ask", plan, "--endpoint", server.url, *words, tmp_path / name, code=code).stdout

    assert "decided at look 1 of 3" in ask(3, 0.0, "old.parquet")
    assert "decided at look" not in ask(3, 0.045, "new.parquet", code=3)
    told = json.loads(
        checked("compare", *tables(tmp_path, "old.parquet", "new.parquet", "group"), "--format", "json").stdout
    )
    (change,) = [one for one in told["changes"][0] if one["metric"] == "correspondence_difference"]
    low, high = change["interval"]
    assert low < 0.045 < high
    ask(2, 0.0, "third.parquet")
    refused = checked("compare", *tables(tmp_path, "old.parquet", "third.parquet", "group"), code=2)
    assert "old.parquet and third.parquet have different plans" in refused.stderr


@pytest.mark.long
@pytest.mark.parametrize("number", [6, 21, 32, 58])
def test_the_difference_of_two_models_is_covered(number):
    module = benchmark()
    covered, passed, failed, _ = module.measure_two(module.TWO[number], 250, number)
    assert covered >= 0.92
    assert passed <= 0.05
    assert failed <= 0.05
    assert len(module.TWO) == 60
