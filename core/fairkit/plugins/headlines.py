"""What is shown first, as the installed metrics and auditors declare it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairkit.plugins.finding import installed_metrics

if TYPE_CHECKING:
    from fairkit.metrics import Headline, Metric


@dataclass(frozen=True, slots=True)
class Headlines:
    """The installed metrics, and the findings of auditors that are no single metric's."""

    metrics: Mapping[str, type[Metric]]
    joint: Mapping[str, Headline]

    def performance(self) -> list[str]:
        """The numbers over all rows that a comparison begins with, in order."""
        return _ranked({name: cls.headline.performance for name, cls in self.metrics.items()})

    def between(self, task: str) -> list[str]:
        """The disparities that a comparison begins with, in order."""
        own = {
            _between(cls): cls.headline.between for cls in self.metrics.values() if cls.headline.holds(task)
        }
        return _ranked(own | {name: headline.between for name, headline in self.joint.items()})

    def columns(self, task: str) -> list[str]:
        """The metrics in the table of groups, in order."""
        return _ranked(
            {n: cls.headline.column for n, cls in self.metrics.items() if cls.headline.holds(task)}
        )

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


def headlines() -> Headlines:
    """Return what is shown first, for the plugins that are installed."""
    metrics, used = installed_metrics()
    joint = {name: one for plugin in used for cls in plugin.auditors for name, one in cls.headlines.items()}
    return Headlines({cls.name: cls for cls in metrics}, joint)


def auditor_of(finding: str) -> str | None:
    """Return the auditor, other than `group`, that declares a finding as its own among its headlines; None: nobody."""
    from fairkit.errors import PluginError
    from fairkit.plugins.finding import find, load

    for found in find():
        try:
            auditors = load(found.name).auditors
        except PluginError:
            continue
        for cls in auditors:
            if cls.name != "group" and finding in cls.headlines:
                return cls.name
    return None


def _between(cls: type[Metric]) -> str:
    return f"{cls.alias or cls.name}_difference"


def _ranked(ranks: Mapping[str, int | None]) -> list[str]:
    return [name for rank, name in sorted((rank, name) for name, rank in ranks.items() if rank is not None)]
