"""Pages from certificates and packs in a browser: no fault for a screen reader, no request, no script of theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import checked, invoke

pytest.importorskip("scipy", reason="exact tests need scipy: pip install 'fairkit[packs]'")
EVIL = "<img src=http://page.invalid/x.png onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates of one table, whose groups have a hostile name, and a key."""
    here = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(4)
    sex = rng.choice([EVIL, "m"], 400)
    pq.write_table(pa.table({"sex": sex, "chosen": rng.integers(0, 2, 400)}), here / "d.parquet")
    checked("key", "new", here / "key")
    for name in ("one", "two"):
        checked(
            "certify", "--data", here / "d.parquet", "--predictions", "decision=chosen", "--sensitive", "sex",
            "--key", here / "key", "--output", here / f"{name}.json",
            "--set", f"about.owner={EVIL}",
        )  # fmt: skip
    return here


@pytest.mark.long
@pytest.mark.parametrize("pack", [None, "ugesp"])
def test_axe_finds_no_serious_fault_and_nothing_is_asked_for(
    pack: str | None, folder: Path, browse: Callable[..., Any], faults: Callable[..., list[str]]
):
    told = [folder / "one.json", folder / "two.json"] if pack is None else [folder / "one.json", "--pack", pack]
    page = invoke("report", *told, "--key", folder / "key.pub").stdout
    assert faults(page) == []
    seen = browse(page)
    assert seen.requests == []
    assert seen.console == []
    assert "<img" not in seen.dom
    assert seen.dom.count("<script") == 1
