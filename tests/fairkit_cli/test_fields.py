"""Core and plugins name fields, the command says the options that people type."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer.main
from tests.commands import invoke

import fairkit
from fairkit.models.columns import PredictedColumns
from fairkit.results.rules import Rule
from fairkit_cli.formats import html as report_page
from fairkit_cli.formats import junit_xml as junit
from fairkit_cli.formats import screen as table
from fairkit_cli.helping import OPTIONS, as_options
from fairkit_cli.main import app

ROOT = Path(__file__).parent.parent.parent
OTHERS = re.compile(r"pip install --\w+|fairkit [a-z-]+ [^`]*`")
"""Options of other programs, and whole commands of ours between backticks."""


COMMANDS = ("fairkit_mlflow", "fairkit_correspondence")
DECLARING = {
    ROOT / "core" / "fairkit" / "settings.py",
    *(path for name in COMMANDS for path in (ROOT / "plugins" / name).rglob("*.py")),
}
"""Where the options of settings are declared, and plugins that have commands."""


@functools.cache
def _texts(root: str) -> list[tuple[str, str]]:
    """Every string of the sources that is no docstring, with its place; what an f-string inserts is X."""
    return list(_found(root))


def _found(root: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / root).rglob("*.py")):
        if path in DECLARING:
            continue
        shown = path.relative_to(ROOT)
        kept = (ast.Expr, ast.JoinedStr, ast.Constant)
        nodes = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, kept)]
        skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        skipped |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if id(node) in skipped:
                continue
            place = f"{shown}:{node.lineno}"
            if isinstance(node, ast.JoinedStr):
                yield (
                    place,
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values),
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield place, node.value


@pytest.mark.long
@pytest.mark.parametrize("root", ["core", "plugins"])
def test_no_message_of_core_or_a_plugin_names_an_option(root):
    named = [(place, text) for place, text in _texts(root) if re.search(r"(?<![\w-])--[a-z]", OTHERS.sub("", text))]
    assert named == []


@pytest.mark.long
@pytest.mark.parametrize("root", ["core", "plugins"])
def test_every_field_with_a_value_that_core_names_has_its_option(root):
    unknown = [
        (place, field)
        for place, text in _texts(root)
        for parameter, field in re.findall(r"(the parameter )?`([a-z][\w.]*)=", text)
        if not parameter and field not in OPTIONS
    ]
    assert unknown == []


def test_every_option_that_is_said_can_be_typed():
    def options(command) -> set[str]:
        own = {name for one in command.params for name in one.opts}
        return own.union(*(options(sub) for sub in getattr(command, "commands", {}).values()))

    named = {words.split()[0] for words in OPTIONS.values()} - {"--join", "--on"}  # for columns from a second table
    assert named <= options(typer.main.get_command(app))


@pytest.mark.parametrize(
    ("core", "said"),
    [
        ("name it with `label`", "name it with --label"),
        ("(`score_kind` overrides)", "(--set model.score_kind overrides)"),
        ("`score_output=p` with `threshold=0.5`", "--set model.score_output=p with --threshold 0.5"),
        ("`decision_output=x; rm -rf ~`", "--set model.decision_output='x; rm -rf ~'"),
        ("`favorable=very good`", "--favorable 'very good'"),
        ("lower the parameter `rto.min_group=5`", "lower --set rto.min_group=5"),
        ("the parameter `score_kind=logit`", "--set score_kind=logit"),
        ("the parameter `bounds.a b=0.1`", "the parameter `bounds.a b=0.1`"),
        ("`fairkit registry check` lists it", "`fairkit registry check` lists it"),
        ("the column `labels`", "the column `labels`"),
    ],
)
def test_fields_become_options(core, said):
    assert as_options(core) == said


def _said(*arguments: str) -> str:
    """Return what the command says as it refuses."""
    result = invoke(*arguments, env={"COLUMNS": "400"})
    assert result.exit_code == 2, result.output
    assert "`" not in result.stderr, result.stderr
    return " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> str:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("fields") / "rows.csv"
    lines = [f"{rng.normal():.3f},{'fm'[i % 2]},{i % 3 % 2}" for i in range(60)]
    path.write_text("\n".join(["x,sex,y", *lines, "1.0,,1"]) + "\n")
    return str(path)


ROLES = ("--label", "y", "--favorable", "1", "--sensitive", "sex")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("plan",), "as in --max demographic_parity_difference:sex=0.05"),
        (
            ("plan", "--max", "demographic_parity_difference:sex=0.05"),
            "--groups female=0.45,male=0.55",
        ),
        (
            ("plan", "--min", "demographic_parity_ratio:sex=0.05", "--groups", "a=0.5,b=0.5"),
            "--assume 0.3",
        ),
        (
            ("plan", "--max", "equal_opportunity_difference:sex=0.05", "--groups", "a=0.5,b=0.5"),
            "needs --base",
        ),
        (("frontier", "--plugin", "project", "--vary", "x=1:2", "DATA"), "--vary x=1:2 is no range"),
        (("frontier", "--plugin", "project", "--search", "x=2:1", "DATA"), "--search x=2:1 is not"),
        (("mitigate", "--plugin", "reject-option", "DATA"), "name it with --model"),
        (("mitigate", "--plugin", "project", "--model", "MODEL", "DATA"), "leave out --model"),
        (("mitigate", "--plugin", "sensei", "--set", "method=clp", "DATA"), "as in --set sensitive=sex,race"),
        (("mitigate", "--plugin", "fair-regression", "--set", "constraint=bounded_group_loss", "DATA"), "--set zeta"),
    ],
)  # fmt: skip
def test_the_typed_option_is_said(command, option, rows, loans_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stands = {"DATA": ("--data", rows, *ROLES), "MODEL": (str(loans_model.path),)}
    words = [word for part in command for word in stands.get(part, (part,))]
    if words[0] in ("mitigate", "frontier"):
        words += ["--output", "out.onnx"]
    assert option in _said(*words)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.long
def test_notes_and_reasons_of_a_report_say_options():
    """In the table, on the page and for JUnit."""
    people = pa.table({"y": [1, 0] * 50, "sex": ["f", "m", "m"] * 33 + ["f"], "p": [0.7] * 100})
    data = fairkit.load_data(people, label="y", favorable=1, sensitive=["sex"])
    rule = Rule.parse("accuracy=0.99", "min")
    report = fairkit.audit(PredictedColumns(score="p"), data, policy=(rule,))
    note = "The scores are read as logits (`score_kind` overrides)."
    reason = "audit with the parameter `restricted-dro.support=200`"
    report = replace(
        report,
        model=replace(report.model, notes=(note,)),
        policy=tuple(replace(one, reason=reason) for one in report.policy),
    )
    shown, page = table(report, terminal=False), report_page(report)
    for text in (shown, page):
        assert "(--set model.score_kind overrides)" in " ".join(text.split())
    for text in (shown, page, junit(report)):
        assert "audit with --set restricted-dro.support=200" in " ".join(text.split())
        assert "`score_kind" not in text
        assert "`restricted-dro" not in text
