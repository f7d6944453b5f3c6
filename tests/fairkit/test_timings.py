"""Phases add up to the whole, each without those inside it; nobody pays who does not ask."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from fairkit.support.timings import cpu_seconds, each, peak_memory, phase, running, timed


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when it is told to, with processor time at twice the speed."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr("fairkit.support.timings.cpu_seconds", lambda: 2.0 * now[0])

    def move(seconds):
        now[0] += seconds

    return move


def walls(taken):
    return {one["phase"]: one["wall_seconds"] for one in taken.to_dict()["phases"]}


def test_a_phase_is_counted_without_those_inside_it(clock):
    with timed() as taken:
        clock(1)
        with phase("search"):
            clock(2)
            with phase("score"):
                clock(4)
            clock(8)
        with phase("score"):
            clock(16)
    record = taken.to_dict()
    assert walls(taken) == {"other": 1.0, "search": 10.0, "score": 20.0}
    assert record["wall_seconds"] == 31.0
    assert record["cpu_seconds"] == 62.0
    assert record["peak_memory_mib"] is None or record["peak_memory_mib"] > 1


def test_an_error_ends_its_phase(clock):
    @phase("read")
    def fail():
        clock(1)
        raise ValueError("no")

    with timed() as taken:
        with pytest.raises(ValueError, match="no"):
            fail()
        clock(3)
    assert walls(taken) == {"other": 3.0, "read": 1.0}


def test_what_is_done_with_an_item_is_not_in_the_phase_that_made_it(clock):
    def rows():
        for _ in range(3):
            clock(1)
            yield 0
        clock(1)

    with timed() as taken:
        for _ in each("read", rows()):
            clock(10)
    assert walls(taken) == {"other": 30.0, "read": 4.0}


def test_a_function_can_be_a_phase_and_nothing_runs_without_timed(clock):
    @phase("train")
    def train():
        clock(5)
        return running()

    assert train() is None
    with timed() as taken:
        assert train() is taken
    assert running() is None
    assert walls(taken) == {"other": 0.0, "train": 5.0}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what others hold is told by Linux alone")
def test_children_that_run_are_counted_once():
    code = "x = bytearray(80 << 20)\nn = 0\nwhile n < 3_000_000: n += 1\nprint(len(x), flush=True)\ninput()"
    before, held = cpu_seconds(), peak_memory()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        running_child = cpu_seconds() - before
        assert peak_memory() - held > 60
        child.stdin.write("\n")
    ended = cpu_seconds() - before
    assert running_child > 0.05
    assert running_child - 0.02 <= ended < running_child + 0.5
