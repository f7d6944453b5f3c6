"""What `fairkit compare` compares besides models on one table: two reports or certificates, or two tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import DataError, ParameterError
from fairkit.results.policy import told_apart
from fairkit.settings import at_threshold
from fairkit.support.escaping import listed_names
from fairkit_onnx.read.outputs import has_rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.results.policy import Comparison
    from fairkit.results.report import Report
    from fairkit.results.rules import Rule
    from fairkit.settings import AuditSettings


def is_report(path: str) -> bool:
    """Tell whether a file is a report or a certificate: JSON, which no ONNX model begins as."""
    try:
        with Path(path).open("rb") as file:
            return file.read(64).lstrip()[:1] == b"{"
    except OSError:
        return False


def of_reports(paths: Sequence[str], policy: Sequence[Rule] = ()) -> Comparison:
    """Compare two reports or certificates."""
    from fairkit_cli.evidence import compare_reports

    if len(paths) != 2 or not all(map(is_report, paths)):
        raise ParameterError("give two reports or certificates, the earlier one first, and no models among them")
    before, after = map(_read, paths)
    result = compare_reports(before, after, policy)
    if [model.name for model in result.models] != ["before", "after"]:
        return result
    return told_apart(result, [Path(path).name for path in paths])


def _read(path: str) -> Report:
    from fairkit.results.report import Report, validate_report

    raw = Path(path).read_bytes()
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        raise DataError(f"{path} is neither a report nor a certificate: it is not valid JSON") from None
    if "payload" in record:
        from fairkit_registry.evidence.certificate import read

        return read(raw).report
    validate_report(record)
    return Report.from_dict(record)


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
