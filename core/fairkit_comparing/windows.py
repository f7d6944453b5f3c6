"""Two tables, such as two months: what auditors say about how a number changed from one to the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairkit import plugins
from fairkit.auditing.measure import score_once
from fairkit.auditing.prepare import LoadedAuditors
from fairkit.auditing.subject import prepared
from fairkit.auditors import ComparesTables
from fairkit.engines.opening import opened
from fairkit.models.ranking import bound
from fairkit.progress import no_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.progress import Progress
    from fairkit.results.comparisons import Change
    from fairkit.settings import AuditSettings


def changes_between(
    models: Sequence[Any],
    tables: tuple[Dataset, Dataset],
    settings: AuditSettings,
    *,
    progress: Progress = no_progress,
    engine: Engine | str | None = None,
    scheduler: str | None = None,
) -> list[Change]:
    """Return the changes by auditors that compare tables; every model scores both tables."""
    loaded = LoadedAuditors.of(settings)
    able = tuple(auditor for auditor in loaded.auditors if isinstance(auditor, ComparesTables))
    if not able:
        return []
    loaded, audits, totals = replace(loaded, auditors=able), [], []
    with opened(engine, scheduler) as running:
        for data in tables:
            subjects = prepared(models, data, running.total)
            scorers = [bound(model, data, settings.options) for model in subjects]
            running.check(*plugins.needs_of(loaded.used))
            audits.append(
                [loaded.about(scorer, data, running, progress, index=place) for place, scorer in enumerate(scorers)]
            )
            readers = [reader for audit in audits[-1] for reader in audit.readers]
            totals.append(score_once(running, data, scorers, readers, progress))
    many, changes = len(audits[0][0].readers), []
    for place, first in enumerate(audits[0][0].watching):
        auditor = first.auditor
        assert isinstance(auditor, ComparesTables)  # noqa: S101 -- `able` are
        each = [[total[model * many + place] for model in range(len(models))] for total in totals]
        contexts = [[audit.context for audit in row] for row in audits]
        with plugins.blame(first.owner, f"the auditor {auditor.name!r} compared tables"):
            changes += auditor.table_changes(each, contexts)
    return changes
