"""`fairkit plugins`: what is installed, what it offers, and why something does not load."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit_cli import options as opt
from fairkit_cli.helping import as_options
from fairkit_cli.plugins import new as projects
from fairkit_cli.terminal.output import echo, print_json, write

if TYPE_CHECKING:
    from fairkit.plugins.loading import Plugin, Row

app = typer.Typer(
    help="The installed plugins.", invoke_without_command=True, add_completion=False, rich_markup_mode=None
)
_NAMED = {
    "evidence_charts": "evidence chart",
    "model_sources": "model source",
    "promotion_checks": "promotion check",
    "signers": "signer",
    "exporters": "exporter",
    "packs": "pack",
}
"""Kinds of which a name and a sentence are shown, as they are in JSON and in words."""
Name = Annotated[str, typer.Argument(metavar="NAME", help="The plugin's name.")]


@app.callback(invoke_without_command=True)
def _default(ctx: typer.Context) -> None:
    """List the installed plugins."""
    if ctx.invoked_subcommand is None:
        list_plugins("table")


@app.command("list")
def list_plugins(output_format: opt.TableFormat = "table") -> None:
    """List every plugin: name, kinds, version, distribution, and whether it loads."""
    from fairkit.plugins.finding import explain_all

    rows = explain_all()
    if output_format == "json":
        print_json([row.to_dict() for row in rows])
    else:
        _print_rows(rows)


@app.command("show")
def show(name: Name, output_format: opt.TableFormat = "table") -> None:
    """Show what a plugin does, its parameters with types and defaults, and its citation."""
    from fairkit.plugins.finding import load

    record = describe(load(name))
    if output_format == "json":
        print_json(record)
    else:
        _print_record(record)


app.command("new")(projects.new)
app.command("check")(projects.check)


def describe(plugin: Plugin) -> dict[str, Any]:
    """Return a plugin's name, version, summary and contents, as plain values."""
    entry = plugin.found
    return {
        "name": entry.name,
        "distribution": entry.distribution,
        "version": entry.version,
        "summary": (inspect.getdoc(plugin.module) or "").split("\n")[0],
        "auditors": [_configurable(cls) for cls in plugin.auditors],
        "mitigators": [_configurable(cls) for cls in plugin.mitigators],
        "learners": [_trained(cls) | {"parameters": []} for cls in plugin.learners],
        "metrics": [_metric(cls) for cls in plugin.metrics],
        "sources": [_source(cls) for cls in plugin.sources],
        **{kind: [_named(cls) for cls in getattr(plugin, kind)] for kind in _NAMED},
    }


def _configurable(cls: Any) -> dict[str, Any]:
    from fairkit.parameters import describe_parameters

    record = _trained(cls) | {"parameters": [parameter._asdict() for parameter in describe_parameters(cls.Parameters)]}
    if hasattr(cls, "capabilities"):
        record["capabilities"] = [capability.to_dict() for capability in cls.capabilities]
    return record


def capabilities_told(capabilities: list[dict[str, Any]]) -> list[str]:
    """Say in words which constraints a method can meet, and how its models decide."""
    ways: dict[str, list[str]] = {}
    for capability in capabilities:
        chance = "some decisions are drawn by chance" if capability["randomized"] else "decides without chance"
        group = "reads the group" if capability["reads_group"] else "does not need the group"
        ways.setdefault(f"{chance}, {group}", []).extend(capability["constraints"])
    return [f"can meet {', '.join(names)}: {way}" for way, names in ways.items()]


def _named(cls: Any) -> dict[str, str]:
    return {"name": cls.name, "summary": (inspect.getdoc(cls) or "").split("\n")[0]}


def _source(cls: Any) -> dict[str, Any]:
    return _named(cls) | {"schemes": list(cls.schemes), "options": dict(cls.options)}


def _trained(cls: Any) -> dict[str, Any]:
    return _named(cls) | {"tasks": sorted(cls.tasks), "citation": cls.citation}


def _metric(cls: Any) -> dict[str, Any]:
    return _named(cls) | {
        "better": cls.better,
        "range": [None if abs(end) == float("inf") else end for end in cls.range],
        "meaning": cls.meaning,
        "tasks": sorted(cls.tasks),
        "citation": cls.citation,
    }


def _print_rows(rows: list[Row]) -> None:
    from rich.table import Table

    from fairkit_cli.terminal.plain import to_text

    grid = Table(box=None, pad_edge=False)
    for column in ("name", "kinds", "version", "distribution", "loads"):
        grid.add_column(column, no_wrap=column in ("name", "distribution"))
    for row in rows:
        loads = "yes" if row.reason is None else "no"
        grid.add_row(row.found.name, ", ".join(row.kinds), row.found.version, row.found.distribution, loads)
    write(lambda terminal: to_text([grid], terminal=terminal))
    # not folded: what fixes it is to be copied
    for reason in dict.fromkeys(row.reason for row in rows if row.reason is not None):
        echo("", *reason.splitlines())


def _print_record(record: dict[str, Any]) -> None:
    from rich.table import Table

    from fairkit_cli.terminal.plain import plain, to_text

    parts: list[Any] = [plain(f"{record['name']} ({record['distribution']} {record['version']})", "bold")]
    parts += [plain(record["summary"])] if record["summary"] else []
    for kind in ("auditors", "mitigators", "learners"):
        for entry in record[kind]:
            parts += ["", plain(f"{kind[:-1]} {entry['name']}: {entry['summary']}")]
            parts += [plain(f"tasks: {', '.join(entry['tasks'])}")]
            parts += [plain(f"citation: {entry['citation']}")] if entry["citation"] else []
            parts += [plain(text) for text in capabilities_told(entry.get("capabilities", []))]
            parts += [_parameters(entry["parameters"])] if entry["parameters"] else []
    for kind, label in _NAMED.items():
        for entry in record[kind]:
            parts += ["", plain(f"{label} {entry['name']}: {entry['summary']}")]
    for entry in record["sources"]:
        parts += ["", plain(f"source {entry['name']}: {entry['summary']}")]
        parts += [plain(f"addresses begin with {', '.join(f'{scheme}:' for scheme in entry['schemes'])}")]
        parts += [plain(f"?{name}=  {meaning}") for name, meaning in entry["options"].items()]
    if record["metrics"]:
        grid = Table(box=None, pad_edge=False)
        for column in ("metric", "better", "what the ends mean"):
            grid.add_column(column)
        for metric in record["metrics"]:
            grid.add_row(metric["name"], metric["better"], metric["meaning"])
        parts += ["", grid]
    write(lambda terminal: to_text(parts, terminal=terminal))


def _parameters(parameters: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    grid = Table(box=None, pad_edge=False)
    for column in ("--set", "type", "default", "help"):
        grid.add_column(column)
    for parameter in parameters:
        default = "needed" if parameter["default"] is None else parameter["default"]
        grid.add_row(parameter["name"], parameter["type"], default, as_options(parameter["help"]))
    return grid
