"""Write docs/reference/ from the code: commands, metrics, plugins, configuration, Python.

Run it with `make docs`; a test holds that the files are what this script writes.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import typer

import fairkit
from fairkit import plugins
from fairkit_cli import config
from fairkit_cli.main import app
from fairkit_cli.plugins import capabilities_told, describe
from fairkit_guide.advice import tree as guide_tree
from fairkit_registry.evidence.charts import declarations

REFERENCE = Path(__file__).parent / "reference"
DECLARED = "../../registry/fairkit_registry/schemas/declared.json"
_METRIC_TREE = """`fairkit init TABLE` asks these questions on a terminal, or takes the answers as options, and `fairkit.advise` returns
the same as data. The answers and the reasons stand in `fairkit.toml`, in the report and in the certificate. Every
answer can be changed, and no metric shows that a model is fair: it is a statement under this metric, on this data.

With base rate p, precision v and false negative rate m the false positive rate is p/(1-p) (1-v)/v (1-m). So where base
rates differ, equal precision, equal false positive rates and equal false negative rates cannot all hold unless decisions
are perfect (Chouldechova 2017; Kleinberg, Mullainathan & Raghavan 2016). The guide says it with your table's numbers.

## Six questions
"""
GENERATED = "<!-- Written by docs/make.py from the code; run `make docs` after a change. -->\n\n"


def pages() -> dict[str, str]:
    """Return each page's file name and text."""
    return {
        "commands.md": commands_page(),
        "metrics.md": metrics_page(),
        "plugins.md": plugins_page(),
        "configuration.md": configuration_page(),
        "python.md": python_page(),
        "which-metric.md": metric_tree_page(),
        DECLARED: declared_metrics(),
    }


def declared_metrics() -> str:
    """What the findings of our auditors may be called, for `verify`, which then imports none of them."""
    declared = {name: sorted(names) for name, names in sorted(declarations().items())}
    return json.dumps(declared, indent=1) + "\n"


def metric_tree_page() -> str:
    """The guide's questions, and every situation with its metrics and reasons."""
    tree = guide_tree()
    parts = [GENERATED + "# Which metric?\n", _METRIC_TREE]
    for number, question in enumerate(tree["questions"], 1):
        parts.append(f"{number}. **{question['asks']}** (`--{question['key']}`) {question['matters']}\n")
        parts += [f"   - `{name}`: {meaning}" for name, meaning in question["answers"].items()] + [""]
    parts.append("## What follows\n\nThe first situation that fits is taken.\n")
    for one in tree["situations"]:
        when = "; ".join(f"{key}: {' or '.join(values)}" for key, values in one["when"].items())
        parts.append(f"### {one['name']}\n\n({when})\n")
        for entry in one["metrics"]:
            kind = "rule" if entry.get("max") or entry.get("min") else "also shown"
            parts.append(f"- {kind}: `{entry['metric']}`. {entry['why']}")
        parts += [f"- not: `{entry['metric']}`. {entry['why']}" for entry in one["not"]]
        parts.append(f"- not seen: {one['misses']}\n- sources: {', '.join(one['sources'])}\n")
    return "\n".join(parts).rstrip() + "\n"


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
    rows = ["| metric | better | range | what it is | what the ends mean |", "| --- | --- | --- | --- | --- |"]
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
    parts += [f"{told[0].upper()}{told[1:]}.\n" for told in capabilities_told(entry.get("capabilities", []))]
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


def python_page() -> str:
    """Every public name of the package, from its docstring."""
    names = sorted(fairkit.__all__, key=lambda name: (inspect.isclass(getattr(fairkit, name)), name.lower()))
    parts = ["# Python\n", "What `import fairkit` has. `help(fairkit.NAME)` prints the same.\n"]
    for name in names:
        parts += [f"## fairkit.{name}\n", *_documented(name, getattr(fairkit, name))]
    return GENERATED + "\n".join(parts).rstrip() + "\n"


def _documented(name: str, thing: Any) -> list[str]:
    parts = []
    if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, BaseException)):
        parts.append(f"```python\n{_signature(name, thing)}\n```\n")
    if inspect.isclass(thing) or inspect.isfunction(thing):
        parts.append(_markdown(inspect.getdoc(thing) or "") + "\n")
    if inspect.isclass(thing):
        own = [(n, m) for n, m in _members(thing) if not n.startswith("_") and inspect.isroutine(m)]
        for method, member in own:
            function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            summary = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
            parts.append(f"- `{_signature(method, function)}`: {summary}")
        parts += [""] if own else []
    return parts


def _members(thing: type) -> list[tuple[str, Any]]:
    """Return what a class, and bases of it that have no public name, define."""
    public = [getattr(fairkit, name) for name in fairkit.__all__]
    bases = [one for one in thing.__mro__[1:] if one.__module__.startswith("fairkit.") and one not in public]
    return [*(pair for one in bases for pair in vars(one).items()), *vars(thing).items()]


def _signature(name: str, thing: Any) -> str:
    """Return the call without annotations: types stand in the text, and quoted ones read badly."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    empty = inspect.Parameter.empty
    shown = [
        parameter.replace(annotation=empty)
        for parameter in signature.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=shown, return_annotation=empty))
    return name + re.sub(r"<(factory|function \w+|[\w.]+ object)[^>]*>", "...", text)


def _markdown(docstring: str) -> str:
    """Return a numpydoc docstring as Markdown: sections as bold lines, their entries as lists."""
    lines, section = [], ""
    source = docstring.splitlines()
    for number, line in enumerate(source):
        following = source[number + 1] if number + 1 < len(source) else ""
        if line and following and set(following) == {"-"}:
            section = line
            lines.append(f"**{line}**\n")
        elif not (line and set(line) == {"-"}):
            entry = section in _LISTED and line and not line.startswith(" ")
            lines.append(f"- `{line}`" if entry else line)
    return re.sub(r"::\n\n", ":\n\n", "\n".join(lines)).strip()


_LISTED = ("Parameters", "Attributes", "Returns", "Raises", "Yields")


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
| `class_gap_rms`, `class_gap_mean`, `class_gap_max` | of several classes: root mean square, mean and maximum over the classes of the gap in `true_positive_rate`; over pairs of groups the largest (Romanov et al. 2019) |
| `statistical_parity_ks` | the largest distance between a group's score distribution and everybody's (Agarwal, Dudík & Wu 2019) |
| `worst_group_loss` | the largest mean loss of a group (Agarwal, Dudík & Wu 2019) |

How the intervals are made: [intervals](../explanation/intervals.md).
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
sensitive = ["sex"]

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
