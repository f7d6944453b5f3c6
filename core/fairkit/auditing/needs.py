"""What a policy needs: the auditors that measure its numbers; a rule that none measures is refused before any work."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from fairkit import plugins
from fairkit.errors import PluginError, PolicyError, did_you_mean
from fairkit.results.policy import metric_hint

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.data.dataset import Dataset
    from fairkit.metrics import Metric
    from fairkit.results.rules import Rule


def needed_auditors(
    rules: Sequence[Rule], chosen: Sequence[Auditor], metrics: Sequence[type[Metric]], others: Sequence[plugins.Plugin]
) -> list[str]:
    """Return the auditors besides the chosen ones that measure what rules are about."""
    missing = {rule.metric for rule in rules}
    silent = False
    names: set[str] = set()
    for auditor in chosen:
        measured = auditor.measures(metrics)
        silent = silent or measured is None
        names |= measured or set()
    missing -= names
    auditor_names: list[str] = []
    candidates = _installed(others) if missing else iter(())
    for cls, brought in candidates:
        if not missing:
            break
        measured = cls.measures([*metrics, *(one for one in brought if one not in metrics)])
        names |= measured or set()
        if missing & (measured or set()):
            missing -= measured or set()
            auditor_names.append(cls.name)
    if missing and not silent:
        rule = min((rule for rule in rules if rule.metric in missing), key=lambda rule: rule.metric)
        hint = metric_hint(rule, names)
        raise PolicyError(f"the policy names the metric {rule.metric!r}, which no installed auditor measures. {hint}")
    return auditor_names


def _installed(others: Sequence[plugins.Plugin]) -> Iterator[tuple[type[Auditor], Sequence[type[Metric]]]]:
    """Yield the installed auditors with the metrics of their plugins, that of groups first."""
    brought = [metric for plugin in others for metric in plugin.metrics]
    for found in sorted(plugins.find(), key=lambda one: one.name != "group"):
        if not found.built_in:
            continue
        try:
            loaded = plugins.load(found.name)
        except PluginError:
            continue  # `fairkit plugins list` says why
        for cls in loaded.auditors:
            yield cls, [*loaded.metrics, *brought]
    for plugin in others:
        for cls in plugin.auditors:
            yield cls, brought


def check_columns(rules: Sequence[Rule], data: Dataset, group: Auditor, metrics: Sequence[type[Metric]]) -> None:
    """Refuse rules on group metrics of a column that is not sensitive, before any row is scored."""
    roles = data.roles
    names = [split.name for split in roles.sensitive]
    names += [text.partition("=")[0] for text in roles.sensitive_probability]
    of_groups: Collection[str] = group.measures(metrics) or ()
    widths = {f"{one.alias or one.name}_difference": one.range[1] - one.range[0] for one in metrics}
    for rule in rules:
        parts = group.headlines[rule.metric].worse_of if rule.metric in group.headlines else (rule.metric,)
        largest = min((widths.get(part, math.inf) for part in parts), default=math.inf)
        if rule.upper and rule.limit > largest:
            people = f"{rule.limit:g} of 100 people are {rule.limit / 100:g}"
            raise PolicyError(f"{rule.metric!r} is never above {largest:g}, so {rule.limit:g} is no limit; {people}")
        if rule.sensitive is None or rule.metric not in of_groups:
            continue
        if rule.sensitive not in names and rule.sensitive.partition("|")[0] not in names:
            hint = did_you_mean(rule.sensitive, names, what="sensitive columns")
            raise PolicyError(f"the policy asks {rule.metric!r} for {rule.sensitive!r}, which was not audited. {hint}")
