"""The tables that packs ask for, by name: each is made from a report's numbers and says why where it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairkit.packs import PackTable
from fairkit_laws import impact, technical
from fairkit_laws.context import Context

Builder = Callable[[Context], Sequence[PackTable]]

BUILDERS: Mapping[str, Builder] = {
    "selection_rates": impact.selection_rates,
    "unknown": impact.unknown,
    "categories": impact.categories,
    "adverse_impact": impact.adverse_impact,
    "against_reference": impact.against_reference,
    "within_bands": impact.within_bands,
    "alternatives": technical.alternatives,
    "performance": technical.performance,
    "groups": technical.groups,
    "disparities": technical.disparities,
    "policy": technical.policy,
    "data": technical.data_sheet,
    "table-itself": technical.table_itself,
    "mitigation": technical.mitigation,
    "evidence": technical.evidence,
    "settings": technical.settings,
    "monitoring": technical.monitoring,
}
"""The tables that an item may name."""


def build(name: str, context: Context) -> Sequence[PackTable]:
    """Return the tables of a name."""
    found: Any = BUILDERS[name](context)
    return tuple(found)
