"""Massaging: the labels nearest to the border are changed until all groups have the same share of favorable ones."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import fairkit
from fairkit.mitigators import Capability
from fairkit_repair.learners import fit_learner
from fairkit_repair.preprocess import PreParameters, Prepared, PreProcessor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Run, Table


def massage(
    target: NDArray[np.float64], codes: NDArray[np.int64], scores: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Change the labels nearest to the border until every group has the share of favorable labels of all.

    A group of weight W_g with favorable weight P_g is to gain W_g P / W - P_g: its unfavorable rows of the
    highest scores are promoted, or its favorable rows of the lowest scores demoted, until the change is as
    near to that as whole rows allow. For two groups this is the M of Kamiran & Calders (2009).
    """
    changed = target.copy()
    overall = float(weights @ target / weights.sum())
    for group in np.unique(codes):
        rows = np.flatnonzero(codes == group)
        gain = overall * weights[rows].sum() - weights[rows] @ target[rows]
        promote = gain > 0
        candidates = rows[target[rows] == (0.0 if promote else 1.0)]
        order = np.argsort(-scores[candidates] if promote else scores[candidates], kind="stable")
        reached = np.concatenate([[0.0], np.cumsum(weights[candidates[order]])])
        count = int(np.abs(reached - abs(gain)).argmin())
        changed[candidates[order[:count]]] = 1.0 if promote else 0.0
    return changed


class Massaging(PreProcessor):
    """Change the labels nearest to the border until groups have equal shares, then train any learner.

    A ranker, trained on the labels as they are, says which rows are near to the border. The training labels
    become what they were not: use it where labels are known to be biased decisions, not facts.
    """

    name = "massaging"
    tasks = ("binary",)
    citation = "Kamiran & Calders, Classifying without discriminating, IC4 2009, doi:10.1109/IC4.2009.4909197"
    capabilities = (Capability(constraints=("demographic_parity",), trainings=2),)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(PreParameters):
        """See `Massaging`."""

        sensitive: str | None = fairkit.parameter(
            None, help="The split to balance, such as sex+race; default: the only one, else all crossed."
        )
        ranker: Literal["logistic", "lightgbm", "xgboost", "forest", "mlp"] = fairkit.parameter(
            "logistic", help="The learner that ranks the rows."
        )

    def prepare(self, table: Table, run: Run) -> Prepared:
        """Rank the rows, and change labels."""
        groups = table.only_groups(self.parameters.sensitive)
        scores = fit_learner(self.parameters.ranker, table, run).predict(table.columns).score
        target = massage(table.target, groups.codes, scores, table.row_weights())
        return Prepared(
            table=dataclasses.replace(table, target=target), details=_changes(table, target, groups.codes, groups.names)
        )


def _changes(
    table: Table, target: NDArray[np.float64], codes: NDArray[np.int64], names: tuple[str, ...]
) -> dict[str, Any]:
    promoted = np.bincount(codes, target > table.target, minlength=len(names))
    demoted = np.bincount(codes, target < table.target, minlength=len(names))
    return {
        "promoted": {name: int(count) for name, count in zip(names, promoted, strict=True) if count},
        "demoted": {name: int(count) for name, count in zip(names, demoted, strict=True) if count},
    }


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [Massaging]
