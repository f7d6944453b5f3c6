"""Group probabilities from names and places against an enumeration of a small world, and their calibration."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import fairkit
from fairkit_cli.main import app
from fairkit_datasets import bifsg as method
from fairkit_datasets.bifsg import GROUPS

SURNAMES, FIRSTS, PLACES = (("SMITH", "GARCIA", "NGUYEN", "LEE"), ("ANNA", "LUIS", "MAI"), ("02138", "10001", "60601"))
PCT = ("pctwhite", "pctblack", "pctapi", "pctaian", "pct2prace", "pcthispanic")


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def world() -> dict[str, np.ndarray]:
    """A world in which names and places are independent given the group: p(r), p(s | r), p(f | r), p(g | r)."""
    rng = np.random.default_rng(7)
    share = np.array([0.55, 0.15, 0.08, 0.02, 0.05, 0.15])
    found = {name: rng.dirichlet(np.ones(size) * 0.6, 6) for name, size in (("s", 4), ("f", 3), ("g", 3))}
    return {"r": share, **found}


@pytest.fixture(scope="module")
def lists(world: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The world's lists as the Bureau and others write them: percentages and counts, in full digits."""
    here = tmp_path_factory.mktemp("lists")
    people = 1e9
    joint = world["r"][:, None] * world["s"]
    surnames = {
        "name": SURNAMES, "rank": range(4), "count": joint.sum(axis=0) * people, "prop100k": range(4),
        "cum_prop100k": range(4),
        **{pct: 100 * (joint / joint.sum(axis=0))[at] for at, pct in enumerate(PCT)},
    }  # fmt: skip
    firsts = world["r"][:, None] * world["f"]
    first = {
        "firstname": FIRSTS, "obs": firsts.sum(axis=0) * people,
        **{pct: 100 * (firsts / firsts.sum(axis=0))[at] for at, pct in enumerate(PCT)},
    }  # fmt: skip
    where = world["r"][:, None] * world["g"]
    place = {"place": PLACES, **{group: where[at] * people for at, group in enumerate(GROUPS)}}
    paths = {}
    for name, columns in (("surnames", surnames), ("first", first), ("places", place)):
        paths[name] = here / f"{name}.csv"
        pacsv.write_csv(pa.table({key: pa.array(list(value)) for key, value in columns.items()}), paths[name])
    return paths


def test_the_formula_is_bayes_rule_over_every_person_of_the_world(world: Any, lists: dict[str, Path]):
    everybody = list(itertools.product(range(4), range(3), range(3)))
    people = {
        "surname": [SURNAMES[s].title() for s, _, _ in everybody],
        "first": [FIRSTS[f].lower() for _, f, _ in everybody],
        "place": [PLACES[g] for _, _, g in everybody],
    }
    tables = (
        method.read_surnames(lists["surnames"]),
        method.read_first_names(lists["first"]),
        method.read_places(lists["places"]),
    )
    found = method.probabilities(people, *tables)
    for row, (s, f, g) in zip(found.values, everybody, strict=True):
        joint = world["r"] * world["s"][:, s] * world["f"][:, f] * world["g"][:, g]
        assert row == pytest.approx(joint / joint.sum(), rel=1e-9)
    assert found.matched == {"surname": 36, "first": 36, "place": 36}
    assert found.conflicts == 0
    bisg = method.probabilities({"surname": ["SMITH"], "place": ["10001"]}, tables[0], None, tables[2]).values[0]
    joint = world["r"] * world["s"][:, 0] * world["g"][:, 1]
    assert bisg == pytest.approx(joint / joint.sum())


def test_what_is_not_listed_is_left_out(world: Any, lists: dict[str, Path]):
    surnames, places = method.read_surnames(lists["surnames"]), method.read_places(lists["places"])
    people = {"surname": [None, "Nobody", "Smith", None], "place": ["2138", None, "99999", None]}
    found = method.probabilities(people, surnames, None, places).values
    joint = world["r"] * world["g"][:, 0]
    assert found[0] == pytest.approx(joint / joint.sum())  # 2138 is 02138
    assert np.isnan(found[1]).all()
    assert found[2] == pytest.approx(surnames.values[0])
    assert np.isnan(found[3]).all()


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("García-López", "GARCIALOPEZ"),
        ("O'Neil, Jr.", "ONEIL"),
        ("  van der Berg ", "VANDERBERG"),
        ("Ii", "II"),
        ("Lee III", "LEE"),
    ],
)
def test_names_are_spelled_as_the_lists_spell_them(text: str, plain: str):
    assert method.plain_name(text) == plain


def test_a_double_name_takes_the_part_that_is_listed(lists: dict[str, Path]):
    surnames = method.read_surnames(lists["surnames"])
    found = method.probabilities({"surname": ["Xyz-Garcia", "Garcia"]}, surnames).values
    assert found[0] == pytest.approx(found[1])


def test_suppressed_shares_divide_what_is_left(tmp_path: Path):
    (tmp_path / "s.csv").write_text(f"name,count,{','.join(PCT)}\nSMITH,100,70,20,(S),(S),4,(S)\n")
    values = method.read_surnames(tmp_path / "s.csv").values[0]
    assert values == pytest.approx([0.7, 0.2, 0.02, 0.02, 0.04, 0.02])


def test_parts_that_exclude_each_other_keep_the_first(tmp_path: Path):
    (tmp_path / "s.csv").write_text(f"name,count,{','.join(PCT)}\nSMITH,100,100,0,0,0,0,0\n")
    (tmp_path / "p.csv").write_text(f"place,{','.join(GROUPS)}\nA,0,5,0,0,0,0\nB,9,5,1,1,1,1\n")
    surnames, places = method.read_surnames(tmp_path / "s.csv"), method.read_places(tmp_path / "p.csv")
    found = method.probabilities({"surname": ["Smith"], "place": ["A"]}, surnames, None, places)
    assert found.conflicts == 1
    assert found.values[0] == pytest.approx([1, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,count\nSMITH,1\n", "no column 'pctwhite'"),
        (f"name,count,{','.join(PCT)}\nSMITH,1,50,0,0,0,0,0\n", "row 1 of the list .* do not add up to 100"),
        (f"name,count,{','.join(PCT)}\nSMITH,1,x,0,0,0,0,0\n", "no number"),
        (f"name,count,{','.join(PCT)}\nSMITH,-1,100,0,0,0,0,0\n", "numbers of at least 0"),
        (f"name,count,{','.join(PCT)}\nSMITH,1,100,0,0,0,0,0\nSmith,1,100,0,0,0,0,0\n", "twice"),
    ],
)
def test_a_list_that_cannot_be_used_says_why(text: str, said: str, tmp_path: Path):
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(fairkit.FairkitError, match=said):
        method.read_surnames(tmp_path / "s.csv")


def drawn(world: Any, rows: int, seed: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    group = rng.choice(6, rows, p=world["r"])
    pick = {key: [int(rng.choice(len(world[key][0]), p=world[key][one])) for one in group] for key in "sfg"}
    return {
        "last": [SURNAMES[one] for one in pick["s"]], "given": [FIRSTS[one] for one in pick["f"]],
        "zip": [PLACES[one] for one in pick["g"]], "race": [GROUPS[one] for one in group],
        "hired": [int(one) for one in rng.random(rows) < 0.3 + 0.3 * (group == 0)],
    }  # fmt: skip


@pytest.mark.long
def test_the_calibration_covers_where_the_world_is_as_assumed(world: Any, lists: dict[str, Path]):
    tables = (
        method.read_surnames(lists["surnames"]), method.read_first_names(lists["first"]),
        method.read_places(lists["places"]),
    )  # fmt: skip
    hits = 0
    for seed in range(60):
        people = drawn(world, 400, seed)
        names = {"surname": people["last"], "first": people["given"], "place": people["zip"]}
        values = method.probabilities(names, *tables).values
        made = method.calibration(values, people["race"])
        hits += sum(low <= 0 <= high for low, high in (one["difference_interval"] for one in made[:3]))
        assert sum(one["people"] for one in made[0]["bins"]) == 400
    assert hits >= 180 * 0.95 - 4 * math.sqrt(180 * 0.95 * 0.05)
    wrong = method.calibration(np.full((400, 6), 1 / 6), people["race"])  # a method that knows nothing
    assert wrong[0]["difference_interval"][0] > 0.2


def test_from_a_table_of_people_to_an_audit_by_probabilities(world: Any, lists: dict[str, Path], tmp_path: Path):
    people = drawn(world, 600, 1)
    people["race"] = [one.title() if i % 2 else None for i, one in enumerate(people["race"])]
    pacsv.write_csv(pa.table(people), tmp_path / "people.csv")
    spelled = [part for group in GROUPS for part in ("--label", f"{group}={group.title()}")]
    told = (
        "groups", "bifsg", tmp_path / "people.csv", "--surname", "last", "--surnames", lists["surnames"],
        "--first", "given", "--first-names", lists["first"], "--place", "zip", "--places", lists["places"],
        "--licence", "first-names=CC0 1.0", "--truth", "race", *spelled, "--output",
    )  # fmt: skip
    done = invoke(*told, tmp_path / "out.parquet")
    assert done.exit_code == 0, done.output
    assert "the licence of the places is not stated" in done.stderr
    assert "never" not in done.stdout
    assert "Not for New York City" in done.stdout
    out = pq.read_table(tmp_path / "out.parquet")
    columns = [f"bifsg_{group}" for group in GROUPS]
    assert out.column_names == ["zip", "race", "hired", *columns]  # nobody's name is in it
    assert np.allclose(sum(out.column(one).to_numpy() for one in columns), 1)
    record = json.loads((tmp_path / "out.parquet.bifsg.json").read_text("utf-8"))
    assert record["lists"]["surnames"]["licence"] == "public domain in the United States (17 U.S.C. 105)"
    assert record["lists"]["surnames"]["sha256"] == hashlib.sha256(lists["surnames"].read_bytes()).hexdigest()
    assert record["lists"]["places"]["licence"] is None
    assert record["calibration"][0]["people"] == 300
    audited = (
        "audit", "--data", tmp_path / "out.parquet", "--predictions", "decision=hired", "--format", "json",
    )  # fmt: skip
    asked = invoke(*audited, "--sensitive-probability", f"race={','.join(columns)}")
    assert asked.exit_code == 0, asked.output
    for guess in ("bifsg_black", "bifsg_black:0.5", "race+bifsg_white:0.9"):
        refused = invoke(*audited, "--sensitive", guess)
        assert refused.exit_code == 2, guess
        assert "people are not split by a guess" in refused.stderr
    again = invoke(*told, tmp_path / "out.csv")
    assert again.exit_code == 0
    assert "bifsg_white" in (tmp_path / "out.csv").read_text().splitlines()[0]


def test_what_is_typed_wrongly_writes_nothing(lists: dict[str, Path], tmp_path: Path):
    (tmp_path / "people.csv").write_text("last,zip,race\nSmith,02138,purple\n")
    (tmp_path / "done.csv").write_text("last,bifsg_white\nSmith,1\n")
    base = ("--surname", "last", "--surnames", lists["surnames"], "--output", tmp_path / "out.csv")
    people = ("groups", "bifsg", tmp_path / "people.csv")
    for arguments, said in (
        ((*people, *base, "--place", "zip"), "--place with --places"),
        ((*people, *base, "--label", "white=W"), "name that column"),
        ((*people, *base, "--truth", "race"), "purple is none of them"),
        ((*people, *base, "--truth", "race", "--label", "green=x"), "write NAME=TEXT once"),
        ((*people, "--surname", "lost", *base[2:]), "no column 'lost'"),
        (("groups", "bifsg", tmp_path / "none.csv", *base), "cannot be read"),
        (("groups", "bifsg", tmp_path / "done.csv", *base), "already"),
        ((*people, *base, "--threshold", "0.5"), "No such option"),
    ):
        done = invoke(*arguments)
        assert done.exit_code == 2, arguments
        assert said in done.stderr
        assert not (tmp_path / "out.csv").exists()
