"""A few of the damaged inputs of ``benchmarks/fuzz_input.py``: each ends with a code that the manual lists."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "fuzz_input.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz_input", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # the data are nonsense
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("settings", 30),
        ("metadata", 20),
        ("state", 18),
        ("rows", 30),
        ("watch", 24),
        ("certificates", 24),
        ("plans", 30),
    ],
)
def test_damaged_input_is_no_bug(fuzz, monkeypatch, kind, count):
    monkeypatch.setenv("XDG_STATE_HOME", "")  # set by the fuzzer, and put back here
    assert fuzz.run(kind, count) == []


def test_the_fuzzer_can_fail(fuzz, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "")

    def cases(count, rng, folder):
        for _ in range(count):
            yield fuzz.Case("settings", "x", 70, "")

    monkeypatch.setitem(fuzz.KINDS, "settings", cases)
    assert len(fuzz.run("settings", 3)) == 3
