"""Several models in one pass over the rows: each is audited, and each is compared with the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit import plugins
from fairkit.auditing.measure import score_once
from fairkit.models.ranking import bound
from fairkit_comparing.run import comparison, paired_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.auditing.prepare import LoadedAuditors
    from fairkit.data.dataset import Dataset
    from fairkit.engines.base import Engine
    from fairkit.models.scorer import Model
    from fairkit.progress import Progress
    from fairkit.results.comparisons import Comparison
    from fairkit.results.report import Report
    from fairkit.settings import ModelOptions


def audit_beside(
    engine: Engine,
    models: Sequence[Model],
    data: Dataset,
    loaded: LoadedAuditors,
    options: Sequence[ModelOptions],
    progress: Progress,
    *,
    compared: Dataset | None = None,
) -> tuple[list[Report], Comparison]:
    """Audit models and compare them with the first; every row is scored once by each."""
    data.learn(engine.total)
    scorers = [bound(model, data, each) for model, each in zip(models, options, strict=True)]
    audits = [loaded.about(scorer, data, engine, progress, index=place) for place, scorer in enumerate(scorers)]
    readers = [reader for audit in audits for reader in audit.readers]
    pairing, used = paired_up(scorers, data)
    engine.check(*plugins.needs_of([*loaded.used, *used]))
    apart = compared is not None and compared is not data
    totals = score_once(engine, data, scorers, readers if apart else [*readers, pairing], progress)
    left = iter(totals)
    reports = [audit.report([next(left) for _ in audit.readers]) for audit in audits]
    if not apart:
        return reports, comparison(pairing, next(left), loaded.settings.confidence)
    assert compared is not None  # noqa: S101 -- apart
    compared.learn(engine.total)
    ranked = [bound(model, compared, each) for model, each in zip(models, options, strict=True)]
    pairing, _ = paired_up(ranked, compared)
    (total,) = score_once(engine, compared, ranked, [pairing], progress)
    return reports, comparison(pairing, total, loaded.settings.confidence)
