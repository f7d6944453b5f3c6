"""What a table says of its rows besides values, and which auditors use it: the others are refused, never ignored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fairkit.errors import ParameterError

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.data.dataset import Dataset
    from fairkit.results.findings import Finding

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
    told = {
        "weights": roles.weights and f"the weights {roles.weights!r}",
        "clusters": roles.cluster and f"the clusters of {roles.cluster!r}",
        "strata": splits and f"the strata of {splits!r}",
        "reference": roles.reference and f"the reference {', '.join(roles.reference)}",
        "group_probabilities": roles.sensitive_probability and "group probabilities",
        "missing_groups": missing and f"rows without a group ({', '.join(missing)})",
        "missing_labels": profile.unlabelled and f"rows without a label ({profile.unlabelled:,})",
    }
    return {name: str(text) for name, text in told.items() if text}


def no_bounds(finding: Finding, data: Dataset) -> Finding:
    """Say at a finding about groups that nothing bounds what the rows without a group could do: no verdict is made."""
    missing = data.profile.missing.get(str(finding.sensitive), 0)
    if not missing or finding.value is None:
        return finding
    reason = (
        f"{missing:,} of {data.profile.rows:,} rows have no value of {finding.sensitive}; whatever groups they have"
    )
    told = {"missing_bounds": {"reason": reason, "binding": True, "stretch": 1.0}}
    return replace(finding, evidence={**finding.evidence, **told})


def by_design(auditor: Auditor, data: Dataset) -> bool:
    """Return whether an auditor gets the rows with a drawn label alone, weighted by what each stands for."""
    design = data.roles.labelled
    known = "missing_labels" in auditor.uses | auditor.unaffected_by
    if design is None or design.kind == "selective" or not data.profile.unlabelled or known:
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
