"""Correlation remover, a baseline: features lose what sensitive columns explain linearly, also at prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import fairkit
from fairkit.learners import INSTALLED, LEARNERS
from fairkit_onnx.write.encode import LinearEncoding, fit_encoder
from fairkit_repair.preprocess import PreParameters, Prepared, PreProcessor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Run, Table


def remove_correlation(
    features: NDArray[np.float64], sensitive: NDArray[np.float64], weights: NDArray[np.float64], alpha: float = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Find the linear map that takes the part out of the features that the sensitive columns explain.

    With s̄ the mean of each sensitive column (one per column, not one for all) and B the least-squares
    coefficients of the features on s - s̄, the result of a row is x - α (s - s̄) B. At α = 1 its columns have no
    correlation with any sensitive column, and their means are those of x.
    """
    mean = np.average(sensitive, axis=0, weights=weights)
    root = np.sqrt(weights)[:, None]
    level = np.average(features, axis=0, weights=weights)
    slopes = np.linalg.lstsq((sensitive - mean) * root, (features - level) * root, rcond=1e-10)[0]
    return np.concatenate([np.eye(features.shape[1]), -alpha * slopes]), mean


class CorrelationRemover(PreProcessor):
    """Take the part that the sensitive columns explain linearly out of all other features: a baseline.

    A baseline to compare with: it has not lowered disparities beyond chance on public data. Prefer ``linear-post``,
    ``threshold-optimizer`` or ``fairgbm``.
    The sensitive columns themselves are no features of the learner, but the model reads them: the same map is
    applied to every row that it scores. What is not linear stays, so look at the audit after. Columns are
    standardised and text is one column per value.
    """

    name = "correlation-remover"
    tasks = ("binary", "multiclass", "regression")
    citation = "Weerts et al., Fairlearn (CorrelationRemover), JMLR 24, 2023"
    learners = (*LEARNERS, INSTALLED)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(PreParameters):
        """See `CorrelationRemover`."""

        alpha: float = fairkit.parameter(
            1.0, help="How much to remove: 0 nothing, 1 all correlation.", minimum=0, maximum=1
        )

    def prepare(self, table: Table, run: Run) -> Prepared:
        """Learn the map."""
        return Prepared(table=table, encoder=learn_encoding(table, self.parameters.alpha))


def learn_encoding(table: Table, alpha: float) -> LinearEncoding:
    """Learn the encoding that removes correlation from a table's features."""
    sensitive = _sensitive_columns(table)
    features = [name for name in table.features if name not in sensitive]
    if not features:
        raise fairkit.DataError(f"{table.name}: all features are sensitive; nothing is left to learn from")
    encoder = fit_encoder(
        table.columns, [*features, *sensitive], text="onehot", standardise=True, fill=True, weights=table.weights
    )
    width = len(fit_encoder(table.columns, features, text="onehot", standardise=True, fill=True).names)
    encoded = encoder.transform(table.columns).astype(np.float64)
    matrix, mean = remove_correlation(encoded[:, :width], encoded[:, width:], table.row_weights(), alpha)
    return LinearEncoding(
        encoder=encoder, matrix=matrix, center=np.concatenate([np.zeros(width), mean]), names=encoder.names[:width]
    )


def _sensitive_columns(table: Table) -> list[str]:
    splits = [groups.split for groups in table.groups.values()]
    if not splits or any(split is None for split in splits):
        raise fairkit.DataError(
            f"{table.name}: correlation-remover reads the sensitive columns at prediction too; "
            "name columns of the table as sensitive, as in fairkit.mitigate('correlation-remover', "
            "fairkit.load_data(table, label='y', sensitive=['sex']))"
        )
    return list(dict.fromkeys(column for split in splits if split is not None for column in split.columns))


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [CorrelationRemover]
