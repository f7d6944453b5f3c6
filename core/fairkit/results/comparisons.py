"""What a comparison of models says: each number of both, the paired difference, and whether it is significant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from fairkit.errors import ParameterError
from fairkit.results.policy import verdict_of
from fairkit.results.rendering import Saved, plotted
from fairkit.results.tables import Tabular, ends, place, place_words
from fairkit.support.records import record_of

if TYPE_CHECKING:
    from fairkit.results.findings import VerdictName
    from fairkit.results.rules import RuleResult
    from fairkit.results.subjects import DataInfo, ModelInfo
    from fairkit.results.values import Better, Interval

SCHEMA = "fairkit.comparison/1"

Outcome = Literal["better", "worse", "changed", "same", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How one number differs between the first model and another."""

    metric: str  # which number: over all rows, a disparity between the groups of a column, or one group's
    sensitive: str | None = None
    group: str | None = None  # which number: over all rows, a disparity between the groups of a column, or one group's
    parameters: Mapping[str, Any] = field(default_factory=dict)
    before: float | None  # the number of the first model and of the other
    after: float | None  # the number of the first model and of the other
    interval: Interval | None  # of `after - before`, paired; None where a number is not defined
    better: Better  # which direction of the metric is better for the people concerned
    outcome: Outcome
    reference: str | None = None
    within: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return both numbers, the difference with its interval, and what it means, on one line."""
        scope = f" of {self.place}" if self.place else ""
        scope += f" in group {self.group}" if self.group is not None else ""
        scope += f" ({self.parameters['class']})" if "class" in self.parameters else ""
        if self.before is None or self.after is None or self.difference is None:
            return f"{self.metric}{scope}: not defined"
        ends = "" if self.interval is None else f" [{self.interval[0] + 0.0:.4g}, {self.interval[1] + 0.0:.4g}]"
        told = f"{self.before:.4g} to {self.after:.4g}, difference {self.difference + 0.0:.4g}{ends}: {self.outcome}"
        return f"{self.metric}{scope}: {told}"

    def __repr__(self) -> str:
        """Return a line; `to_dict` gives everything."""
        return f"<Change {self}>"

    @property
    def place(self) -> str | None:
        """Between which groups, in the words of `Finding.place`; None over all rows."""
        return place_words(self)

    @property
    def difference(self) -> float | None:
        """The number of the other model minus that of the first."""
        return None if self.before is None or self.after is None else self.after - self.before

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "metric": self.metric,
            "sensitive": self.sensitive,
            "group": self.group,
            **({} if self.reference is None else {"reference": self.reference}),
            **({"within": list(self.within)} if self.within else {}),
            "parameters": dict(self.parameters),
            "before": self.before,
            "after": self.after,
            "difference": self.difference,
            "interval": None if self.interval is None else list(self.interval),
            "better": self.better,
            "outcome": self.outcome,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Tabular, Saved):
    """Models beside the first one, on the same rows."""

    models: tuple[ModelInfo, ...]  # the first is what the others are compared with
    data: DataInfo
    changes: tuple[tuple[Change, ...], ...]
    confidence: float = 0.95
    notes: tuple[str, ...] = ()  # what a reader must know
    warnings: tuple[str, ...] = ()
    policy: tuple[tuple[RuleResult, ...], ...] = ()
    title: str = ""  # what is compared where it is not models on the same rows

    @property
    def verdict(self) -> VerdictName | None:
        """The worst verdict on a model beside the first; None where there are no rules."""
        return verdict_of([rule.verdict for rules in self.policy[1:] for rule in rules])

    def __repr__(self) -> str:
        """Return a line."""
        others = ", ".join(model.name for model in self.models[1:])
        return f"<Comparison of {others} with {self.models[0].name} on {self.data.name}, {self.data.rows:,} rows>"

    def find(
        self,
        metric: str,
        sensitive: str | None = None,
        *,
        group: str | None = None,
        model: int = 1,
        label: str | None = None,
        reference: str | None = None,
        within: str = "",
    ) -> Change:
        """Look one change up; `model` counts from 1, the first that is compared; `label` is a class of several."""
        for one in self.changes[model - 1]:
            told = (one.metric, one.sensitive, one.group, one.parameters.get("class"))
            where = (one.reference, "+".join(one.within))
            if (*told, *where) == (metric, sensitive, group, label, reference, within):
                return one
        raise ParameterError(f"the comparison has no {metric!r} for {sensitive!r} in group {group!r}")

    def plot(self, name: str = "changes", model: str | None = None) -> Any:
        """Return a chart of the page, the paired differences with their intervals, as Altair's; `model` is a name."""
        return plotted(self, name, model)

    def records(self) -> list[dict[str, Any]]:
        """Return a line for each number of each model but the first: before, after, the difference and its interval."""
        return [
            {"model": model.name}
            | place(one)
            | {"group": one.group, "before": one.before, "after": one.after, "difference": one.difference}
            | ends(one.interval)
            | {"better": one.better, "outcome": one.outcome}
            for model, changes in zip(self.models[1:], self.changes, strict=True)
            for one in changes
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, schema ``fairkit.comparison/1``."""
        optional = ("warnings", "policy", "title")
        return {"schema": SCHEMA} | record_of(self, [name for name in optional if not getattr(self, name)])


def outcome_of(low: float, high: float, better: Better) -> Outcome:
    """Return the meaning of a difference's interval for the people concerned."""
    if low <= 0 <= high:
        return "same"
    if better == "none":
        return "changed"
    return "better" if (low > 0) == (better == "higher") else "worse"


def told_apart(comparison: Comparison, names: Sequence[str]) -> Comparison:
    """Give models of one name other names, such as their files', where these differ."""
    if (
        len({model.name for model in comparison.models}) == len(comparison.models)
        and comparison.models[0].name != "before"
    ):
        return comparison
    if len(set(names)) < len(comparison.models) or len(names) != len(comparison.models):
        return comparison
    models = tuple(replace(model, name=name) for model, name in zip(comparison.models, names, strict=True))
    return replace(comparison, models=models)
