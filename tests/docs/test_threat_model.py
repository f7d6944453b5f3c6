"""The page on threats names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_exists():
    page = (ROOT / "docs" / "explanation" / "threat-model.md").read_text("utf-8")
    named = re.findall(r"`(test_\w+)::(test_\w+)`", page)
    assert len(named) > 20
    files = {path.stem: path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    assert [f"{file}::{name}" for file, name in named if f"def {name}(" not in files.get(file, "")] == []
    alone = set(re.findall(r"`(test_\w+)`", page))
    assert {name for name in alone if not any(f"def {name}(" in text for text in files.values())} == set()
