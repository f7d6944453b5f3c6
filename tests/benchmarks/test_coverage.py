"""Populations with known truths, and what measures anybody's intervals on them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fairkit.errors import ParameterError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from coverage_study import Coverage, Runner, chosen_populations, coverage_of
from populations import Population, populations

EVERYTHING = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"id": asked["id"], "low": 0, "high": 1}), flush=True)
"""


def runner(tmp_path: Path, text: str) -> str:
    path = tmp_path / "runner.py"
    path.write_text(text, "utf-8")
    return f"{sys.executable} {path}"


def test_there_are_365_populations_and_those_found_since() -> None:
    every = list(populations())
    assert sum(one.family not in ("rare", "clusters") for one in every) == 365
    assert len({(one.family, one.name) for one in every}) == len(every) >= 390


@pytest.mark.parametrize("place", range(0, 394, 17))
def test_tables_have_columns_of_one_length(place: int) -> None:
    columns = list(populations())[place].draw(np.random.default_rng(0))
    assert len({len(values) for values in columns.values()}) == 1
    assert {"decision", "score"} & set(columns)


_NUMBERS = {
    "selection_rate": lambda c: np.average(c["decision"], weights=c.get("weight")),
    "mean_absolute_error": lambda c: np.abs(c["score"] - c["outcome"]).mean(),
    "mean_squared_error": lambda c: ((c["score"] - c["outcome"]) ** 2).mean(),
    "brier_score": lambda c: ((c["score"] - c["outcome"]) ** 2).mean(),
}


@pytest.mark.parametrize("metric", sorted(_NUMBERS))
def test_truths_are_those_of_many_samples(metric: str) -> None:
    rng = np.random.default_rng(5)
    chosen = [p for p in populations() if p.metric == metric and p.comparison == "level" and "heavy" not in p.name]
    steady = [p for p in chosen if not any(word in p.name for word in ("Pareto", "Student", "lognormal"))]
    assert steady
    for population in steady[::4]:
        values = np.array([_NUMBERS[metric](population.draw(rng)) for _ in range(400)])
        error = values.std() / 20
        assert abs(values.mean() - population.truth) < 5 * error + 0.01 * population.truth, population.name


def test_a_runner_is_measured(tmp_path: Path) -> None:
    cells = chosen_populations(["rate", "clusters"], every=6)
    with Runner(runner(tmp_path, EVERYTHING)) as running:
        found = list(coverage_of(running, cells, samples=3, seed=0, confidence=0.95))
    assert [one.covers for one in found] == [1.0] * len(cells)
    assert {one.width for one in found} == {1.0}
    assert all(one.holds for one in found)


def test_an_interval_that_is_always_too_low_passes_falsely(tmp_path: Path) -> None:
    text = EVERYTHING.replace('"low": 0, "high": 1', '"low": 0, "high": 0')
    cells = chosen_populations(["means"], every=20)
    with Runner(runner(tmp_path, text)) as running:
        found = list(coverage_of(running, cells, samples=60, seed=0, confidence=0.95))
    assert all(one.covers == 0.0 and one.false_pass == 1.0 and not one.holds for one in found)


def test_what_is_noted_neither_misses_nor_passes(tmp_path: Path) -> None:
    text = EVERYTHING.replace('"low": 0, "high": 1', '"low": None, "high": None')
    with Runner(runner(tmp_path, text)) as running:
        (one,) = coverage_of(running, chosen_populations(["rate"])[:1], samples=3, seed=0, confidence=0.95)
    assert (one.covers, one.noted, one.false_pass, one.width) == (1.0, 1.0, 0.0, None)


def test_equal_seeds_give_equal_samples_whatever_else_is_chosen(tmp_path: Path) -> None:
    echoing = EVERYTHING.replace('"high": 1', '"high": sum(asked["columns"]["decision"])')
    path = runner(tmp_path, echoing)
    with Runner(path) as running:
        every = list(coverage_of(running, chosen_populations(["rate"]), samples=2, seed=3, confidence=0.95))
    with Runner(path) as running:
        last = list(coverage_of(running, chosen_populations(["rate"])[-1:], samples=2, seed=3, confidence=0.95))
    assert every[-1] == last[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys; sys.exit(4)", "exit code 4"),
        ("print('hello', flush=True); input()", "is not JSON"),
        (EVERYTHING.replace('asked["id"]', "7_000"), "the request's id"),
        (EVERYTHING.replace('"low": 0', '"low": "a"'), "numbers or null"),
        (EVERYTHING.replace('"low": 0', '"low": 2'), "above its `high`"),
    ],
)
def test_a_runner_that_breaks_the_protocol_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ParameterError, match=words), Runner(runner(tmp_path, text)) as running:
        list(coverage_of(running, chosen_populations(["rate"])[:1], samples=1, seed=0, confidence=0.95))


def test_which_side_is_worse() -> None:
    sides = {(p.metric, p.comparison): p.worse for p in populations()}
    assert sides["selection_rate", "difference"] == "lower"
    assert sides["selection_rate", "ratio"] == sides["r2_score", "level"] == "higher"
    assert sides["selection_rate", "level"] == "either"
    assert isinstance(next(populations()), Population)


def test_a_family_that_is_none_is_named() -> None:
    with pytest.raises(ParameterError, match="no family"):
        chosen_populations(["rates"])


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(ParameterError, match="could not be started"):
        Runner("no-such-command-at-all")


def test_a_cell_holds_within_simulation_error() -> None:
    def cell(**changes: float) -> Coverage:
        about = {"family": "f", "name": "n", "metric": "m", "comparison": "level", "truth": 0.0, "samples": 100}
        return Coverage(**(about | {"covers": 0.95, "noted": 0.0, "false_pass": 0.0, "width": 1.0} | changes))  # type: ignore[arg-type]

    assert cell().holds
    assert cell(covers=0.88).holds
    assert not cell(covers=0.85).holds
    assert not cell(false_pass=0.1).holds
