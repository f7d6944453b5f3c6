"""What the command does before a subcommand runs: its help, lazy commands, and those of plugins."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
import typer
import typer.main
from tests.commands import invoke
from typer.core import TyperGroup
from typer.testing import CliRunner

from fairkit.commands import console, end
from fairkit.errors import DataError, PluginError
from fairkit.support.escaping import number
from fairkit_cli import registry, watch
from fairkit_cli.helping import MANY, summary
from fairkit_cli.lazy import Commands, group_of
from fairkit_cli.main import _COMMANDS, _main, app, commands_of


@pytest.mark.parametrize(("given", "wanted"), [(None, "passive"), ("active", "active")])
def test_threads_wait_quietly_unless_told_otherwise(monkeypatch, given, wanted):
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    _main()
    assert os.environ["OMP_WAIT_POLICY"] == wanted


def test_libraries_that_were_imported_without_their_docstrings_are_whole():
    """What stood in for a part of them is gone, and the part is there for who asks for it."""
    code = (
        "import sys; from fairkit_cli.process_environment import load_compute; load_compute()\n"
        "assert 'pyarrow.vendored.docscrape' not in sys.modules\n"
        "import pyarrow.compute as pc, pyarrow.vendored.docscrape as docs\n"
        "assert docs.NumpyDocString('A text.')['Summary'] == ['A text.']\n"
        "print(pc.min_max([3, 1]).as_py())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'min': 1, 'max': 3}"


def test_a_look_at_a_table_loads_no_pandas_and_no_other_auditor(loans_model):
    arguments = ["fairkit", "data", str(loans_model.data), "--label", "decision", "--sensitive", "sex"]
    code = (
        f"import sys; sys.argv = {arguments!r}\nfrom fairkit_cli.main import app\n"
        "try: app()\nexcept SystemExit: pass\nprint('LOADED', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert "fairkit_data" in loaded
    assert not {"pandas", "fairkit_all_inputs", "fairkit_why", "onnxruntime"} & loaded


def test_nothing_is_below_nothing():
    assert (number(-0.0), number(-0.02)) == ("0.000", "-0.020")


def test_the_demo_of_the_base_install_names_the_extra(tmp_path):
    hidden = "import sys; sys.modules['lightgbm'] = None; from fairkit_cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "demo"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "fairkit: lightgbm is not installed; fix it with: pip install 'fairkit[all]'\n"
    assert done.stdout == ""


# Help in groups: every option once, the six first; the list of commands without importing one.
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


@pytest.mark.parametrize(
    "words", ["registry alias", "registry import", "registry export", "policy lock", "key new", "verify", "ask run"]
)
def test_help_names_no_type_of_python_and_groups_many_options(words):
    text = invoke(*words.split(), "--help").stdout
    assert not re.search(r"<[a-z]+", text)
    assert ("First:" in text) == (len(re.findall(r"^  -", text, re.MULTILINE)) > MANY)


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


# Commands are imported when they are asked for, and values that typer need not look at are read without pydantic.
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


OTHERS = {"show": f"{__name__}:show", "other": "there_is_no_such_module:fail"}


@pytest.fixture
def call(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, type(sys)(__name__)))
    for name in ("show", "fail"):
        monkeypatch.setattr(sys.modules[__name__], name, globals()[name], raising=False)
    app = group_of(OTHERS, "A group.")
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
    found = Commands(OTHERS)
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


# A plugin brings a command by an entry point; it prints with the console that it is given.
def greet(name: str) -> None:
    """Greet somebody."""
    if name == "nobody":
        raise DataError("there is nobody to greet")
    console().say("a word aside")
    console().write(f"Hello, {name}\n")
    raise end("inconclusive")


@pytest.fixture
def greeting(monkeypatch):
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


def test_a_command_of_a_plugin_prints_and_ends_as_ours_do(greeting):
    done = greeting("greet", "you")
    assert (done.exit_code, done.stdout) == (3, "Hello, you\n")
    assert "a word aside" in done.stderr
    refused = greeting("greet", "nobody")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "there is nobody to greet" in refused.stderr


def test_a_broken_one_ends_itself_alone_and_ours_keep_their_names(greeting):
    broken = greeting("broken")
    assert broken.exit_code == 2
    assert "the command 'broken' of the module no_such_module does not load" in " ".join(broken.stderr.split())
    assert commands_of()["audit"] == "fairkit_cli.commands.audit:audit"
    listed = greeting("--help").stdout
    assert "greet" in listed
    assert "broken" in listed


def test_groups_are_of_typer(greeting):
    from fairkit_cli.main import root_group

    assert issubclass(root_group(), TyperGroup)
