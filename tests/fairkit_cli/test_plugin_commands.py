"""A plugin brings a command by an entry point; it prints with the console that it is given."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest
import typer.main
from typer.core import TyperGroup
from typer.testing import CliRunner

from fairkit.commands import console, end
from fairkit.errors import DataError
from fairkit_cli.main import commands_of


def greet(name: str) -> None:
    """Greet somebody."""
    if name == "nobody":
        raise DataError("there is nobody to greet")
    console().say("a word aside")
    console().write(f"Hello, {name}\n")
    raise end("inconclusive")


@pytest.fixture
def invoke(monkeypatch):
    module = ModuleType("greeting_plugin")
    module.greet = greet
    monkeypatch.setitem(sys.modules, "greeting_plugin", module)
    entries = [
        EntryPoint("greet", "greeting_plugin:greet", "fairkit.commands"),
        EntryPoint("audit", "greeting_plugin:greet", "fairkit.commands"),
        EntryPoint("broken", "no_such_module:app", "fairkit.commands"),
    ]
    monkeypatch.setattr("fairkit_cli.main.entry_points", lambda group: entries)
    from fairkit_cli import main

    app = typer.Typer(cls=main.root_group(), rich_markup_mode=None)
    app.callback()(main.app.registered_callback.callback)
    return lambda *words: CliRunner().invoke(app, words)


def test_a_command_of_a_plugin_prints_and_ends_as_ours_do(invoke):
    done = invoke("greet", "you")
    assert (done.exit_code, done.stdout) == (3, "Hello, you\n")
    assert "a word aside" in done.stderr
    refused = invoke("greet", "nobody")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "there is nobody to greet" in refused.stderr


def test_a_broken_one_ends_itself_alone_and_ours_keep_their_names(invoke):
    broken = invoke("broken")
    assert broken.exit_code == 2
    assert "the command 'broken' of the module no_such_module does not load" in " ".join(broken.stderr.split())
    assert commands_of()["audit"] == "fairkit_cli.commands.audit:audit"
    listed = invoke("--help").stdout
    assert "greet" in listed
    assert "broken" in listed


def test_groups_are_of_typer(invoke):
    from fairkit_cli.main import root_group

    assert issubclass(root_group(), TyperGroup)
