"""The files that pages begin with, made once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `fairkit demo --keep` leaves."""
    from typer.testing import CliRunner

    from fairkit_cli.main import app

    folder = tmp_path_factory.mktemp("demo") / "loans"
    made = CliRunner().invoke(app, ["demo", "--keep", str(folder)])
    assert made.exit_code == 0, made.output
    return folder
