"""Commands are imported when they are asked for, and values that typer need not look at are read without pydantic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from fairkit.errors import PluginError
from fairkit_cli.lazy import Commands, group_of

seen = {}


def show(
    name: Annotated[str, typer.Argument()],
    words: Annotated[list[str] | None, typer.Option("--word")] = None,
    files: Annotated[list[Path] | None, typer.Option("--file")] = None,
    output: Annotated[Path | None, typer.Option("--output")] = None,
    count: Annotated[int, typer.Option("--count", min=0, max=9)] = 3,
    share: Annotated[float | None, typer.Option("--share")] = None,
    loud: Annotated[bool, typer.Option("--loud")] = False,
) -> None:
    """Show what was typed."""
    seen.update(locals())


def fail() -> None:
    """Never asked for."""
    raise AssertionError


PLACES = {"show": f"{__name__}:show", "other": "there_is_no_such_module:fail"}


@pytest.fixture
def call(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, type(sys)(__name__)))
    for name in ("show", "fail"):
        monkeypatch.setattr(sys.modules[__name__], name, globals()[name], raising=False)
    app = group_of(PLACES, "A group.")
    return lambda *words: CliRunner().invoke(app, list(words))


def test_values_arrive_as_typer_gives_them(call):
    done = call(
        "show", "a", "--word", "x", "--word", "1", "--file", "f", "--output", "o", "--count", "7", "--share", ".5"
    )
    assert done.exit_code == 0, done.output
    assert seen == {
        "name": "a", "words": ["x", "1"], "files": [Path("f")], "output": Path("o"), "count": 7, "share": 0.5,
        "loud": False,
    }  # fmt: skip
    assert call("show", "b", "--loud").exit_code == 0
    assert seen["count"] == 3
    assert seen["loud"] is True
    assert seen["share"] is seen["output"] is None
    assert not seen["words"]
    assert not seen["files"]


@pytest.mark.parametrize("wrong", [("--count", "many"), ("--count", "10"), ("--share", "half"), ("--unknown", "1")])
def test_what_typer_refuses_is_refused(call, wrong):
    done = call("show", "a", *wrong)
    assert done.exit_code == 2
    assert wrong[0] in done.output


def test_an_argument_that_is_missing_is_named(call):
    assert "Missing argument" in call("show").output


def test_a_command_is_imported_when_it_is_asked_for():
    found = Commands(PLACES)
    assert list(found) == ["show", "other"]
    with pytest.raises(PluginError, match="does not load"):
        found["other"]


def test_the_help_of_one_command_loads_no_other_and_no_validators():
    code = (
        "import sys; sys.argv = ['fairkit', 'audit', '--help']\nfrom fairkit_cli.main import run\n"
        "try: run()\nexcept SystemExit: pass\nprint('LOADED', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert "fairkit_cli.commands.audit" in loaded
    assert not {"pydantic", "fairkit_cli.commands.mitigate", "fairkit_cli.registry", "fairkit_cli.watch"} & loaded
