"""What the names and values of a table's columns say of their roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.data.roles import good_value, is_outcome, value_text

if TYPE_CHECKING:
    from fairkit.data.source import Source

_SENSITIVE = (
    "sex", "gender", "race", "ethnicity", "age", "disability", "religion", "nationality", "rac1p", "agep",
)  # fmt: skip
_LABELS = (
    "label", "target", "outcome", "approved", "income", "class", "default", "decision", "y", "hired", "fraud",
)  # fmt: skip
_DECISIONS = (
    "decision", "approved", "accepted", "granted", "predicted", "prediction", "pred", "y_pred", "predicted_label",
)  # fmt: skip
_SCORES = (
    "score", "p", "prob", "probability", "proba", "y_score", "y_prob", "predicted_probability", "risk_score",
)  # fmt: skip
_OUTCOMES = ("repaid", "paid", "actual", "observed", "truth", "ground_truth", "y_true")
_LOOK_AT = 65_536


def guess_roles(data: Any) -> dict[str, Any]:
    """Guess the label, its favorable value, the sensitive columns and columns of predictions from names and values."""
    from fairkit.data.sources import open_source

    source = open_source(data)
    values = _few_values(source)
    guess: dict[str, Any] = {}
    predictions = _guess_predictions(source, values)
    if predictions:
        guess["predictions"] = predictions
        rest = [column for column in source.types if column not in predictions.values()]
        named = [column for column in rest if column.lower() in (*_LABELS, *_OUTCOMES)]
        label = next(iter(named), None)
    else:
        label = _guess_label(list(source.types), values)
    if label is not None:
        guess["label"] = label
        favorable = good_value(label, values.get(label, []))
        if favorable is not None:
            guess["favorable"] = favorable
        elif len(values.get(label, ())) == 2:
            guess["asked"] = values[label]
    sensitive = [c for name in _SENSITIVE for c in source.types if c.lower() == name and c != label]
    if sensitive:
        guess["sensitive"] = sensitive
    return guess


def _few_values(source: Source) -> dict[str, list[str]]:
    """The distinct values of the columns that have at most 20 in the first rows."""
    head = next(iter(source.batches(source.columns, _LOOK_AT)), None)
    if head is None:
        return {}
    result = {}
    for name, column in zip(head.schema.names, head.columns, strict=True):
        distinct = [value for value in column.unique().to_pylist() if value is not None]
        if len(distinct) <= 20:
            result[name] = sorted(value_text(value) for value in distinct)
    return result


def _guess_predictions(source: Source, values: dict[str, list[str]]) -> dict[str, str]:
    """Return the columns of decisions and scores, where the table is a log of them; else nothing.

    A column of decisions alone may be the outcome to predict: beside it there must be a score or an outcome.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lower = {column.lower(): column for column in reversed(list(source.types))}
    decisions = [lower[name] for name in _DECISIONS if name in lower and len(values.get(lower[name], ())) <= 2]
    decisions = [column for column in decisions if column in values]
    head = next(iter(source.batches(source.columns, _LOOK_AT)), None)
    scores = []
    for name in _SCORES:
        column = None if head is None or name not in lower else head.column(head.schema.names.index(lower[name]))
        if column is not None and pa.types.is_floating(column.type) and column.null_count < len(column):
            ends = pc.min_max(column).as_py()
            scores += [lower[name]] if ends["min"] >= 0 and ends["max"] <= 1 else []
    outcome = any(name in lower for name in _OUTCOMES)
    if not scores and not (decisions and outcome):
        return {}
    roles = {"decision": decisions[0]} if decisions else {}
    return roles | ({"score": scores[0]} if scores else {})


def _guess_label(columns: list[str], values: dict[str, list[str]]) -> str | None:
    named = [column for column in columns if column.lower() in _LABELS]
    named += [column for column in columns if is_outcome(column) and column not in named]
    binary = [c for c in columns if len(values.get(c, ())) == 2 and c.lower() not in _SENSITIVE]
    both = [column for column in named if column in binary]
    return next(iter([*both, *named, *reversed(binary)]), None)
