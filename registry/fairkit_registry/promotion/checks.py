"""What plugins say about a promotion: vetoes and notes, from the hook `fairkit_promotion_checks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit import plugins
from fairkit.promotions import Promotion, PromotionCheck, Remark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.store.records import Alias, Version
    from fairkit_registry.store.registry import Registry


def ask(
    registry: Registry, version: Version, alias: Alias, deciding: Certificate | None, current: Certificate | None
) -> Iterator[Remark]:
    """Ask every check of every installed plugin.

    A check that raises vetoes, because nobody knows what it would have said. A plugin that does not load
    is noted; an alias that relies on its check names the check, and then its absence is a veto.
    """
    checks, failures = installed()
    promotion = Promotion(
        name=version.name,
        version=version.version,
        alias=alias.alias,
        model_path=registry.blobs.path(version.model),
        model_sha256=version.model,
        report=None if deciding is None else deciding.report,
        mitigation=None if deciding is None else deciding.mitigation,
        keyids=() if deciding is None else deciding.keyids,
        holder=alias.version,
        holder_report=None if current is None else current.report,
        tags=version.tags,
    )
    known = {check.name for check in checks}
    for wanted in alias.policy.checks:
        if wanted not in known:
            yield Remark(text=f"the alias asks for the check {wanted!r}, and no plugin that loads has it")
    for check in checks:
        yield from _say(check, promotion)
    for failure in failures:
        yield Remark(text=f"not asked, because it does not load: {failure}", veto=False)


def installed() -> tuple[list[type[PromotionCheck]], list[str]]:
    """Return the checks of the installed plugins, and a sentence for each plugin that does not load."""
    loaded, failures = plugins.third_party()
    return [check for plugin in loaded for check in plugin.promotion_checks], failures


def _say(check: type[PromotionCheck], promotion: Promotion) -> Iterator[Remark]:
    try:
        for remark in check().check(promotion) or ():
            yield Remark(text=f"{check.name}: {remark.text}", veto=remark.veto)
    except Exception as error:
        yield Remark(text=f"{check.name}: the check broke ({type(error).__name__}: {error})")
