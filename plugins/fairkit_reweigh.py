"""Reweighing: rows are weighted so that group and label look independent, then any learner is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import fairkit
from fairkit.mitigators import Capability
from fairkit_alternatives.laws import independent_weights
from fairkit_repair.preprocess import PreParameters, Prepared, PreProcessor

if TYPE_CHECKING:
    from fairkit.mitigators import Run, Table


class Reweigh(PreProcessor):
    """Weight rows so that group and label look independent, then train any learner on them.

    The labels stay as they are, and nothing happens at prediction time. What the learner makes of the
    weights is its own affair: look at the audit after.
    """

    name = "reweigh"
    tasks = ("binary", "multiclass")
    citation = (
        "Kamiran & Calders, Data preprocessing techniques for classification without discrimination, "
        "Knowledge and Information Systems 33, 2012, doi:10.1007/s10115-011-0463-8"
    )
    capabilities = (
        Capability(constraints=("demographic_parity",), dial="strength", steps=(1.0, 0.75, 0.5, 0.25), of_limit=False),
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(PreParameters):
        """See `Reweigh`."""

        sensitive: str | None = fairkit.parameter(
            None, help="The split to balance, such as sex+race; default: the only one, else all crossed."
        )
        strength: float = fairkit.parameter(
            1.0, help="0 leaves the weights as they are, 1 makes group and label independent.", minimum=0, maximum=1
        )

    def prepare(self, table: Table, run: Run) -> Prepared:
        """Weight the rows."""
        codes = table.only_groups(self.parameters.sensitive).codes
        weights = table.row_weights()
        factors = independent_weights(codes, table.target.astype(np.int64), weights)
        return Prepared(table=table.with_weights(weights * (1.0 + self.parameters.strength * (factors - 1.0))))


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [Reweigh]
