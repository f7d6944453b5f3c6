"""`fairkit compare`: models on the same rows, and which differences are significant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import ParameterError
from fairkit.results.policy import told_apart
from fairkit.settings import at_threshold
from fairkit.support.escaping import listed_names
from fairkit_cli import options as opt
from fairkit_cli.formats import text_of
from fairkit_cli.terminal.output import exit_code, record_text, write
from fairkit_onnx.read.outputs import has_rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.results.policy import Comparison
    from fairkit.results.rules import Rule
    from fairkit.settings import AuditSettings


@opt.expanded
def compare(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL.onnx", help="Model files, or names in the registry; the first is the base."),
    ] = None,
    *,
    columns: opt.DataOptions,
    against: Annotated[
        str | None,
        opt.option(
            "--against",
            "FILE",
            "A later table: compare one model on it with the same model on --data, or a second model with the first.",
        ),
    ] = None,
    features_of: Annotated[
        list[str] | None,
        opt.option(
            "--features-of",
            "MODEL=A,B",
            "The columns that one of the models gets, in its order, where it has features of its own (repeatable).",
        ),
    ] = None,
    predictions: opt.PredictionColumns = None,
    conditions: opt.ConditionOptions,
    where: opt.EngineOptions,
    sandbox: opt.SandboxOptions,
    scoring: opt.ScoringOptions,
    threshold: Annotated[
        list[str] | None,
        opt.option(
            "--threshold",
            "[MODEL=]T",
            "The threshold of all models, or of one, in the score's own unit: favorable from it on, or up to it where "
            "the score is of the unfavorable outcome. Repaired files keep their own rule (repeatable).",
            opt.MODEL,
        ),
    ] = None,
    maximums: opt.MaxRules = None,
    minimums: opt.MinRules = None,
    output_format: opt.PageFormat = "table",
    output: opt.Output = None,
    config: opt.ConfigFile = None,
) -> None:
    """Compare models with the first of them on the same rows: what is significantly better or worse?

    Two reports (JSON) or certificates in place of the models are compared as they are, number by number. With --against
    one model is compared on two tables, or two models each on its own, by every --auditor. With --max or --min every
    model is judged; the exit code is that of the worst verdict on a model beside the first.

    Each --predictions is one more to compare, after the models: columns of the data, as in `fairkit audit`.
    """
    from fairkit.data.roles import PredictionRoles
    from fairkit.models.columns import PredictedColumns
    from fairkit_cli.commands.audit import drawing
    from fairkit_cli.config import load_announced
    from fairkit_cli.packs import load_model
    from fairkit_cli.terminal.output import progress_bar
    from fairkit_comparing.run import compare as run

    policy = opt.rules_of(maximums, minimums)
    if models and any(map(is_report, models)):
        groups = (columns, conditions, where, sandbox, scoring)
        typed = (against, features_of, predictions, threshold)
        if any(option is not None for option in typed) or any(group != type(group)() for group in groups):
            raise ParameterError("reports and certificates are compared as they are: leave the other options out")
        result = of_reports(models, policy)
        write(lambda terminal: text_of(result, output_format, terminal), output)
        raise typer.Exit(exit_code(result.verdict))
    settings = load_announced(config)
    audited = replace(opt.audit_settings(scoring, settings), policy=policy)
    asked = {*(scoring.auditors or ()), *(text.partition(".")[0] for text in scoring.assignments or ())}
    if asked and against is None:
        raise ParameterError(
            "models on one table are compared by metrics; leave --auditor and --set out, and audit each model by itself"
        )
    loaded = [load_model(model, settings) for model in models or ()]
    told_columns = [PredictionRoles.parse([text]) for text in predictions or ()]
    if not told_columns and settings.data.get("predictions"):
        told_columns = [PredictionRoles.of(settings.data["predictions"])]
    compared = [*loaded, *(PredictedColumns.of(told_column) for told_column in told_columns)]
    names = [*(models or ()), *(predictions or ["predictions"] * len(told_columns))]
    thresholds = own_thresholds(threshold, names, loaded)
    carried = next((model.settings for model in loaded if model.settings), {})
    file = "test" if "test" in settings.data else "path"
    data = opt.load_dataset(columns, settings, carried, file=file, conditions=conditions, outcomes_optional=True)
    if against is not None:
        if features_of:
            raise ParameterError("--features-of is for several models on one table; with --against use --features")
        later = opt.load_dataset(
            replace(columns, data=against), settings, carried, conditions=conditions, outcomes_optional=True
        )
        with drawing(output_format), progress_bar() as progress:
            told_engine = {"progress": progress, **where.arguments()}
            result = of_tables(compared, data, later, audited, thresholds, told_engine)
        write(lambda terminal: text_of(result, output_format, terminal), output)
        raise typer.Exit(exit_code(result.verdict))
    with drawing(output_format), progress_bar() as progress:
        result = run(
            compared,
            data,
            policy=policy,
            confidence=audited.confidence,
            seed=audited.seed,
            options=audited.options,
            threshold=thresholds,
            features=own_features(features_of, models or (), len(compared)),
            progress=progress,
            **where.arguments(),
        )
    result = told_apart(result, names)
    write(lambda terminal: text_of(result, output_format, terminal), output)
    raise typer.Exit(exit_code(result.verdict))


# `fairkit parity`: does a file decide as the model did?


@opt.expanded
def parity(
    model: Annotated[str, typer.Argument(metavar="MODEL.onnx", help="The file, or a name in the registry.")],
    *,
    columns: opt.DataOptions,
    predictions: opt.PredictionColumns = None,
    threshold: Annotated[
        float | None, opt.option("--threshold", "T", "Compare decisions by this threshold in place of the file's own.")
    ] = None,
    output_format: opt.TableFormat = "table",
    output: opt.Output = None,
    config: opt.ConfigFile = None,
) -> None:
    """Compare a file's decisions and scores with those that the model made, columns of the data, row by row.

    Exit code 1 where decisions differ. In Python: fairkit.parity(file, estimator, X).
    """
    from fairkit.data.roles import PredictionRoles
    from fairkit_cli.config import load_announced
    from fairkit_cli.packs import load_model
    from fairkit_comparing.parity import parity as compared

    settings = load_announced(config)
    if not predictions and not settings.data.get("predictions"):
        raise ParameterError("which decisions? Name the column with what the model said: --predictions decision=COL")
    named = PredictionRoles.parse(predictions) if predictions else PredictionRoles.of(settings.data["predictions"])
    loaded = load_model(model, settings)
    carried = {**loaded.settings, "label": None, "sensitive": None}
    found = compared(loaded, None, opt.load_dataset(columns, settings, carried, predictions=named), threshold=threshold)
    write(lambda _: record_text(found.to_dict()) if output_format == "json" else f"{found}\n", output)
    raise typer.Exit(0 if found else 1)


# What `fairkit compare` compares besides models on one table: two reports or certificates, or two tables.


def is_report(path: str) -> bool:
    """Tell whether a file is a report or a certificate: JSON, which no ONNX model begins as."""
    try:
        with Path(path).open("rb") as file:
            return file.read(64).lstrip()[:1] == b"{"
    except OSError:
        return False


def of_reports(paths: Sequence[str], policy: Sequence[Rule] = ()) -> Comparison:
    """Compare two reports or certificates."""
    from fairkit_cli.evidence import compare_reports, read_report

    if len(paths) != 2 or not all(map(is_report, paths)):
        raise ParameterError("give two reports or certificates, the earlier one first, and no models among them")
    before, after = (read_report(Path(path)) for path in paths)
    result = compare_reports(before, after, policy)
    if [model.name for model in result.models] != ["before", "after"]:
        return result
    return told_apart(result, [Path(path).name for path in paths])


def own_features(texts: Sequence[str] | None, models: Sequence[str], many: int) -> list[tuple[str, ...] | None]:
    """Read ``MODEL=A,B``: the columns of each of `many` subjects, models first; None: those of the data."""
    features: list[tuple[str, ...] | None] = [None] * many
    for text in texts or ():
        named = [model for model in dict.fromkeys(models) if text.startswith(f"{model}=")]
        if not named:
            raise ParameterError(
                f"--features-of {text!r} names none of the models {', '.join(models) or '(there are none)'}; write "
                "MODEL=COLUMN,COLUMN"
            )
        model = max(named, key=len)
        columns = tuple(listed_names(text[len(model) + 1 :]))
        for place in (index for index, named in enumerate(models) if named == model):
            if not columns or features[place] is not None:
                raise ParameterError(f"--features-of names the columns of {model!r} once, and at least one")
            features[place] = columns
    return features


def own_thresholds(texts: Sequence[str] | None, names: Sequence[str], files: Sequence[Any]) -> list[float | None]:
    """Read ``T``, of all subjects, and ``NAME=T``, of one: a model, or the text of a --predictions."""
    thresholds: dict[int, float] = {}
    for text in texts or ():
        name, _, value = text.rpartition("=")
        places = [index for index, label in enumerate(names) if name in ("", label)]
        try:
            threshold = float(value)
        except ValueError:
            raise ParameterError(
                f"--threshold {text!r} does not end in a number; write NAME=T, as in a.onnx=0.2"
            ) from None
        if not places:
            raise ParameterError(f"--threshold {text!r} names none of the models {', '.join(names)}; write MODEL=T")
        if name and any(has_rule(files[index].proto) for index in places if index < len(files)):
            raise ParameterError(
                f"--threshold {text!r}: {name} is a repaired file and keeps its own rule; leave it out"
            )
        thresholds = (
            dict.fromkeys(places, threshold) | thresholds if not name else thresholds | dict.fromkeys(places, threshold)
        )
    return [thresholds.get(index) for index in range(len(names))]


def of_tables(
    models: Sequence[Any],
    before: Dataset,
    after: Dataset,
    settings: AuditSettings,
    thresholds: Sequence[float | None],
    engine: Mapping[str, Any],
) -> Comparison:
    """Compare a model on one table with the same model, or the one that followed it, on another."""
    from fairkit.auditing.run import audit
    from fairkit_cli.evidence import compare_reports
    from fairkit_comparing.collect import changes_between

    if not 1 <= len(models) <= 2:
        raise ParameterError(
            "--against compares one model on two tables, or the earlier model on --data with the later one on "
            "--against; give one or two models, or --predictions"
        )
    if len(set(thresholds)) > 1:
        raise ParameterError("with --against a --threshold is that of both models: leave its name out")
    settings = replace(settings, options=at_threshold(settings.options, thresholds[0]) or settings.options)
    tables = before, after
    first, second = (
        audit(model, data, settings=settings, **engine)
        for model, data in zip((models[0], models[-1]), tables, strict=True)
    )
    more = changes_between(models, tables, settings, **engine)
    comparison = compare_reports(first, second, settings.policy, alone=not more)
    divided = {change.metric for change in more}
    shown = (change for change in comparison.changes[0] if change.metric not in divided)
    return replace(comparison, changes=((*shown, *more),))
