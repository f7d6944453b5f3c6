"""Project: the sensitive subspace of the fair metric is taken out of the features, then any learner is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import fairkit
from fairkit.learners import fit_learner
from fairkit.onnx.write.encode import MISSING_TEXT, Encoder, NumberColumn, TextColumn
from fairkit.onnx.write.linear import LinearEncoding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.individual.encode import ColumnEncoding
    from fairkit.mitigators import FittedModel, Run, Table


class Project(fairkit.Mitigator):
    """Take the sensitive subspace out of the features, then train any learner on what is left.

    The subspace is that of the fair metric (see `fairkit.individual.learn.subspace`): the sensitive columns
    themselves and the directions that predict them linearly from the other features. The model does not read
    the sensitive columns, so that changing them changes nothing (their consistency is 1), and each row that it
    scores is projected as the training rows were. Features that tell the groups apart in other ways stay.
    """

    name = "project"
    stage = "pre"
    tasks = ("binary", "multiclass", "regression")
    citation = (
        "Bower, Niss, Sun & Vargo, Debiasing representations by removing unwanted variation due to protected "
        "attributes, 2018, arXiv:1807.00461; Yurochkin, Bower & Sun, Training individually fair ML models with "
        "sensitive subspace robustness, ICLR 2020, arXiv:1907.00020"
    )
    learners = ("lightgbm", "xgboost", "logistic", "linear", "forest", "mlp")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """See `Project`."""

        strength: float = fairkit.parameter(
            0.1, help="l2 penalty of the logistic regressions that find the directions.", above=0
        )
        settings: Mapping[str, Any] = fairkit.parameter(
            {}, help="Parameters of the learner's library, such as settings.max_depth=4."
        )

    def fit(self, table: Table, run: Run, **_: object) -> FittedModel:
        """Learn the subspace, and train on the projected rows."""
        if table.groups and all(len(groups.names) == 1 for groups in table.groups.values()):
            return self.baseline(table, run)
        return fit_learner(
            self.learner(run),
            table,
            run,
            settings=self.parameters.settings,
            encoder=learn_projection(table, self.parameters.strength),
        )

    def promises(self) -> Sequence[fairkit.Rule]:
        """Changing the sensitive columns changes no decision."""
        return (fairkit.Rule(metric="consistency", minimum=1.0),)

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train on the features as they are."""
        return fit_learner(self.learner(run), table, run, settings=self.parameters.settings)


def learn_projection(table: Table, strength: float = 0.1) -> LinearEncoding:
    """Learn the encoding z = (I - P) x without the coordinates of the sensitive columns, which are zero.

    P projects on the sensitive subspace. The axes are those of the features, not a rotation of them: trees
    split along axes.

    Raises
    ------
    fairkit.DataError
        There is no sensitive column, a sensitive column is constant, or nothing is left of the features.
    """
    from fairkit.individual.learn import subspace

    columns, sensitive = _columns(table)
    metric = subspace(columns, sensitive, strength=strength)
    projector = metric.matrix @ metric.matrix.T
    kept = np.delete(np.arange(len(projector)), metric.encoder.places(sensitive))
    read = [column for column in metric.encoder.columns if column.name not in sensitive]
    return LinearEncoding(
        encoder=Encoder(tuple(_as_input(column) for column in read)),
        matrix=projector[np.ix_(kept, kept)],
        center=np.zeros(len(kept)),
        names=[metric.encoder.features[place] for place in kept],
    )


def _columns(table: Table) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the features and sensitive columns, and the latter's names.

    Groups without columns behind them (a series of sensitive values beside the features) are text columns;
    one group of everybody is nothing to project out.
    """
    if not table.groups:
        raise fairkit.DataError(f"{table.name}: project needs a sensitive column; name it with --sensitive")
    columns: dict[str, NDArray[Any]] = {name: table.columns[name] for name in table.features}
    sensitive: dict[str, NDArray[Any]] = {}
    for name, groups in table.groups.items():
        if len(groups.names) == 1:
            continue
        if groups.split is None:
            sensitive[f"(sensitive) {name}"] = np.array(groups.names, dtype=object)[groups.codes]
        else:
            sensitive |= {column: table.columns[column] for column in groups.split.columns}
    if set(columns) <= set(sensitive):
        raise fairkit.DataError(f"{table.name}: all features are sensitive; nothing is left to learn from")
    return columns | sensitive, list(sensitive)


def _as_input(column: ColumnEncoding) -> NumberColumn | TextColumn:
    """Return a column of the fair metric in the form that goes into a graph."""
    if column.kind == "number":
        return NumberColumn(
            column.name,
            shift=float(np.float32(column.mean)),
            scale=float(np.float32(1.0 / column.scale)),
            fill=float(np.float32(column.mean)),
            indicator=column.missing,
        )
    shown = column.categories[1:] if len(column.categories) == 2 else column.categories
    return TextColumn(
        column.name, tuple(MISSING_TEXT if text == "(missing)" else text for text in shown), "onehot"
    )


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [Project]
