"""What is shown first, as the installed metrics and auditors declare it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from fairkit.errors import PluginError
from fairkit.metrics import Term, first_sentence, recorded
from fairkit.plugins.finding import find, installed_metrics, load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.auditors import Auditor
    from fairkit.metrics import Headline, Metric
    from fairkit.results.report import Report

ENDINGS = ("_difference", "_ratio", "_group_min", "_group_max")
"""Of the names of what is made of a metric's numbers in all groups."""


@dataclass(frozen=True, slots=True)
class Headlines:
    """The installed metrics, and the findings of auditors that are no single metric's."""

    metrics: Mapping[str, type[Metric]]
    joint: Mapping[str, Headline]
    terms: Mapping[str, Term] = field(default_factory=dict)

    def performance(self) -> list[str]:
        """The numbers over all rows that a comparison begins with, in order."""
        return _ranked({name: cls.headline.performance for name, cls in self.metrics.items()})

    def levels(self) -> list[str]:
        """The numbers over all rows that a report begins with, in order: those, and what needs no outcome."""
        free = [name for name, cls in self.metrics.items() if not cls.outcome and cls.headline.performance is None]
        return [*self.performance(), *free]

    def base(self, finding: str) -> type[Metric] | None:
        """The metric whose numbers a finding compares between groups, or that it is."""
        names = {cls.alias: cls for cls in self.metrics.values() if cls.alias} | dict(self.metrics)
        stem = next((finding.removesuffix(end) for end in ENDINGS if finding.endswith(end)), finding)
        return names.get(finding, names.get(stem))

    def between(self, task: str) -> list[str]:
        """The disparities that a comparison begins with, in order."""
        own = {_between(cls): cls.headline.between for cls in self.metrics.values() if cls.headline.holds(task)}
        return _ranked(own | {name: headline.between for name, headline in self.joint.items()})

    def columns(self, task: str) -> list[str]:
        """The metrics in the table of groups, in order."""
        return _ranked({n: cls.headline.column for n, cls in self.metrics.items() if cls.headline.holds(task)})

    def lists(self, finding: str, task: str) -> bool:
        """Whether a finding between groups may be among the largest disparities."""
        if finding in self.joint:
            return self.joint[finding].disparity
        cls = self.metrics.get(finding.removesuffix("_difference"))
        plain = finding.endswith("_difference")
        return plain and (cls is None or (cls.headline.disparity and cls.headline.holds(task)))

    def decides(self, names: set[str]) -> bool:
        """Whether among these are disparities that no regression has."""
        return any(_between(cls) in names and "regression" not in cls.tasks for cls in self.metrics.values())


_SHOWN: ContextVar[Headlines | None] = ContextVar("shown", default=None)


@contextmanager
def as_recorded(report: Report | None = None) -> Iterator[None]:
    """Look headlines up once for all that is shown inside.

    Metrics of the report that are not installed here are shown as it says that they are where it was made. They take
    the place of nothing that is installed.
    """
    record = {} if report is None else report.environment.get("metrics", {})
    before = _SHOWN.set(_installed([recorded(name, shown) for name, shown in record.items()]))
    try:
        yield
    finally:
        _SHOWN.reset(before)


def headlines() -> Headlines:
    """Return the headlines of the installed plugins' metrics and of the report that is being shown."""
    return _SHOWN.get() or _installed()


def _installed(others: Sequence[type[Metric]] = ()) -> Headlines:
    """Return what the installed plugins declare, and `others` that have none of their names."""
    metrics, used = installed_metrics()
    joint = {name: one for plugin in used for cls in plugin.auditors for name, one in cls.headlines.items()}
    terms = {name: one for plugin in used for cls in plugin.auditors for name, one in cls.terms.items()}
    taken = {*joint, *terms, *(stem for cls in metrics for stem in (cls.name, cls.alias))} - {""}
    metrics = [*metrics, *(cls for cls in others if not taken & {cls.name, cls.alias})]
    for metric in metrics:
        terms[metric.name] = metric.term or Term(metric.name.replace("_", " "), first_sentence(metric))
        terms |= {f"{metric.alias or metric.name}_{kind}": one for kind, one in metric.terms_between.items()}
    return Headlines({cls.name: cls for cls in metrics}, joint, terms)


@cache
def all_terms() -> dict[str, Term]:
    """Return the plain names of findings, by name, for the auditors of all installed plugins."""
    return {name: one for cls in _auditors() for name, one in cls.terms.items()} | usual_terms()


@cache
def usual_terms() -> dict[str, Term]:
    """Return those of the plugins that every audit uses: no other one is imported for them."""
    return dict(_installed().terms)


def _auditors() -> Iterator[type[Auditor]]:
    """Yield the auditors of all plugins that load."""
    for found in find():
        with suppress(PluginError):
            yield from load(found.name).auditors


def _between(cls: type[Metric]) -> str:
    return f"{cls.alias or cls.name}_difference"


def _ranked(ranks: Mapping[str, int | None]) -> list[str]:
    return [name for rank, name in sorted((rank, name) for name, rank in ranks.items() if rank is not None)]
