"""Help in groups: every option once, the six first; the list of commands without importing one."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import typer.main
from tests.commands import invoke

from fairkit_cli import registry, watch
from fairkit_cli.helping import summary
from fairkit_cli.main import _COMMANDS, app

PLACES = {**_COMMANDS, **watch._COMMANDS, **{f"registry {name}": at for name, at in registry._COMMANDS.items()}}


@pytest.mark.parametrize("name", PLACES)
def test_the_summary_is_the_commands_own(name):
    import inspect
    from importlib import import_module

    module, _, attribute = PLACES[name].partition(":")
    found = getattr(import_module(module), attribute)
    own = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)
    assert summary(PLACES[name]) == inspect.cleandoc(own)


@pytest.mark.parametrize("name", ["audit", "certify", "mitigate", "compare"])
def test_every_option_is_in_one_group(name):
    text = invoke(name, "--help").stdout
    shown = re.findall(r"^  (--[a-z-]+)", text.partition("First:\n")[2], re.MULTILINE)
    assert len(shown) == len(set(shown))
    command = typer.main.get_command(app).commands[name]
    options = [one for one in command.params if one.param_type_name == "option"]
    assert {one.opts[0] for one in options if one.opts[0] != "--help"} <= set(shown)
    titles = re.findall(r"^([A-Z][a-z]+):$", text, re.MULTILINE)
    assert titles[titles.index("First") :][0] == "First"
    assert "More" not in titles
    assert "Options" not in titles
    first = text.partition("First:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  (--[a-z-]+)", first, re.MULTILINE)[:4] == [
        "--data", "--label", "--favorable", "--sensitive",
    ]  # fmt: skip
    assert len(re.findall(r"^  --", first, re.MULTILINE)) in (5, 6)


def test_the_list_of_commands_imports_none():
    code = (
        "import sys; sys.argv = ['fairkit', '--help']\nfrom fairkit_cli.main import run\n"
        "try: run()\nexcept SystemExit: pass\nprint('LOADED', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    listed = " ".join(done.stdout.split())
    assert (
        "init Ask at most six questions, name the metrics that fit with the reasons, and write a fairkit.toml."
        in listed
    )
    assert "..." not in done.stdout.partition("Begin:")[2].partition("LOADED")[0].replace("URL ...", "")
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    modules = {place.partition(":")[0] for place in _COMMANDS.values()}
    assert not modules & loaded
    assert not {"numpy", "pyarrow", "rich"} & loaded
