"""Write docs/reference/ from the code: commands, metrics, plugins, configuration.

Run it with `make docs`; a test holds that the files are what this script writes.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import typer

from fairkit import config, plugins
from fairkit_cli.main import app
from fairkit_cli.plugins import describe

REFERENCE = Path(__file__).parent / "reference"
GENERATED = "<!-- Written by docs/make.py from the code; run `make docs` after a change. -->\n\n"


def pages() -> dict[str, str]:
    """Return each page's file name and text."""
    return {
        "commands.md": commands_page(),
        "metrics.md": metrics_page(),
        "plugins.md": plugins_page(),
        "configuration.md": configuration_page(),
    }


def commands_page() -> str:
    """Every command with its options."""
    root: Any = typer.main.get_command(app)
    parts = ["# Commands\n", inspect.cleandoc(root.help or "") + "\n"]
    for name, command in sorted(root.commands.items()):
        parts += _command(f"fairkit {name}", command)
    return GENERATED + "\n".join(parts)


def _command(path: str, command: Any) -> list[str]:
    nested = getattr(command, "commands", None)
    if nested:
        parts = [f"## {path}\n", inspect.cleandoc(command.help or "") + "\n"]
        for name, inner in sorted(nested.items()):
            parts += _command(f"{path} {name}", inner)
        return parts
    parts = [f"## {path}\n", inspect.cleandoc(command.help or "") + "\n"]
    rows = [_option(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
    if rows:
        parts += ["| option | meaning |", "| --- | --- |", *rows, ""]
    return parts


def _option(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in parameter.opts if name.startswith("-"))
    shown = names or f"`{parameter.metavar or parameter.name.upper()}`"
    value = f" {parameter.metavar}" if names and parameter.metavar else ""
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|")
    return f"| {shown}{_cell(value)} | {text} |"


def metrics_page() -> str:
    """Every group metric: direction, range, meaning, citation."""
    loaded = plugins.load("group")
    rows = [
        "| metric | better | range | what it is | what the ends mean |",
        "| --- | --- | --- | --- | --- |",
    ]
    for metric in describe(loaded)["metrics"]:
        low, high = (
            ("-∞" if metric["range"][0] is None else f"{metric['range'][0]:g}"),
            ("∞" if metric["range"][1] is None else f"{metric['range'][1]:g}"),
        )
        cited = f" ({metric['citation']})" if metric["citation"] else ""
        rows.append(
            f"| `{metric['name']}` | {metric['better']} | {low} to {high} | {metric['summary']}{cited} "
            f"| {metric['meaning']} |"
        )
    return GENERATED + _METRICS_HEAD + "\n".join(rows) + "\n" + _METRICS_TAIL


def plugins_page() -> str:
    """Every plugin of fairkit with its parameters."""
    parts = ["# Plugins\n", "What ships with fairkit. `fairkit plugins show NAME` prints the same.\n"]
    for found in plugins.find():
        if not found.built_in:
            continue
        record = describe(plugins.load(found.name))
        parts += [f"## {found.name}\n", record["summary"] + "\n"]
        for kind in ("auditors", "mitigators"):
            for entry in record[kind]:
                parts += _configurable(kind[:-1], entry)
    return GENERATED + "\n".join(parts)


def _configurable(kind: str, entry: dict[str, Any]) -> list[str]:
    parts = [f"{kind.capitalize()} `{entry['name']}`, for {', '.join(entry['tasks'])}: {entry['summary']}\n"]
    if entry["citation"]:
        parts.append(f"Source: {entry['citation']}.\n")
    if entry["parameters"]:
        parts += ["| `--set` | type | default | meaning |", "| --- | --- | --- | --- |"]
        for parameter in entry["parameters"]:
            default = "needed" if parameter["default"] is None else f"`{_cell(parameter['default'])}`"
            parts.append(
                f"| `{parameter['name']}` | {_cell(parameter['type'])} | {default} | {_cell(parameter['help'])} |"
            )
        parts.append("")
    return parts


def configuration_page() -> str:
    """The tables and keys of fairkit.toml."""
    parts = [_CONFIGURATION_HEAD]
    for table, keys in config.KEYS.items():
        heading = f"[[{table}]]" if table == "policy" else f"[{table}]"
        parts.append(f"- `{heading}`: {', '.join(f'`{key}`' for key in sorted(keys))}")
    return GENERATED + "\n".join(parts) + "\n" + _CONFIGURATION_TAIL


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_METRICS_HEAD = """# Group metrics

Measured by the auditor `group` over all rows and in each group of every sensitive column, each with an interval.

"""

_METRICS_TAIL = """
Between the groups of a sensitive column, for each of these metrics:

| metric | value | better |
| --- | --- | --- |
| `NAME_difference` | the largest minus the smallest group value; 0: equal | lower |
| `NAME_ratio` | the smallest over the largest; 1: equal | higher |
| `NAME_group_min`, `NAME_group_max` | the worst group's value | as the metric |

Under the field's own names:

| metric | value |
| --- | --- |
| `demographic_parity_difference`, `_ratio` | of `selection_rate` |
| `equal_opportunity_difference`, `_ratio` | of `true_positive_rate` (Hardt, Price & Srebro 2016) |
| `equalized_odds_difference`, `_ratio` | the worse of `true_positive_rate` and `false_positive_rate` (Hardt, Price & Srebro 2016) |
| `gap_max`, `gap_rms` | largest and root-mean-square gap of the rates of right decisions over the two outcomes; over pairs of groups the largest (De-Arteaga et al. 2019) |
| `statistical_parity_ks` | the largest distance between a group's score distribution and everybody's (Agarwal, Dudík & Wu 2019) |
| `worst_group_loss` | the largest mean loss of a group (Agarwal, Dudík & Wu 2019) |

How the intervals are made: [intervals](../intervals.md).
"""

_CONFIGURATION_HEAD = """# Configuration

`fairkit.toml` in the working folder or above it, or `[tool.fairkit]` in `pyproject.toml`. Options on the command
line win. Relative paths start from the file's folder. An unknown key is an error that names near ones.

The tables and their keys:
"""

_CONFIGURATION_TAIL = """
Parameters of an auditor stand in `[audit.NAME]`, those of a mitigator in `[mitigate.NAME]`. Each rule of the policy
begins with `[[policy]]` and has a `metric`, perhaps a `sensitive` column, and `max` or `min`.

```toml
[data]
path = "loans.parquet"
label = "decision"
favorable = "approved"
sensitive = ["sex", "age:25:60", "sex+ethnicity"]

[audit]
auditors = ["group", "consistency"]

[audit.consistency]
flip = ["sex"]

[[policy]]
metric = "demographic_parity_difference"
sensitive = "sex"
max = 0.1
```
"""

if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for file, text in pages().items():
        (REFERENCE / file).write_text(text, encoding="utf-8")
