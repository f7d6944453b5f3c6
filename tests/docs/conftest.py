"""The files that pages begin with, made once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `fairkit demo --keep` leaves."""
    from tests.commands import checked

    folder = tmp_path_factory.mktemp("demo") / "loans"
    checked("demo", "--keep", folder)
    return folder
