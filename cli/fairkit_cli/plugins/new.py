"""`fairkit plugins new`: an installable plugin project with passing tests."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit.errors import ParameterError, did_you_mean
from fairkit.support.files import FileError, explain
from fairkit_cli import options as opt
from fairkit_cli.options import option
from fairkit_cli.terminal.output import FAILED, echo, print_json

if TYPE_CHECKING:
    from fairkit_testing import Outcome


KINDS = (
    "metric", "auditor", "mitigator", "mitigator-in", "mitigator-post", "learner", "evidence-chart", "source", "pack",
)  # fmt: skip
"""What a project can be of; `mitigator` changes rows before training, the others training itself or a given model."""
TEMPLATE = Path(__file__).parent / "template"

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_SUMMARIES = {
    "metric": "The mean score of those who are refused.",
    "auditor": "The share of rows whose score is near the threshold.",
    "mitigator": "Rows weighted so that every group counts the same.",
    "mitigator-in": "Training again with more weight on the group that is accepted less.",
    "mitigator-post": "A threshold for each group, so that equal shares are accepted.",
    "learner": "Extremely randomized trees as a learner by name.",
    "evidence-chart": "How long people of each group wait, as a table and a picture.",
    "source": "A file with a JSON record in each line, as a table.",
    "pack": "What the house rules on hiring tools ask of an audit, item by item.",
}
_DATA = "--data loans.csv --label decision --favorable approved --sensitive sex"
_USAGE = {
    "metric": f"fairkit audit model.onnx {_DATA}   # every audit measures it now",
    "auditor": f"fairkit audit model.onnx {_DATA} --auditor {{name}}",
    "mitigator": f"fairkit mitigate --plugin {{name}} {_DATA} --output fair.onnx",
    "mitigator-in": f"fairkit mitigate --plugin {{name}} {_DATA} --output fair.onnx",
    "mitigator-post": f"fairkit mitigate --plugin {{name}} --model model.onnx {_DATA} --output fair.onnx",
    "learner": f"fairkit mitigate --plugin reweigh --learner {{name}} {_DATA} --output fair.onnx",
    "evidence-chart": f"fairkit audit model.onnx {_DATA} --format html --output report.html",
    "source": "fairkit audit model.onnx --data {name}:people.jsonl --label hired --favorable 1 --sensitive sex",
    "pack": "fairkit report audit.json --key auditor.pub --pack {name} --facts facts.toml --output summary.html",
}
_TRAINS = ("mitigator", "mitigator-in", "mitigator-post", "learner")
"""Kinds whose contract checks train with every learner of ours."""

NewName = Annotated[str, typer.Argument(metavar="NAME", help="What users will type: lower-case-words.")]
Kind = Annotated[str, option("--kind", "KIND", f"{', '.join(KINDS[:-1])} or {KINDS[-1]}.")]
Folder = Annotated[Path | None, option("--output", "FOLDER", "Where; default: fairkit-NAME, here.")]


def new(name: NewName, kind: Kind = "metric", output: Folder = None) -> None:
    """Write a new plugin project: installable, documented, with passing tests."""
    from fairkit import plugins

    folder = write_project(name, kind, output)
    echo(
        f"{folder} is a plugin that works. Next:",
        "",
        f"    cd {shlex.quote(str(folder))}",
        "    pip install --editable '.[test]'",
        "    pytest",
        f"    fairkit plugins show {name}",
    )
    if any(info.name == name and info.distribution == plugins.FILE for info in plugins.find()):
        echo("", f"{plugins.FILES} names a file of that name: take it out before you install the project.")


def write_project(name: str, kind: str, output: Path | None = None) -> Path:
    """Write the project and return its folder; nothing is written where anything is wrong."""
    if kind not in KINDS:
        raise ParameterError(f"there is no kind of plugin {kind!r}. {did_you_mean(kind, KINDS, what='kinds')}")
    _check_name(name)
    folder = Path(f"fairkit-{name}") if output is None else output
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ParameterError(f"{folder} exists already; give another place with --output FOLDER")
    if not folder.absolute().parent.is_dir():
        raise ParameterError(f"the folder {folder.absolute().parent} does not exist; make it first")
    try:
        _write_files(folder, project_files(name, kind))
    except OSError as error:
        raise FileError(explain(error, "cannot write", folder)) from error
    return folder


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix=".fairkit-new-", dir=folder.absolute().parent) as temporary:
        project = Path(temporary) / "project"
        for target, text in files.items():
            path = project / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if folder.exists():
            folder.rmdir()
        shutil.move(project, folder)


def project_files(name: str, kind: str) -> dict[str, str]:
    """Return the project's files by path."""
    from importlib.metadata import version

    from fairkit.hookspecs import INTERFACE

    parts = name.split("-")
    snake = "_".join(parts)
    values = {
        "name": name,
        "metric": snake,
        "module": f"fairkit_{snake}",
        "distribution": f"fairkit-{name}",
        "cls": "".join(word.capitalize() for word in parts),
        "title": " ".join(parts).capitalize(),
        "summary": _SUMMARIES[kind],
        "usage": _USAGE[kind].format(name=name),
        "fairkit": version("fairkit"),
        "interface": str(INTERFACE),
        "citekey": f"fairkit_{snake}",
        "year": str(date.today().year),
        "test_extras": '"fairkit[lightgbm,sklearn,xgboost]", ' if kind in _TRAINS else "",
        "more": ', "scikit-learn"' if kind == "learner" else "",
    }
    sources = {
        "pyproject.toml": "pyproject.toml",
        f"{values['module']}.py": f"{kind}.py",
        "tests/test_contract.py": "test_contract.py",
        f"tests/test_{snake}.py": f"test_{kind}.py",
        "README.md": "README.md",
        ".github/workflows/tests.yml": "ci.yml",
        ".gitignore": "gitignore",
    }
    return {
        target: Template((TEMPLATE / f"{source}.txt").read_text("utf-8")).substitute(values)
        for target, source in sources.items()
    }


def _check_name(name: str) -> None:
    from fairkit import plugins

    if not _NAME.fullmatch(name):
        raise ParameterError(
            f"{name!r} cannot be a plugin's name: it is lower case words joined by hyphens, such as score-gap"
        )
    # a file of that name is how most plugins begin
    taken = next((info for info in plugins.find() if info.name == name and info.distribution != plugins.FILE), None)
    if taken is not None:
        raise ParameterError(
            f"{taken.distribution} has a plugin {name!r} already; two of one name cannot be installed together"
        )


# `fairkit plugins check`: the contract checks on any installed plugin.


PluginName = Annotated[str, typer.Argument(metavar="NAME", help="The plugin's name.")]
Settings = Annotated[
    list[str] | None, opt.option("--set", "KEY=VALUE", "A parameter of the plugin for the checks; repeatable.")
]


def check(name: PluginName, settings: Settings = None, output_format: opt.TableFormat = "table") -> None:
    """Run the contract checks on a plugin. Exit code 1: at least one failed."""
    from fairkit.parameters import split_assignment
    from fairkit_testing import run_checks

    outcomes = []
    for outcome in run_checks(name, settings=dict(split_assignment(text) for text in settings or ())):
        outcomes.append(outcome)
        if output_format == "table":
            echo(*_line(outcome).splitlines())
    if output_format == "json":
        print_json({"plugin": name, "checks": [_record(outcome) for outcome in outcomes]})
    failed = sum(outcome.status == "failed" for outcome in outcomes)
    if output_format == "table":
        expected = sum(outcome.status == "expected failure" for outcome in outcomes)
        shown = f"{len(outcomes) - failed - expected} passed, {failed} failed"
        echo(shown + (f", {expected} failed as expected" if expected else ""))
    if failed:
        raise typer.Exit(FAILED)


def _line(outcome: Outcome) -> str:
    mark = {"passed": "ok", "failed": "FAILED", "expected failure": "expected failure"}[outcome.status]
    text = f"{outcome.check} [{outcome.subject}]: {mark}"
    return f"{text}: {outcome.message}" if outcome.message else text


def _record(outcome: Outcome) -> dict[str, str]:
    return {"check": outcome.check, "subject": outcome.subject, "status": outcome.status, "message": outcome.message}
