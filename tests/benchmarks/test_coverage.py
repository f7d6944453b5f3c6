"""Populations with known truths, and what measures anybody's intervals on them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fairkit.errors import ParameterError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from coverage_study import Answer, Coverage, chosen_populations, coverage_of, load
from populations import Population, populations


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


def everything(metric: str, comparison: str, confidence: float, columns: object) -> Answer:
    return 0.0, 1.0, False


def test_a_runner_is_measured() -> None:
    found = [coverage_of(everything, one, 3, 0) for one in chosen_populations(["rate", "clusters"], every=6)]
    assert {(one.covers, one.width) for one in found} == {(1.0, 1.0)}
    assert all(one.holds for one in found)


def test_an_interval_that_is_always_too_low_passes_falsely() -> None:
    for population in chosen_populations(["means"], every=20):
        one = coverage_of(lambda *_: (0.0, 0.0, False), population, 60, 0)
        assert (one.covers, one.false_pass, one.holds) == (0.0, 1.0, False)


def test_what_is_noted_neither_misses_nor_passes() -> None:
    one = coverage_of(lambda *_: (None, None, False), chosen_populations(["rate"])[0], 3, 0)
    assert (one.covers, one.noted, one.false_pass, one.width) == (1.0, 1.0, 0.0, None)
    assert coverage_of(lambda *_: None, chosen_populations(["rate"])[0], 3, 0).covers is None


def test_equal_seeds_give_equal_samples() -> None:
    def count(metric: str, comparison: str, confidence: float, columns: dict) -> Answer:
        return 0.0, float(columns["decision"].sum()), False

    population = chosen_populations(["rate"])[-1]
    assert coverage_of(count, population, 2, 3) == coverage_of(count, population, 2, 3)
    assert coverage_of(count, population, 2, 3) != coverage_of(count, population, 2, 4)


def test_counts_are_enumerated_with_their_chances() -> None:
    """Of one rate of 30 at 1/30 the interval that is cut off at one favorable decision misses where two are."""
    population = next(one for one in chosen_populations(["rate"]) if one.name == "one rate, n 30, n p 1")
    one = coverage_of(
        lambda *a: (0.0, 1.0 if a[3]["decision"].sum() <= 1 else 0.01, False), population, 0, 0, enumerated=True
    )
    assert one.covers == pytest.approx((29 / 30) ** 30 + (29 / 30) ** 29, abs=1e-5)
    assert one.samples == 0
    assert not one.holds


@pytest.mark.parametrize("text", ["", "def ask(): ..."])
def test_a_file_that_is_no_runner_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "runner.py"
    if text:
        path.write_text(text, "utf-8")
    with pytest.raises(ParameterError, match="answer"):
        load(path)


def test_which_side_is_worse() -> None:
    sides = {(p.metric, p.comparison): p.worse for p in populations()}
    assert sides["selection_rate", "difference"] == "lower"
    assert sides["selection_rate", "ratio"] == sides["r2_score", "level"] == "higher"
    assert sides["selection_rate", "level"] == "either"
    assert isinstance(next(populations()), Population)


def test_a_family_that_is_none_is_named() -> None:
    with pytest.raises(ParameterError, match="no family"):
        chosen_populations(["rates"])


def test_a_cell_holds_within_simulation_error() -> None:
    def cell(**changes: float) -> Coverage:
        about = {"population": next(populations()), "samples": 100, "covers": 0.95}
        return Coverage(**(about | changes))

    assert cell().holds
    assert cell(covers=0.88).holds
    assert not cell(covers=0.85).holds
    assert not cell(covers=0.88, samples=0).holds
    assert not cell(false_pass=0.1).holds
