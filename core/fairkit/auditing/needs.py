"""What a policy needs: the auditors that measure its numbers; a rule that none measures is refused before any work."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fairkit import plugins
from fairkit.errors import ParameterError, PluginError, PolicyError, did_you_mean
from fairkit.results.policy import metric_hint

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.data.dataset import Dataset
    from fairkit.metrics import Metric
    from fairkit.results.findings import Finding
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
        measured = cls.measures([*metrics, *(auditor for auditor in brought if auditor not in metrics)])
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
    for info in sorted(plugins.find(), key=lambda info: info.name != "group"):
        if not info.built_in:
            continue
        try:
            loaded = plugins.load(info.name)
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
    widths = {f"{metric.alias or metric.name}_difference": metric.range[1] - metric.range[0] for metric in metrics}
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


# What a table says of its rows besides values, and which auditors use it: the others are refused, never ignored.


WAYS_OUT: Mapping[str, str] = {
    "weights": "leave `weights` out: every row then counts the same",
    "clusters": "leave `cluster` out: every row then counts as independent",
    "strata": "leave `within` out",
    "reference": "leave `reference` out",
    "group_probabilities": "leave `sensitive_probability` out",
    "missing_groups": "leave the column out, keep missing values as a group (`missing=group`), or leave these rows out",
    "missing_labels": "leave `label` out where nothing about outcomes is asked, or leave these rows out",
}
"""What an auditor's `uses` and `unaffected_by` may name, and what to do where neither does."""

NO_GROUPS = frozenset({"strata", "reference", "group_probabilities", "missing_groups", "missing_labels"})
"""What does not concern an auditor whose numbers compare no groups and need no outcomes."""


def conditions_of(data: Dataset) -> dict[str, str]:
    """Return which conditions a table has, by name, in words."""
    roles, profile = data.roles, data.profile
    splits = ", ".join(split.name for split in roles.within)
    missing = [f"{count:,} rows have no value of {name!r}" for name, count in profile.missing.items()]
    reasons = {
        "weights": roles.weights and f"the weights {roles.weights!r}",
        "clusters": roles.cluster and f"the clusters of {roles.cluster!r}",
        "strata": splits and f"the strata of {splits!r}",
        "reference": roles.reference and f"the reference {', '.join(roles.reference)}",
        "group_probabilities": roles.sensitive_probability and "group probabilities",
        "missing_groups": missing and f"rows without a group ({', '.join(missing)})",
        "missing_labels": profile.unlabelled and f"rows without a label ({profile.unlabelled:,})",
    }
    return {name: str(text) for name, text in reasons.items() if text}


def no_bounds(finding: Finding, data: Dataset) -> Finding:
    """Say at a finding about groups that nothing bounds what the rows without a group could do: no verdict is made."""
    missing = data.profile.missing.get(str(finding.sensitive), 0)
    if not missing or finding.value is None:
        return finding
    reason = (
        f"{missing:,} of {data.profile.rows:,} rows have no value of {finding.sensitive}; whatever groups they have"
    )
    evidence = {"missing_bounds": {"reason": reason, "binding": True, "stretch": 1.0}}
    return replace(finding, evidence={**finding.evidence, **evidence})


def by_design(auditor: Auditor, data: Dataset) -> bool:
    """Return whether an auditor gets the rows with a drawn label alone, weighted by what each stands for."""
    design = data.roles.labelled
    handles_it = "missing_labels" in auditor.uses | auditor.unaffected_by
    if design is None or design.kind == "selective" or not data.profile.unlabelled or handles_it:
        return False
    return design.kind == "random" or "weights" in auditor.uses


def check_conditions(auditors: Iterable[Auditor], data: Dataset) -> None:
    """Refuse an auditor that does not use what the table says of its rows."""
    present = conditions_of(data)
    for auditor in auditors:
        for name, text in present.items():
            if name == "missing_labels" and by_design(auditor, data):
                continue
            if name not in auditor.uses | auditor.unaffected_by:
                raise ParameterError(
                    f"the auditor {auditor.name!r} does not use {text} of {data.name}, so that its numbers would be "
                    f"wrong; {WAYS_OUT[name]}, or leave this auditor out"
                )
