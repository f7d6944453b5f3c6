"""A table of answers outside an audit: a pilot's variances."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from fairkit_correspondence.planning import Spread

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit_correspondence.parameters import Parameters


def pilot_of(data: Dataset, parameters: Parameters) -> tuple[Spread, int, int]:
    """Return the largest variances of a pilot's pairs, its groups and its contexts.

    Raises
    ------
    FairkitError
        The table is no table of answers.
    """
    from fairkit.auditors import AuditContext
    from fairkit.models.columns import PredictedColumns
    from fairkit.settings import ModelOptions
    from fairkit_correspondence.answers import answers_of
    from fairkit_correspondence.auditor import CorrespondenceAuditor

    data.learn()
    assert data.roles.predictions is not None  # noqa: S101 -- the caller names them
    scorer = PredictedColumns.of(data.roles.predictions).bind(data, ModelOptions())
    context = AuditContext(dataset=data, scorer=scorer)
    auditor = CorrespondenceAuditor(parameters)
    columns = [*auditor.columns(context), *scorer.columns]
    batches = data.batches(list(dict.fromkeys(columns)), partial=True)
    pieces = [auditor.measure(b, scorer.predict(b.columns(scorer.columns)), context) for b in batches]
    total = pieces[0]
    for piece in pieces[1:]:
        total = total + piece
    (split,) = data.roles.sensitive
    answers = answers_of(total, split.name, data.group_names(split.name), parameters, context)
    pairs = combinations(range(len(answers.groups)), 2)
    found = [Spread.of_pilot(answers.cells(*pair)) for pair in pairs]
    worst = Spread(
        **{
            key: max(getattr(one, key) for one in found)
            for key in ("interaction", "answer", "name", "largest")
        }
    )
    return worst, len(answers.groups), len(answers.contexts)
