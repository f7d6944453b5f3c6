"""The ledger of degenerate tables: a fast part of it, and that its rules can fail."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from fairkit.results.findings import Finding


@pytest.fixture(scope="module")
def ledger() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "ledger.py"
    spec = importlib.util.spec_from_file_location("ledger", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ledger"] = module
    spec.loader.exec_module(module)
    return module


FAST = [
    "a group of one row",
    "one label for each group",
    "constant scores",
    "perfect scores",
    "all weights 0",
    "weights 0 in a group",
    "one huge weight",
    "two clusters",
    "a reference of one row",
    "strata are groups",
]


@pytest.mark.parametrize(
    "task", ["binary", *(pytest.param(t, marks=pytest.mark.long) for t in ("regression", "multiclass", "ranking"))]
)
def test_every_number_has_an_interval_or_a_sentence(ledger: ModuleType, task: str) -> None:
    tables = FAST[:5] if task == "binary" else FAST
    cells = list(ledger.run(tables, [task], ["group"], ["json", "table", "markdown", "junit"]))
    assert [f"{cell.table}: {text}" for cell in cells for text in cell.violations] == []
    assert sum(cell.numbers + cell.sentences for cell in cells) > 50


@pytest.mark.long
@pytest.mark.parametrize("auditor", ["subgroups", "why", "consistency", "correspondence"])
def test_other_auditors_keep_the_rules(ledger: ModuleType, auditor: str) -> None:
    cells = list(ledger.run(FAST, names=[auditor], formats=["json", "table", "markdown"]))
    assert [f"{cell.table}: {text}" for cell in cells for text in cell.violations] == []


def test_there_are_forty_tables_and_every_auditor(ledger: ModuleType, tmp_path: Path) -> None:
    from fairkit import plugins

    assert len(ledger.TABLES) >= 40
    names = [row.found.name for row in plugins.explain_all() if "auditor" in row.kinds]
    found = [auditor for name in names for auditor in plugins.load(name).auditors]
    auditors = {auditor.name for auditor in found if auditor.tasks != {"table"}}
    auditors.remove("alternatives")  # reads the record of a search
    assert auditors == set(ledger.auditors(tmp_path))


def test_the_rules_can_fail(ledger: ModuleType) -> None:
    table = ledger.TABLES["as it is"](ledger.base("binary"), "binary")
    report = ledger.audited("group", ledger.Asked({}, ("binary",)), "binary", table)
    assert not list(ledger.broken(report, "binary", table, "group"))
    whole = report.find("accuracy")

    def violations(**changes: object) -> list[str]:
        changed = dataclasses.replace(whole, **changes)
        return list(ledger.broken(dataclasses.replace(report, findings=(changed,)), "binary", table, "group"))

    assert violations(interval=None, notes=())
    assert violations(value=None, notes=(), inconclusive=None)
    assert violations(value=1.5, interval=(1.4, 1.6))
    assert violations(interval=(0.0, 0.1))
    assert violations(interval=(whole.value, whole.value), notes=())
    between = report.find("selection_rate_difference", "sex")
    doctored = dataclasses.replace(between, groups=(dataclasses.replace(between.groups[0], value=0.123),))
    wrong = dataclasses.replace(report, findings=(doctored,))
    assert any("counted again" in text for text in ledger.broken(wrong, "binary", table, "group"))
    silent: Finding = dataclasses.replace(whole, interval=None, notes=("Nothing is known.",))
    alone = dataclasses.replace(report, findings=(silent,), policy=(), verdict=None)
    assert not list(ledger.broken(alone, "binary", table, "group"))
    assert any(
        "allows no verdict" in text
        for text in ledger.broken(dataclasses.replace(report, findings=(silent,)), "binary", table, "group")
    )
