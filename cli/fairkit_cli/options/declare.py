"""How a command declares an option: one line each, in a panel of its help."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fairkit.errors import ParameterError, did_you_mean
from fairkit.settings import Setting, declared

DATA = "Data"
ENGINE = "Engine"
MODEL = "Model"
POLICY = "Policy"
STATISTICS = "Statistics"
OUTPUT = "Output"


@dataclass(frozen=True, slots=True)
class Rare:
    """What is rarely set: it has no option, but ``--set KEY=VALUE``."""

    key: str
    help: str


def option(name: str, metavar: str, help_text: str, panel: str | None = None, **more: Any) -> Any:
    """Declare an option that takes a value."""
    return typer.Option(name, metavar=metavar, help=help_text, rich_help_panel=panel, **more)


_TYPES: dict[str, Any] = {"text": str, "number": float, "integer": int, "names": list[str], "columns": list[str]}


def declared_option(setting: Setting) -> Any:
    """Return the annotation of the option that gives a setting."""
    shown: Any = option(setting.option, setting.metavar, setting.help, setting.panel)
    if setting.rare:
        shown = Rare(f"{setting.table}.{setting.key}", setting.help)
    return Annotated[_TYPES[setting.kind] | None, shown]


def setting_option(name: str) -> Any:
    """Declare the option of a setting in a command that takes it alone."""
    setting = next(each for each in declared() if each.name == name)
    return option(setting.option, setting.metavar, setting.help, setting.panel)


def formats(*described: str, exporters: bool = False) -> Any:
    """Declare ``--format`` of a command that knows these formats (``NAME`` or ``NAME: what it is``).

    With `exporters` also those of plugins (`fairkit.exporters`).
    """
    names = [text.partition(":")[0] for text in described]

    def check(value: str) -> str:
        if value not in names and exporters:
            from fairkit.plugins import exporter_of

            exporter_of(value)
        elif value not in names:
            hint = did_you_mean(value, names, what="formats")
            raise ParameterError(f"--format: there is no format {value!r}. {hint}")
        return value

    told = [re.sub(r"(\w+): (.*)", r"\1 (\2)", text) for text in described]
    told += ["one that a plugin writes"] if exporters else []
    help_text = f"How the result is written: {', '.join(told[:-1])} or {told[-1]}."
    return typer.Option("--format", metavar="NAME", help=help_text, callback=check, rich_help_panel=OUTPUT)
