"""Frontiers: the front and the picks by hand, resumed runs, failed points, processes, searches, bad input."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

import fairkit
from fairkit.objective import Objective
from fairkit_datasets.loans import loans_table
from fairkit_repair.frontiers import training as frontier_work
from fairkit_repair.frontiers.run import Choice, Judged, _moved, chance, frontier, pareto, pick
from fairkit_repair.frontiers.state import Measure, Point, State, _digest, point_key
from fairkit_repair.frontiers.training import Bounds, Sweep, parse_values

if TYPE_CHECKING:
    from fairkit_repair.frontiers.state import Frontier

AXES = ("gap:sex", "accuracy")
REWEIGH = Sweep(plugin="reweigh", vary={"strength": [0, 0.5, 1]})


def loans(rows: int = 900, seed: int = 1) -> fairkit.Dataset:
    return fairkit.load_data(
        loans_table(rows, seed), label="decision", favorable="approved", sensitive=["sex"], name="loans"
    )


def run(*sweeps: Sweep, **more: object) -> Frontier:
    return frontier(sweeps or (REWEIGH,), loans(), **{"learner": "logistic", "jobs": 1, "threads": 1} | more)


def point(gap: float, accuracy: float, better: str = "higher") -> Point:
    measures = {
        "gap:sex": Measure(value=gap, interval=None, better="lower"),
        "accuracy": Measure(value=accuracy, interval=None, better=better),
    }
    return Point(plugin="p", parameters={"gap": gap}, status="done", measures=measures)


FAILED = Point(plugin="p", parameters={}, status="failed", error="no")
POINTS = [FAILED, point(0.2, 0.9), point(0.1, 0.8), point(0.15, 0.7), point(0.1, 0.8), point(0.05, 0.6)]


def test_the_front_has_the_points_that_none_beats():
    assert pareto(POINTS, AXES) == [5, 2, 1]
    errors = [point(0.1, 3.0, "lower"), point(0.1, 2.0, "lower"), point(0.2, 2.5, "lower")]
    assert pareto(errors, AXES) == [1]
    assert pareto([FAILED], AXES) == []


JUDGED = Judged(validation=1_000, test=1_000)


def sure_point(gap: float, accuracy: float, reach: float = 0.02) -> Point:
    one = point(gap, accuracy)
    gap_measure = Measure(value=gap, interval=(max(gap - reach, 0.0), gap + reach), better="lower")
    return dataclasses.replace(one, measures={**one.measures, "gap:sex": gap_measure})


def test_picks_by_rule():
    points = [FAILED, *(sure_point(*pair) for pair in ((0.2, 0.9), (0.1, 0.8), (0.15, 0.7), (0.05, 0.6)))]
    assert pick(points, AXES, Choice(limit=0.16), JUDGED) == (2, "")
    assert pick(POINTS, AXES, Choice(alpha=1.0), JUDGED) == (1, "")
    assert pick(POINTS, AXES, Choice(alpha=0.0), JUDGED) == (5, "")
    place, remark = pick(points, AXES, Choice(limit=0.01), JUDGED)
    assert place == 4
    assert "No point keeps the limit 0.01" in remark
    assert pick([FAILED], AXES, Choice(), JUDGED)[0] is None


def test_a_constant_point_is_picked_after_all_others():
    def alike(one: Point) -> Point:
        rate = {"selection_rate": Measure(value=0.0, interval=None, better="none")}
        return dataclasses.replace(one, measures={**one.measures, **rate})

    points = [alike(sure_point(0.0, 0.9)), sure_point(0.2, 0.7)]
    assert pick(points, AXES, Choice(limit=0.1), JUDGED)[0] == 1
    assert pick(points, AXES, Choice(alpha=0.0), JUDGED)[0] == 1
    assert pick(points[:1], AXES, Choice(limit=0.1), JUDGED)[0] == 0


@pytest.mark.long
def test_a_frontier_of_constant_models_says_so():
    sweep = Sweep(plugin="fairgbm", vary={"n_estimators": [1]}, fixed={"learning_rate": 0.001, "small_groups": "error"})
    found = frontier((sweep,), loans(), jobs=1, threads=1, learner=None, choice=Choice(limit=0.1))
    constant = [one for one in found.points if one.is_constant]
    assert constant
    assert found.chosen is not None
    assert not found.points[found.chosen].is_constant


def test_a_point_at_the_limit_is_not_sure_and_one_without_an_interval_keeps_no_limit():
    at, inside, unknown = sure_point(0.05, 0.9), sure_point(0.005, 0.8), point(0.0, 0.95)
    chances = [chance(one, "gap:sex", Choice(limit=0.05), JUDGED) for one in (at, inside, unknown)]
    assert chances[0] < 0.1
    assert chances[1] > 0.95
    assert chances[2] == 0
    assert pick([at, inside, unknown], AXES, Choice(limit=0.05), JUDGED) == (1, "")
    few = chance(inside, "gap:sex", Choice(limit=0.05), Judged(validation=1_000, test=250))
    assert few < chances[1]


def test_the_chance_is_how_often_test_intervals_keep_the_limit():
    """Numbers of known error: drawn for validation and test, with the test interval of the planned width."""
    rng = np.random.default_rng(2)
    error, test_error, passed, told = 0.01, 0.014, [], []
    for _ in range(4_000):
        true = rng.uniform(0.0, 0.06)
        seen, judged = true + rng.normal(0, (error, test_error))
        reach, test_reach = 1.96 * error, 1.96 * test_error
        known = Measure(value=seen, interval=(seen - reach, seen + reach), better="lower")
        one = Point(plugin="p", parameters={}, status="done", measures={"gap:sex": known})
        told.append(chance(one, "gap:sex", Choice(limit=0.06), Judged(validation=196, test=100)))
        passed.append(abs(judged) + test_reach <= 0.06)
    assert np.mean(told) == pytest.approx(np.mean(passed), abs=0.02)


@pytest.mark.long
def test_a_limit_that_no_point_keeps_is_no_pass():
    found = run(choice=Choice(limit=0.001))
    assert not found.sure
    assert found.verdict in ("fail", "inconclusive")
    assert "No point keeps the limit 0.001" in found.notes[0]


def test_values_and_ranges():
    assert parse_values("a, b,c", "k") == ["a", "b", "c"]
    assert parse_values("0:1:5", "k") == [0, 0.25, 0.5, 0.75, 1]
    assert parse_values("0.01:100:5:log", "k") == [0.01, 0.1, 1, 10, 100]
    grid = Sweep(plugin="p", vary={"a": [1, 2], "b": ["x", "y"]}, fixed={"c": 0}).settings()
    assert grid == [{"c": 0, "a": a, "b": b} for a in (1, 2) for b in ("x", "y")]


@pytest.mark.parametrize("text", ["1,,2", "", "0:1", "1:0:5", "0:1:1", "0:1:2.5", "0:1:5:log", "a:b:c", "0:1:5:6"])
def test_values_that_make_no_sense(text: str):
    with pytest.raises(fairkit.ParameterError, match="k="):
        parse_values(text, "k")


@pytest.mark.parametrize("text", ["1", "1:0", "0:1:log", "a:b", "1:2:3"])
def test_bounds_that_make_no_sense(text: str):
    with pytest.raises(fairkit.ParameterError, match="k="):
        Bounds.parse(text, "k")


@pytest.mark.long
def test_the_picked_model_is_reported_on_rows_that_had_no_part_in_it():
    result = run()
    assert [p.name for p in result.points] == [
        "baseline", "reweigh (strength = 0)", "reweigh (strength = 0.5)", "reweigh (strength = 1)",
    ]  # fmt: skip
    assert sum(result.rows) == 900
    assert result.chosen is not None
    assert result.test is not None
    assert result.model is not None
    assert result.test.model.sha256 == result.points[result.chosen].sha256
    assert result.test.data.rows == result.rows[2]
    baseline, same = result.points[0].measures, result.points[1].measures
    assert baseline["accuracy"] == same["accuracy"]
    gaps = [result.axes(p)[0].value for p in result.points[1:]]
    assert gaps[2] < gaps[0]
    validation = {p.measures["selection_rate"].interval for p in result.points}
    assert None not in validation


@pytest.mark.long
@pytest.mark.parametrize("objective", ["rate", "cost=20:1"])
def test_every_point_has_the_objective_of_the_command(objective: str):
    sweeps = (REWEIGH, Sweep(plugin="threshold-optimizer", fixed={"constraint": "demographic_parity"}))
    result = run(*sweeps, objective=objective)
    rates = [point.measures["selection_rate"].value for point in result.points]
    assert result.objective == objective
    assert result.performance == {"rate": "precision", "cost=20:1": "net gain"}[objective]
    plain = run(REWEIGH).points[0].measures["selection_rate"].value
    if objective == "rate":
        assert rates == pytest.approx([plain] * 5, abs=0.06)  # 180 validation rows
        assert rates[0] == plain
    else:  # a false approval costs twenty times: of every model fewer are approved, and of each its own number
        assert max(rates) < plain - 0.2


def test_what_cannot_keep_the_objective_says_so():
    with pytest.raises(fairkit.ParameterError, match="rto cannot be set for the objective cost"):
        run(Sweep(plugin="rto"), objective="cost=5:1")
    with pytest.raises(fairkit.ParameterError, match="write them, as in cost=5:1"):
        run(objective="cost")
    numbers = {"accuracy": 1.0, "gap:sex": 0.0, "selection_rate": 0.9}
    measures = {name: Measure(value=v, interval=(v - 0.05, v + 0.05), better="higher") for name, v in numbers.items()}
    away = Point(plugin="p", parameters={"r": 1}, status="done", measures=measures)
    first = dataclasses.replace(
        away, measures=measures | {"selection_rate": Measure(value=0.5, interval=(0.45, 0.55), better="none")}
    )
    assert _moved([first, away], Objective(kind="rate")) == [1]
    assert pick([first, away], AXES, Choice(), JUDGED, [1]) == (0, "")


def test_interrupted_and_resumed_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = run(state=tmp_path / "whole.json")
    real, trained = frontier_work.train, []

    def stops(setup: frontier_work.Setup, job: frontier_work.Job) -> tuple[Point, bytes | None]:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(job)
        return real(setup, job)

    monkeypatch.setattr(frontier_work, "train", stops)
    with pytest.raises(KeyboardInterrupt):
        run(state=tmp_path / "state.json")
    kept = json.loads((tmp_path / "state.json").read_text())
    assert len(kept["points"]) == 2
    again = []
    monkeypatch.setattr(frontier_work, "train", lambda setup, job: again.append(job) or real(setup, job))
    resumed = run(state=tmp_path / "state.json")
    assert len(again) == 2
    assert plain(resumed) == plain(whole)
    assert resumed.model == whole.model


def plain(result: Frontier) -> dict[str, object]:
    """All but the times."""
    return dataclasses.replace(result, points=tuple(dataclasses.replace(p, seconds=0) for p in result.points)).to_dict()


@pytest.mark.long
def test_processes_give_the_same_as_one(tmp_path: Path):
    sweep = Sweep(plugin="reweigh", vary={"strength": [0, 1]})
    assert plain(run(sweep, jobs=2)) == plain(run(sweep, jobs=1))


@pytest.mark.long
def test_a_failed_point_is_shown_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch):
    real = frontier_work._fit

    def breaks(setup: frontier_work.Setup, jobs: list[frontier_work.Job]) -> list[bytes]:
        if any(parameters.get("strength") == 0.5 for _, parameters in jobs):
            raise ZeroDivisionError("half")
        return real(setup, jobs)

    monkeypatch.setattr(frontier_work, "_fit", breaks)
    result = run()
    assert [p.status for p in result.points] == ["done", "done", "failed", "done"]
    assert result.points[2].error == "ZeroDivisionError: half"
    assert "1 of 4 points failed" in result.notes[-1]
    assert 2 not in result.front


@pytest.mark.long
def test_a_damaged_model_is_trained_again(tmp_path: Path):
    sweep = Sweep(plugin="reweigh")
    first = run(sweep, state=tmp_path / "s.json")
    file = tmp_path / "s.json.models" / f"{first.points[1].sha256}.onnx"
    file.write_bytes(b"damaged")
    assert run(sweep, state=tmp_path / "s.json").points[1].sha256 == first.points[1].sha256
    assert file.read_bytes() != b"damaged"


def test_a_state_of_other_rows_is_refused(tmp_path: Path):
    State(tmp_path / "s.json", {"train": "a", "seed": 0}).add(FAILED, None)
    with pytest.raises(fairkit.DataError, match=r"points of another run: train differs; remove it"):
        State(tmp_path / "s.json", {"train": "b", "seed": 0})
    (tmp_path / "s.json").write_text("{not json")
    with pytest.raises(fairkit.DataError, match="not the state of a frontier"):
        State(tmp_path / "s.json", {})


@pytest.mark.long
def test_a_changed_state_is_refused_also_with_its_digest_made_again(tmp_path: Path):
    sweep = Sweep(plugin="reweigh")
    first = run(sweep, state=tmp_path / "s.json")
    good = (tmp_path / "s.json").read_text()
    record = json.loads(good)
    gap = record["points"][1]["measures"]["demographic_parity_difference:sex"]
    gap[0], gap[1] = 0.0, [0.0, 0.001]
    (tmp_path / "s.json").write_text(json.dumps(record))
    with pytest.raises(fairkit.DataError, match="was changed after fairkit wrote it"):
        run(sweep, state=tmp_path / "s.json")
    record["digest"] = _digest(record)
    (tmp_path / "s.json").write_text(json.dumps(record))
    with pytest.raises(fairkit.DataError, match="the measures of reweigh are not those of its model"):
        run(sweep, state=tmp_path / "s.json")
    record = json.loads(good)
    record["points"][1]["sha256"] = record["points"][0]["sha256"]  # the measures of one, the model of another
    record["digest"] = _digest(record)
    (tmp_path / "s.json").write_text(json.dumps(record))
    with pytest.raises(fairkit.DataError, match="are not those of its model"):
        run(sweep, state=tmp_path / "s.json")
    record["about"]["version"] = "0.0.1"
    record["digest"] = _digest(record)
    (tmp_path / "s.json").write_text(json.dumps(record))
    with pytest.raises(fairkit.DataError, match="another run: version differs"):
        run(sweep, state=tmp_path / "s.json")
    (tmp_path / "s.json").write_text(good)
    assert plain(run(sweep, state=tmp_path / "s.json")) == plain(first)


def test_points_come_back_from_json():
    assert [Point.from_dict(json.loads(json.dumps(p.to_dict()))) for p in POINTS] == POINTS
    assert point_key("p", {"a": 0.5, "b": 1}) == point_key("p", {"b": "1", "a": "0.5"})


@pytest.mark.long
def test_a_search_is_repeated_from_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("optuna", reason="searches need optuna: pip install 'fairkit[search]'")
    sweep = Sweep(plugin="reweigh", search={"strength": Bounds(low=0, high=1)})
    first = run(sweep, budget=5, state=tmp_path / "s.json")
    assert len({p.parameters["strength"] for p in first.points[1:]}) == 5
    monkeypatch.setattr(frontier_work, "train", lambda *_: pytest.fail("trained again"))
    assert plain(run(sweep, budget=5, state=tmp_path / "s.json")) == plain(first)


def test_errors_come_before_training(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frontier_work, "train", lambda *_: pytest.fail("trained"))
    with pytest.raises(fairkit.ParameterError, match="strength"):
        run(Sweep(plugin="reweigh", vary={"strenght": [1]}))
    with pytest.raises(fairkit.ParameterError, match="strength"):
        run(Sweep(plugin="reweigh", vary={"strength": ["much"]}))
    with pytest.raises(fairkit.PluginError, match="reweigh"):
        run(Sweep(plugin="reweihg"))
    with pytest.raises(fairkit.ParameterError, match="give it once"):
        Sweep(plugin="reweigh", fixed={"strength": 1}, vary={"strength": [1]})
    with pytest.raises(fairkit.ParameterError, match="at least one"):
        frontier([], loans())


BOUNDS = Sweep(
    plugin="fair-regression", vary={"tolerance": ["0.02", "0.05", "0.2"]}, fixed={"iterations": 4, "grid": 10}
)


@pytest.mark.long
def test_a_plugin_that_can_trains_along_its_parameter_in_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from fairkit_repair import learners

    fits, real = [], learners.fit_estimator
    for module in ("fairkit_repair.learners", "fairkit_fair_regression.learning"):
        monkeypatch.setattr(f"{module}.fit_estimator", lambda *a, **k: fits.append(1) or real(*a, **k))
    together = run(BOUNDS, state=tmp_path / "s.json")
    shared = len(fits)
    fits.clear()
    apart = run(*(dataclasses.replace(BOUNDS, vary={"tolerance": [e]}) for e in BOUNDS.vary["tolerance"]))
    assert [p.status for p in together.points] == ["done"] * 4
    assert shared < len(fits)
    assert [p.parameters for p in together.points] == [p.parameters for p in apart.points]
    assert {len(p.family) for p in together.points[1:]} == {24}
    assert {p.family for p in apart.points} == {""}
    fits.clear()
    assert plain(run(BOUNDS, state=tmp_path / "s.json")) == plain(together)
    assert not fits
    # a point that is lost is found again with its family: alone it would be another one
    file = tmp_path / "s.json.models" / f"{together.points[2].sha256}.onnx"
    file.unlink()
    assert plain(run(BOUNDS, state=tmp_path / "s.json")) == plain(together)
    assert fits


@pytest.mark.long
def test_families_differ_in_one_parameter_and_a_failed_one_is_trained_one_by_one(monkeypatch: pytest.MonkeyPatch):
    from fairkit_repair.frontiers.training import families_of

    wide = dataclasses.replace(BOUNDS, vary={"tolerance": [0.1, 0.2], "nu": [0.01, 0.02]})
    families = families_of(wide)
    assert [[job[1]["nu"] for job in family.jobs] for family in families] == [[0.01] * 2, [0.02] * 2]
    assert len({family.key for family in families}) == 2
    assert [len(family.jobs) for family in families_of(REWEIGH)] == [1, 1, 1]
    real = frontier_work._fit

    def breaks(setup: frontier_work.Setup, jobs: list[frontier_work.Job]) -> list[bytes]:
        if any(parameters.get("tolerance") == "0.05" for _, parameters in jobs):
            raise fairkit.DataError("five")
        return real(setup, jobs)

    monkeypatch.setattr(frontier_work, "_fit", breaks)
    result = run(BOUNDS)
    assert [p.status for p in result.points] == ["done", "done", "failed", "done"]
    assert result.points[2].error == "five"


# Training processes end with the command, whatever ends it, and no file holds rows.
@pytest.fixture
def command(tmp_path):
    pq.write_table(loans_table(400, 1), tmp_path / "loans.parquet")
    return [
        *(sys.executable, "-c", "from fairkit_cli.main import run; run()"),
        *(
            "frontier",
            "--plugin",
            "reweigh",
            "--plugin",
            "massaging",
            "--learner",
            "logistic",
            "--set",
            "frontier.jobs=2",
        ),
        *("--data", "loans.parquet", "--label", "decision", "--favorable", "approved", "--sensitive", "sex"),
        *("--drop", "would_repay", "--state", "state.json"),
    ]


def _children(parent: int) -> list[int]:
    """Every process below another one, that of loky which watches resources too."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if int(lines["PPid"]) == parent:
            found += [int(lines["Pid"]), *_children(int(lines["Pid"]))]
    return found


def _large(folder: Path) -> list[Path]:
    """Files that may hold rows; libraries leave empty or tiny ones."""
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 1_000]


def _gone(processes: list[int]) -> bool:
    alive = [one for one in processes if Path(f"/proc/{one}").exists()]
    return not alive or all("Z" in Path(f"/proc/{one}/stat").read_text().split()[2] for one in alive)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_and_no_rows_stay(command, tmp_path, number):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"},
    )
    until = time.monotonic() + 60
    while not (tmp_path / "state.json").exists() or len(_children(process.pid)) < 2:
        assert time.monotonic() < until
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    below = _children(process.pid)
    assert not _large(temporary)
    process.send_signal(number)
    assert process.wait(timeout=60) == (-number if number == signal.SIGKILL else 130)
    until = time.monotonic() + 60
    while not _gone(below):
        assert time.monotonic() < until, below
        time.sleep(0.05)
    assert not _large(temporary)
    if number != signal.SIGKILL:
        assert process.stderr.read().endswith(b"finished points are kept in state.json; run again to go on\n")
    assert [point["plugin"] for point in json.loads((tmp_path / "state.json").read_text())["points"]][:1] == [
        "baseline"
    ]
    process.stderr.close()
