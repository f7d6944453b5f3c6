"""Project: the sensitive subspace of the fair metric is taken out of the features, then any learner is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import fairkit
from fairkit.learners import INSTALLED, LEARNERS
from fairkit.mitigators import Capability
from fairkit_onnx.write.encode import LinearEncoding
from fairkit_repair.preprocess import PreParameters, Prepared, PreProcessor
from fairkit_similarity.metric import directions_parameter, strength_parameter
from fairkit_similarity.training import feature_columns, graph_encoder, named_directions, sensitive_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Run, Table


class Project(PreProcessor):
    """Take the sensitive subspace out of the features, then train any learner on what is left.

    The subspace is that of the fair metric (see `fairkit_similarity.learn.subspace`): the sensitive columns
    themselves and the directions that predict them linearly from the other features. The model does not read
    the sensitive columns, so that changing them changes nothing (their consistency is 1), and each row that it
    scores is projected as the training rows were. Features that tell the groups apart in other ways stay.
    """

    name = "project"
    tasks = ("binary", "multiclass", "regression")
    citation = (
        "Bower, Niss, Sun & Vargo, Debiasing representations by removing unwanted variation due to protected "
        "attributes, 2018, arXiv:1807.00461; Yurochkin, Bower & Sun, Training individually fair ML models with "
        "sensitive subspace robustness, ICLR 2020, arXiv:1907.00020"
    )
    capabilities = (Capability(constraints=("consistency",)),)
    learners = (*LEARNERS, INSTALLED)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters(PreParameters):
        """See `Project`."""

        strength: float = strength_parameter()
        directions: tuple[str, ...] | None = directions_parameter()

    def prepare(self, table: Table, run: Run) -> Prepared:
        """Learn the subspace; one group of everybody has none."""
        if table.groups and all(len(groups.names) == 1 for groups in table.groups.values()):
            return Prepared(table=table)
        return Prepared(
            table=table, encoder=learn_projection(table, self.parameters.strength, self.parameters.directions)
        )

    def promises(self) -> Sequence[fairkit.Rule]:
        """Changing the sensitive columns changes no decision."""
        return (fairkit.Rule(metric="consistency", min=1.0),)


def learn_projection(table: Table, strength: float = 0.1, directions: Sequence[str] | None = None) -> LinearEncoding:
    """Learn the encoding z = (I - P) x without the coordinates of the sensitive columns, which are zero.

    P projects on the sensitive subspace. The axes are those of the features, not a rotation of them: trees
    split along axes.
    """
    from fairkit_similarity.learn import subspace

    columns, sensitive = _columns(table)
    metric = subspace(columns, sensitive, strength=strength, directions=named_directions(table, directions))
    projector = metric.matrix @ metric.matrix.T
    features = np.delete(np.arange(len(projector)), metric.encoder.places(sensitive))
    read = [column for column in metric.encoder.columns if column.name not in sensitive]
    return LinearEncoding(
        encoder=graph_encoder(read),
        matrix=projector[np.ix_(features, features)],
        center=np.zeros(len(features)),
        names=[metric.encoder.features[feature] for feature in features],
    )


def _columns(table: Table) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the features and sensitive columns, and the latter's names."""
    if not table.groups:
        raise fairkit.DataError(f"{table.name}: project needs a sensitive column; name it with `sensitive`")
    columns, sensitive = feature_columns(table), sensitive_columns(table)
    if set(columns) <= set(sensitive):
        raise fairkit.DataError(f"{table.name}: all features are sensitive; nothing is left to learn from")
    return columns | sensitive, list(sensitive)


@fairkit.hookimpl
def fairkit_mitigators() -> list[type[fairkit.Mitigator]]:
    """Offer the method."""
    return [Project]
