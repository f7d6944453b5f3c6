"""The fair metric of training: learned from the training rows, or read from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fairkit.errors import DataError, MissingExtraError, ParameterError, did_you_mean
from fairkit_similarity.encode import Encoder
from fairkit_similarity.metric import FairMetric
from fairkit_similarity.search.memory import check_memory
from fairkit_similarity.training import feature_columns, named_directions, sensitive_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Table

SUBSPACE = "subspace"


class Geometry(NamedTuple):
    """The metric, the raw columns that it reads of training rows, and whether an audit can read them too."""

    metric: FairMetric
    columns: Mapping[str, NDArray[Any]]
    audited: bool


def find_geometry(
    table: Table, metric: str, strength: float, directions: Sequence[str] | None = None
) -> Geometry | None:
    """Learn or load the metric; None where there is nothing to learn it from: no groups, or one only."""
    columns, sensitive = raw_columns(table)
    if metric != SUBSPACE:
        if not Path(metric).exists():
            hint = did_you_mean(metric, [SUBSPACE])
            raise ParameterError(f"budro: the metric {metric!r} is neither {SUBSPACE!r} nor a file. {hint}")
        loaded = FairMetric.load(metric)
        absent = [name for name in loaded.columns if name not in columns]
        if absent:
            hint = did_you_mean(absent[0], columns, what="columns")
            raise DataError(
                f"the fair metric {metric!r} reads the column {absent[0]!r}, which {table.name} does not have among "
                f"its features and sensitive columns. {hint}"
            )
        check_memory(len(table), len(loaded.encoder.features), len(table.classes))
        return Geometry(loaded, columns, True)
    if not sensitive:
        return None
    check_memory(len(table), len(Encoder.learn(columns).features), len(table.classes))
    try:
        from fairkit_similarity.learn import subspace

        learned = subspace(columns, sensitive, strength=strength, directions=named_directions(table, directions))
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "budro") from error
    return Geometry(learned, columns, all(name in table.columns for name in sensitive))


def raw_columns(table: Table) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the features and the sensitive columns, and the latter's names."""
    sensitive = sensitive_columns(table, constant=True)
    return feature_columns(table) | sensitive, list(sensitive)
