"""The fair metric of a training, and the features that network and metric share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit_similarity import learn
from fairkit_similarity.encode import Encoder as MetricEncoder
from fairkit_similarity.metric import FairMetric
from fairkit_similarity.training import feature_columns, graph_encoder, named_directions, sensitive_columns
from fairkit_similarity.versions import read_given

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Table
    from fairkit_onnx.write.encode import Encoder
    from fairkit_sensei.counterfactuals import Flip
    from fairkit_similarity.encode import Floats

KINDS = ("subspace", "face", "explore")


def make_metric(
    kind: str,
    table: Table,
    flips: Sequence[Flip],
    *,
    strength: float,
    directions: Sequence[str] | None = None,
    rank: int,
    standardise: bool = True,
    counterfactuals: str | None = None,
    of: str = "of",
) -> FairMetric:
    """Learn the metric, or load it from a file."""
    features = feature_columns(table)
    if kind == "subspace":
        sensitive = sensitive_columns(table)
        if not sensitive:
            raise DataError(
                f"{table.name}: metric=subspace is learned from the sensitive columns; name some with `sensitive`, "
                "or use fair_metric=face with sensitive=COLUMNS, or fair_metric=FILE"
            )
        return learn.subspace(
            features | sensitive, list(sensitive), strength=strength, directions=named_directions(table, directions)
        )
    if kind == "face" and counterfactuals is not None:
        given = read_given(counterfactuals, of, table.features)
        return learn.face(given.columns, given.originals(), rank=rank, standardise=standardise)
    if kind in KINDS:
        stacked, people = _versions(features, flips)
        if kind == "face":
            return learn.face(stacked, people, rank=rank, standardise=standardise)
        return _explore(stacked, people, table)
    if not Path(kind).exists():
        raise ParameterError(
            f"sensei: the metric {kind!r} is none of {', '.join(KINDS)}, nor a file. {did_you_mean(kind, KINDS)}"
        )
    return FairMetric.load(kind)


def _versions(
    columns: Mapping[str, NDArray[Any]], flips: Sequence[Flip]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Put all counterfactual versions of the rows below the rows; return each one's person too."""
    rows = len(next(iter(columns.values())))
    copies = [dict(columns)]
    for flip in flips:
        for combination in flip.combinations:
            copy = dict(columns)
            for name, value in zip(flip.columns, combination, strict=True):
                same: NDArray[Any] = np.empty(rows, dtype=columns[name].dtype)
                same[:] = value
                copy[name] = same
            copies.append(copy)
    stacked = {name: np.concatenate([copy[name] for copy in copies]) for name in columns}
    return stacked, np.tile(np.arange(rows), len(copies))


def _explore(columns: Mapping[str, NDArray[Any]], people: NDArray[np.int64], table: Table) -> FairMetric:
    """Comparable: a person and another version of them. Not comparable: two people with different labels."""
    rng = np.random.default_rng(0)
    rows = len(table)
    count = min(5_000, len(people) - rows)
    versions = rows + rng.choice(len(people) - rows, count, replace=False)
    alike = np.column_stack([people[versions], versions])
    middle = np.median(table.target)
    high = table.target > middle if table.task == "regression" else table.target == table.target.max()
    one, two = rng.choice(np.flatnonzero(high), count), rng.choice(np.flatnonzero(~high), count)
    apart = np.column_stack([one, two])
    return learn.explore(columns, np.concatenate([alike, apart]), np.arange(2 * count) < count)


def plain_encoder(table: Table) -> Encoder:
    """Encode the features as a metric would, where there is none."""
    return graph_encoder(MetricEncoder.learn(feature_columns(table)).columns)


def shared_features(metric: FairMetric, table: Table) -> tuple[Encoder, Floats]:
    """Return the network's encoder in the metric's own coordinates, and the metric's matrix for these features.

    Columns of the metric that are no features stay as they are when a row moves, so they cost nothing.
    """
    by_name = {column.name: column for column in metric.encoder.columns}
    absent = [name for name in table.features if name not in by_name]
    if absent:
        raise DataError(
            f"the fair metric is for the columns {', '.join(metric.columns)}, and not for the feature {absent[0]!r}: "
            f"it has another width than the features. Leave the feature out with `drop` {absent[0]}, or learn a "
            "metric with it"
        )
    for name in table.features:
        text = table.columns[name].dtype.kind in "OUS"
        if text != (by_name[name].kind == "category"):
            raise DataError(
                f"the fair metric takes the column {name!r} as a {by_name[name].kind}, but here it holds "
                f"{'text' if text else 'numbers'}"
            )
    chosen = [by_name[name] for name in table.features]
    places = [metric.encoder.places([name]) for name in table.features]
    return graph_encoder(chosen), metric.matrix[np.concatenate(places)]
