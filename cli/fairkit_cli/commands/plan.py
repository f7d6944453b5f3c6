"""`fairkit plan`: how many rows decide a policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit.support.escaping import json_text
from fairkit.support.files import write_atomic
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.planning.results import Plan
    from fairkit_cli.config import Config


def plan(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="A table of decisions: plan whose outcomes to look up, with --labels.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        int | None, opt.option("--labels", "N", "Outcomes that can be looked up, in both stages.")
    ] = None,
    wanted: Annotated[
        list[str] | None,
        opt.option("--for", "METRIC", "The disparity that the outcomes are for, as equal_opportunity_difference."),
    ] = None,
    draw: Annotated[
        Path | None,
        opt.option("--draw", "FILE.csv", "Write the rows to label here, and their design beside it as FILE.json."),
    ] = None,
    stage: Annotated[
        int | None, opt.option("--stage", "1|2", "1 (default), or 2, which needs --labelled FILE.json of stage 1.")
    ] = None,
    label: opt.Label = None,
    favorable: opt.Favorable = None,
    sensitive: opt.SensitiveColumns = None,
    predictions: opt.PredictionColumns = None,
    labelled: opt.Labelled = None,
    maximums: opt.MaxRules = None,
    minimums: opt.MinRules = None,
    groups: Annotated[
        list[str] | None,
        opt.option(
            "--groups",
            "[COL:]A=S,B=S",
            "Each group's share of the rows: female=0.45,male=0.55; for one column: sex:female=0.45,male=0.55.",
        ),
    ] = None,
    assume: Annotated[
        list[str] | None,
        opt.option(
            "--assume",
            "[RATE:]P",
            "The true rate, for all groups (0.3) or by group (female=0.3,male=0.35); of two rates: "
            "true_positive_rate:0.8. Default for differences: 0.5, the worst case.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        opt.option(
            "--base",
            "P",
            "The share of rows with the favorable outcome, for all groups or by group; for precision, with the "
            "favorable decision.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        opt.option("--report", "FILE", "A pilot's report or certificate: its rates and shares are assumed."),
    ] = None,
    power: Annotated[float, opt.option("--power", "P", "The chance that the rule is decided; default 0.8.")] = 0.8,
    adjust: opt.Adjust = None,
    confidence: opt.Confidence = None,
    seed: opt.Seed = None,
    output_format: opt.TableFormat = "table",
    output: opt.Output = None,
    config: opt.ConfigFile = None,
) -> None:
    """Plan an audit: how many rows decide a policy, whose outcomes to look up, what an audit of that size can see."""
    from fairkit.planning.run import plan as run
    from fairkit_cli.config import load_config
    from fairkit_cli.evidence import read_report

    if report is not None and (groups or assume or base):
        raise ParameterError("--report says what --groups, --assume and --base would; leave them out")
    if table is not None:
        columns = opt.DataOptions(label=label, favorable=favorable, sensitive=sensitive)
        rest = [name for name, value in (("--max", maximums), ("--min", minimums), ("--groups", groups),
                ("--assume", assume), ("--base", base), ("--report", report)) if value]  # fmt: skip
        if rest:
            raise ParameterError(f"{rest[0]} plans rows, and {table} with --labels outcomes: leave one of them out")
        text = _labels(table, columns, predictions, labelled, labels, wanted, draw, stage, seed, output_format, config)
        write(lambda _: text, output)
        return
    of_table = {"--labels": labels, "--for": wanted, "--draw": draw, "--stage": stage, "--label": label}
    of_table |= {"--favorable": favorable, "--sensitive": sensitive, "--predictions": predictions}
    stray = [name for name, value in (of_table | {"--labelled": labelled}).items() if value is not None]
    if stray:
        raise ParameterError(
            f"{stray[0]} goes with a table of decisions: fairkit plan TABLE --labels N --for METRIC ..."
        )
    typed = opt.AuditOptions(maximums=maximums, minimums=minimums, adjustment=adjust, confidence=confidence, seed=seed)
    settings = opt.audit_settings(typed, load_config(config))
    made = run(
        settings.policy,
        groups=_single(_parts(groups, "--groups female=0.45,male=0.55")),
        assume=_single(_parts(assume, "--assume 0.3, or female=0.3,male=0.35")),
        base=_single(_parts([base] if base else None, "--base 0.3, or female=0.3,male=0.35")),
        report=None if report is None else read_report(report),
        power=power,
        confidence=settings.confidence,
        adjustment=settings.adjustment,
        seed=settings.seed,
    )
    write(lambda terminal: text_of(made, output_format, terminal), output)


def _labels(
    table: str,
    columns: opt.DataOptions,
    predictions: list[str] | None,
    labelled: str | None,
    budget: int | None,
    wanted: list[str] | None,
    draw: Path | None,
    stage: int | None,
    seed: int | None,
    output_format: str,
    config_file: Path | None,
) -> str:
    """Draw rows to label and write them, or say what exploring refused people would buy."""
    from fairkit.auditing.drawing import draw_labels, exploration
    from fairkit_cli.config import load_config
    from fairkit_cli.packs import chosen
    from fairkit_cli.text.packs import drawn_text, explored_text

    rules = opt.split_names(wanted) or []
    if not rules:
        raise ParameterError("what are the outcomes for? Give --for METRIC, as --for equal_opportunity_difference")
    config = load_config(config_file)
    subject = chosen(table, predictions or _configured(config), config)
    data = subject.dataset(columns, config, opt.ConditionOptions(labelled=labelled))
    if labelled == "selective":
        if budget is not None or draw is not None or stage is not None:
            raise ParameterError("--labelled selective shows what exploring buys: leave --labels, --draw, --stage out")
        widths = {rule: exploration(data, rule) for rule in rules}
        if output_format == "json":
            return (
                json_text({rule: [{"explored": n, "width": w} for n, w in width] for rule, width in widths.items()})
                + "\n"
            )
        return explored_text(widths)
    if budget is None or draw is None:
        raise ParameterError("a plan of labels needs --labels N and --draw FILE.csv")
    design = draw.with_suffix(".json")
    if stage not in (None, 1, 2) or (stage == 2) != (labelled is not None):
        raise ParameterError("--stage is 1, or 2 together with --labelled FILE.json, the design of the first stage")
    if design == draw:
        raise ParameterError(f"{draw} would hold the rows and the design; give --draw FILE.csv")
    for path in (draw, design):
        if path.exists():
            raise ParameterError(f"{path} exists and may hold outcomes; give --draw another file")
    made = draw_labels(data, budget, rules, seed=seed or 0)
    rows = _rows_csv(data, made.rows, columns.label or config.data.get("label") or "outcome")
    write_atomic(draw, rows, replace=False)
    write_atomic(design, json_text(dict(made.design)) + "\n", replace=False)
    return json_text(made.to_dict()) + "\n" if output_format == "json" else drawn_text(made, draw, design)


def _configured(config: Config) -> list[str] | None:
    columns = config.data.get("predictions")
    return [f"{key}={value}" for key, value in columns.items()] if columns else None


def _rows_csv(data: Dataset, rows: Sequence[int], label: str) -> str:
    """Return the rows to label as CSV: their number, their columns without predictions, and the label's, empty."""
    import numpy as np

    from fairkit.data.dataset import BATCH_ROWS
    from fairkit_cli.text.registry import csv_text

    predicted = () if data.roles.predictions is None else data.roles.predictions.columns
    shown = [name for name in data.columns if name != label and name not in predicted]
    wanted, start, lines = np.array(rows, dtype=np.int64), 0, []
    for batch in data.source.batches(shown, BATCH_ROWS):
        here = wanted[(wanted >= start) & (wanted < start + batch.num_rows)]
        for row, cells in zip(here.tolist(), batch.take(here - start).to_pylist(), strict=True):
            lines.append([row, *(cells[name] for name in shown), ""])
        start += batch.num_rows
    return csv_text(["row", *shown, label], lines)


def text_of(made: Plan, output_format: str, terminal: bool) -> str:
    """Return a plan in a format."""
    if output_format == "json":
        return json_text(made.to_dict()) + "\n"
    from fairkit_cli.text.packs import plan_text

    return plan_text(made, terminal=terminal)


def _parts(texts: list[str] | None, example: str) -> dict[str | None, Any]:
    """Read ``[NAME:]NUMBER`` and ``[NAME:]A=NUMBER,B=NUMBER``, by name."""
    parts: dict[str | None, Any] = {}
    for text in texts or ():
        head, equals, _ = text.partition("=")
        name, colon, rest = text.partition(":")
        inside = colon and ":" in (head if equals else text)  # a group's own name may hold a colon
        key, rest_of_key = (name, rest) if inside else (None, text)
        if key in parts:
            raise ParameterError(f"{text!r}: given twice; write {example}")
        parts[key] = _numbers(rest_of_key, example)
    return parts


def _numbers(text: str, example: str) -> Any:
    try:
        if "=" not in text:
            return float(text)
        pairs = [part.rpartition("=") for part in text.split(",")]
        return {name.strip(): float(number) for name, _, number in pairs}
    except ValueError:
        raise ParameterError(f"{text!r} is not understood; write {example}") from None


def _single(parts: dict[str | None, Any]) -> Any:
    """Return the value without a name where it is the only one, else the values by name; None without any."""
    if not parts:
        return None
    return parts[None] if set(parts) == {None} else {key: value for key, value in parts.items() if key}
