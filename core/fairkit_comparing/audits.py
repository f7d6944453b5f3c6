"""Auditors that compare models: each looks at every model in the one pass, and says what differs from the first."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from fairkit import plugins
from fairkit.auditors import ComparesModels
from fairkit.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.auditing.prepare import Audit, LoadedAuditors
    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.models.scorer import Scorer
    from fairkit.progress import Progress
    from fairkit.results.comparisons import Comparison


def looking(
    loaded: LoadedAuditors | None, scorers: Sequence[Scorer], data: Dataset, engine: Engine, progress: Progress
) -> list[Audit]:
    """Prepare the auditors for each model; none where none is loaded for."""
    if loaded is None:
        return []
    _check(loaded)
    return each(loaded, scorers, data, engine, progress)


def each(
    loaded: LoadedAuditors, scorers: Sequence[Scorer], data: Dataset, engine: Engine, progress: Progress
) -> list[Audit]:
    """Prepare an audit of every model, for the one pass over the rows."""
    return [loaded.about(scorer, data, engine, progress, index=place) for place, scorer in enumerate(scorers)]


def check_auditors(names: Sequence[str]) -> None:
    """Refuse auditors that are not there, or do not compare models, before anything is trained."""
    from fairkit.auditing.prepare import LoadedAuditors
    from fairkit.settings import AuditSettings

    if names:
        _check(LoadedAuditors.of(AuditSettings(auditors=tuple(names))))


def _check(loaded: LoadedAuditors) -> None:
    for auditor in loaded.auditors:
        if not isinstance(auditor, ComparesModels):
            raise ParameterError(
                f"the auditor {auditor.name!r} does not compare models; leave it out, or audit each model by itself"
            )


def with_changes(comparison: Comparison, audits: Sequence[Audit], totals: Sequence[Any]) -> Comparison:
    """Add what the auditors say to a comparison; `totals` are of all readers, model by model."""
    many = len(audits[0].readers)
    changes = [list(one) for one in comparison.changes]
    for place, first in enumerate(audits[0].watching):
        auditor = first.auditor
        assert isinstance(auditor, ComparesModels)  # noqa: S101 -- as `looking` checked
        for model, audit in enumerate(audits[1:], 1):
            pair = totals[place], totals[model * many + place]
            with plugins.blame(first.owner, f"the auditor {first.auditor.name!r} compared models"):
                changes[model - 1] += auditor.changes(pair, (audits[0].context, audit.context))
    return dataclasses.replace(comparison, changes=tuple(map(tuple, changes)))
