"""Synthetic decisions, and a short way to begin a watch."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairkit import Rule, Watch

FIRST = datetime.date(2024, 1, 1)
DPD = "demographic_parity_difference:sex=0.05"


def _day(t: int) -> str:
    """The day t of all examples."""
    return (FIRST + datetime.timedelta(t)).isoformat()


def _decisions(t: int, *, rows: int = 600, gap: float = 0.0, seed: int = 0, **more: Any) -> dict[str, Any]:
    """Draw a day's decisions: 40 % women; men are approved more often by `gap`."""
    rng = np.random.default_rng([seed, t])
    sex = np.where(rng.random(rows) < 0.4, "f", "m")
    outcome = (rng.random(rows) < 0.5).astype(int)
    chance = 0.3 + 0.1 * outcome + np.where(sex == "m", gap, 0.0)
    return {
        "decision": (rng.random(rows) < chance).astype(int),
        "sex": sex.tolist(),
        "outcome": outcome,
        "id": [f"{t}-{seed}-{i}" for i in range(rows)],
        "score": chance,
        **more,
    }


@pytest.fixture
def begun(tmp_path: Path) -> Any:
    """Begin a watch of the difference in selection rates, or of other rules."""

    def begin(folder: str = "watch", *rules: tuple[str, str], **settings: Any) -> Watch:
        policy = [Rule.parse(text, kind) for text, kind in rules or ((DPD, "max"),)]
        told = {"decision": "decision", "sensitive": ["sex"], "groups": {"sex": ["f", "m"]}, **settings}
        return Watch.create(tmp_path / folder, policy, **told)

    return begin


@pytest.fixture
def day() -> Any:
    """The day t of all examples, as text."""
    return _day


@pytest.fixture
def decisions() -> Any:
    """A day's decisions."""
    return _decisions
