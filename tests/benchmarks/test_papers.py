"""The command that runs the papers' tables, and the page that it writes."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture(scope="module")
def modules():
    """The benchmarks' modules, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module


@pytest.fixture
def papers(modules):
    return modules("papers")


@pytest.fixture
def kit(modules):
    return modules("papers_kit")


@pytest.mark.long
def test_page_and_drawings_are_what_the_results_give(papers, tmp_path, capsys):
    assert papers.main(["--page", "--docs", str(tmp_path)]) == 0
    page = (tmp_path / "reference" / "papers.md").read_text("utf-8")
    again = "run `python benchmarks/papers.py --page`"
    assert page == (ROOT / "docs" / "reference" / "papers.md").read_text("utf-8"), again
    drawn = sorted((tmp_path / "images").iterdir())
    assert {path.name for path in drawn} == {p.name for p in (ROOT / "docs" / "images").glob("papers-*")}
    for path in drawn:
        assert path.read_bytes() == (ROOT / "docs" / "images" / path.name).read_bytes(), again


def test_every_difference_on_the_page_is_explained(papers, modules):
    page = modules("papers_page")
    assert page.UNEXPLAINED not in (ROOT / "docs" / "reference" / "papers.md").read_text("utf-8")
    known = [one for _, _, exhibits in papers.papers() for one in exhibits]
    names = [name for one in known for name in (one.name, *one.also)]
    assert len(set(names)) == len(names)
    assert {one.name for one in known} == set(modules("papers_kit").texts())


def test_a_difference_that_nobody_explains_is_marked(papers, modules, kit):
    page = modules("papers_page")
    exhibit = papers.chosen(["budro.table3"], papers.papers())[0]
    results = kit.load(RESULTS / "budro.table3.json")
    assert page.UNEXPLAINED not in page.section(exhibit, results)
    for run in results["runs"]:
        run["values"]["accuracy"] += 0.1
    shown = page.section(exhibit, results)
    assert page.UNEXPLAINED in shown
    assert "BuDRO, accuracy" in shown


@pytest.mark.long
def test_end_to_end_on_a_tiny_figure(papers, tmp_path, capsys):
    given = ["sensei.figure1", "--runs", "1", "--rows", "60", "--results", str(tmp_path / "r"), "--docs"]
    given.append(str(tmp_path / "d"))
    assert papers.main([*given, "--only", "rho = 0"]) == 0
    assert not (tmp_path / "d" / "images").exists()  # a drawing compares all methods
    assert papers.main(given) == 0
    results = json.loads((tmp_path / "r" / "sensei.figure1.json").read_text("utf-8"))
    assert results["rows"] == 60
    share = {run["method"]: run["values"]["x₁'s share of the slope"] for run in results["runs"]}
    assert share["rho = 0"] > share["rho = 10"]
    page = (tmp_path / "d" / "reference" / "papers.md").read_text("utf-8")
    assert f"| rho = 0 | {share['rho = 0']:.3f} |" in page
    assert "1 run of each, 60 rows" in page
    assert "papers-sensei-figure1.svg" in page
    assert (tmp_path / "d" / "images" / "papers-sensei-figure1.svg").read_text("utf-8").startswith("<svg")
    before = (tmp_path / "r" / "sensei.figure1.json").read_bytes()
    assert papers.main(given) == 0  # nothing is missing now
    assert (tmp_path / "r" / "sensei.figure1.json").read_bytes() == before
    kept = {run["method"]: run for run in results["runs"]}
    assert papers.main([*given, "--only", "rho = 10", "--fresh"]) == 0  # forgets that method alone
    again = json.loads((tmp_path / "r" / "sensei.figure1.json").read_text("utf-8"))["runs"]
    assert [run["method"] for run in again] == list(kept)
    assert all(run["values"] == kept[run["method"]]["values"] for run in again)
    given[given.index("60")] = "70"  # other rows are not mixed with these
    capsys.readouterr()
    assert papers.main(given) == 2
    assert "--fresh" in capsys.readouterr().err


def _damaged(path):
    path.write_text("{not json", "utf-8")


def _foreign(path):
    path.write_text('{"schema": "another/1", "runs": []}', "utf-8")


@pytest.mark.parametrize("spoil", [_damaged, _foreign])
def test_damaged_results_are_one_message(papers, tmp_path, capsys, spoil):
    spoil(tmp_path / "budro.table1.json")
    before = (tmp_path / "budro.table1.json").read_bytes()
    given = ["budro.table1", "--results", str(tmp_path), "--docs", str(tmp_path / "docs")]
    assert papers.main(given) == 2
    shown = capsys.readouterr().err
    assert "budro.table1.json" in shown
    assert "Traceback" not in shown
    assert (tmp_path / "budro.table1.json").read_bytes() == before
    assert not (tmp_path / "docs").exists()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["budro.tabel1"], "budro.table1"),
        (["nothing"], "--list"),
        (["budro.table1", "--only", "Budro"], "there are BuDRO"),
    ],
)
def test_unknown_names_are_one_message(papers, tmp_path, capsys, given, expected):
    given = [*given, "--results", str(tmp_path), "--docs", str(tmp_path)]
    assert papers.main(given) == 2
    shown = capsys.readouterr().err
    assert expected in shown
    assert shown.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_more_runs_than_there_are_is_said(papers, kit):
    exhibit = papers.chosen(["budro.table1"], papers.papers())[0]
    assert list(exhibit.asked("BuDRO", 3)) == [0, 1, 2]
    assert len(exhibit.asked("BuDRO", None)) == len(exhibit.asked("BuDRO", 20)) == 10
    told = []
    kit.run(exhibit, RESULTS / "budro.table1.json", count=20, log=told.append)  # all ten are kept
    assert told == [f"budro.table1  {method}: 10 runs are all there are" for method in exhibit.methods]


def test_wrong_sizes_are_refused(papers, capsys):
    with pytest.raises(SystemExit) as caught:
        papers.main(["budro.table1", "--runs", "0"])
    assert caught.value.code == 2
    assert "from 1 on" in capsys.readouterr().err


def test_missing_data_are_one_message(papers, modules, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FAIRKIT_DATA", str(tmp_path))
    modules("paper_budro_data").frame.cache_clear()
    modules("paper_budro_data").split.cache_clear()
    modules("paper_fairgbm").parts.cache_clear()
    for name, file in (
        ("budro.table1", "german"),
        ("fairgbm.table2", "acs_income"),
        ("rto.table1", "adult"),
        ("fair-regression.figure1", "adult"),
    ):
        given = [name, "--results", str(tmp_path / "r"), "--docs", str(tmp_path / "d")]
        assert papers.main(given) == 2
        shown = capsys.readouterr().err
        assert f"{file}.parquet does not exist" in shown
        assert shown.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    assert papers.main(["--list"]) == 0
    assert "data not shipped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ours", "theirs", "met"),
    [
        ((0.70, 0.1), (0.71, 0.005), True),
        ((0.70, 0.1), (0.711, 0.005), False),  # not rescued by our own spread
        ((0.70, 0.01), (0.72, None), True),  # theirs has none: ours counts
        ((0.70, None), (0.72, None), False),
        ((0.9996, 0.0), (1.0, 0.0), True),  # what rounding to three digits hides
        ((0.999, 0.0), (1.0, 0.0), False),
    ],
)
def test_two_standard_deviations(kit, ours, theirs, met):
    assert kit.within(ours, theirs) is met


def test_a_choice_among_bootstraps_follows_validation_and_reports_test(modules):
    fairgbm = modules("paper_fairgbm")
    rng = np.random.default_rng(3)
    values = [{"valid": rng.random(3).tolist(), "test": rng.random(3).tolist()} for _ in range(5)]
    runs = [{"method": "EG", "run": k, "values": one} for k, one in enumerate(values)]
    drawn = fairgbm.chosen(runs, "EG", 0.75)  # a fifth of five is one: all are chosen alike often
    expected = np.mean([one["test"] for one in values], axis=0)
    assert np.abs(drawn.mean(axis=0) - expected).max() < 0.05
    many = [{"method": "EG", "run": k, "values": values[k % 5]} for k in range(500)]
    merits = [0.75 * one["valid"][0] + 0.25 * one["valid"][1] for one in values]
    best = values[int(np.argmax(merits))]["test"]  # a hundred draws always hold the best
    assert np.allclose(fairgbm.chosen(many, "EG", 0.75), best)


def test_the_envelope_is_convex_and_below(modules):
    pytest.importorskip("fairlearn")
    gaps, losses = np.array([0.0, 0.1, 0.2, 0.4]), np.array([1.0, 0.9, 0.4, 0.0])
    found = modules("paper_fair_regression").envelope(gaps, losses)
    assert np.allclose(found, [1.0, 0.7, 0.4, 0.0])
    assert (np.diff(np.diff(found) / np.diff(gaps)) >= -1e-12).all()


@pytest.mark.parametrize(("data", "train", "test"), [("german", 800, 200), ("compas", 4222, 1056)])
def test_splits_have_the_papers_sizes(modules, public_data, monkeypatch, data, train, test):
    monkeypatch.setenv("FAIRKIT_DATA", str(public_data))
    made = modules("paper_budro_data")
    made.frame.cache_clear()
    for number in (0, 9):
        first, second = made.order(data, number, made.frame(data))
        assert (len(first), len(second)) == (train, test)
        assert not set(first) & set(second)


@pytest.mark.long
def test_a_kept_run_can_be_had_again(modules, kit, public_data, monkeypatch):
    monkeypatch.setenv("FAIRKIT_DATA", str(public_data))
    made = modules("paper_budro_data")
    made.frame.cache_clear()
    made.split.cache_clear()
    results = kit.load(RESULTS / "budro.table3.json")
    kept = next(one["values"] for one in results["runs"] if (one["method"], one["run"]) == ("Reweigh", 0))
    found = modules("paper_budro").computed("compas")("Reweigh", 0, None)
    for column in ("accuracy", "G-cons", "R-cons", "race gap rms"):
        assert found[column] == pytest.approx(kept[column], abs=0.01)
