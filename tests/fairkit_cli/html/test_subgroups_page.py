"""The section of groups that nobody named, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fairkit
from fairkit.results.report import Report  # noqa: TC001 -- pytest reads annotations
from fairkit_cli.formats import html as report_page


@pytest.fixture(scope="module")
def planted() -> Report:
    """Decisions that treat young people from the north worse."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    rows = 8_000
    region, age = rng.choice(["north", "south", "east"], rows), rng.integers(18, 80, rows)
    worse = (region == "north") & (age < 35)
    said = rng.random(rows) < np.where(worse, 0.2, 0.6)
    data = fairkit.load_data(
        {"region": region, "age": age, "said": said.astype(int), "y": (rng.random(rows) < 0.5).astype(int)},
        label="y",
        favorable=1,
        sensitive=["region", "age:35:60"],
    )
    return fairkit.audit(fairkit.PredictedColumns(decision="said"), data, auditors=["subgroups"])


@pytest.mark.long
@pytest.mark.parametrize("flags", [(), ("--blink-settings=preferredColorScheme=0",)])
def test_axe_finds_no_serious_fault(faults: Callable[..., list[str]], planted: Report, flags: tuple[str, ...]):
    page = report_page(planted)
    assert "Groups that nobody named" in page
    assert "north" in page
    assert faults(page, *flags) == []


@pytest.mark.long
def test_a_browser_opens_it_without_errors_or_requests(browse: Callable[..., Any], planted: Report):
    visit = browse(report_page(planted))
    assert visit.console == []
    assert visit.requests == []
