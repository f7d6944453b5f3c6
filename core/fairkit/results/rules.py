"""Rules of a policy: a limit on a metric, which side of it is kept, and what became of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from fairkit.errors import PolicyError
from fairkit.results.findings import json_number
from fairkit.support.calls import checked
from fairkit.support.lazy_dataclass import dataclass, field, fields

if TYPE_CHECKING:
    from fairkit.results.findings import Interval, VerdictName

Adjustment = Literal["holm", "bonferroni", "benjamini-hochberg"]
ADJUSTMENTS: tuple[Adjustment, ...] = ("holm", "bonferroni", "benjamini-hochberg")
"""How a policy may account for the number of its rules."""

Side = Literal["max", "min"]
"""Which limit a rule has: the largest number that keeps it, or the smallest."""
SCENARIO = frozenset({"hazard", "mitigation", "review"})
"""What may happen to the groups, what is done against it, and what makes the rule to be looked at again."""


@dataclass(frozen=True, slots=True, init=False)
class Rule:
    """A limit on a metric: ``Rule("demographic_parity_difference", "sex", max=0.05)``.

    The first argument may name the groups as the command does: ``Rule("demographic_parity_difference:sex", max=0.05)``.

    Attributes
    ----------
    metric
        The metric's name.
    sensitive
        The sensitive column; None applies the rule to every finding of the metric.
    limit
        The number that may just be reached.
    side
        ``max`` where the metric is at most the limit, ``min`` where it is at least the limit; in the constructor, in
        the command and in `fairkit.toml` the limit stands under this name.
    support
        For how many people as possible replacements the limit is meant (`performance_gap`, `dif`); None: for those of
        the audit, whose number must then have stopped climbing.
    within
        The columns inside whose strata the groups are compared; empty: groups as a whole.
    scenario
        What the limit is for, in words, by the keys of `SCENARIO`; it does not make another rule.
    """

    metric: str
    sensitive: str | None = None
    limit: float = math.nan
    side: Side = "max"
    support: int | None = None
    within: tuple[str, ...] = ()
    scenario: Mapping[str, str] = field(default_factory=dict, compare=False)

    @checked
    def __init__(
        self,
        metric: str,
        sensitive: str | None = None,
        *,
        max: float | None = None,
        min: float | None = None,
        support: int | None = None,
        within: Sequence[str] | str = (),
        **scenario: str,
    ) -> None:
        inside = tuple(filter(None, within.split("+"))) if isinstance(within, str) else tuple(within)
        if set(metric) & set(":@|"):
            parts = _named(metric)
            if parts is None or ((sensitive or support or inside) and parts[1:] != (sensitive, support, inside)):
                raise PolicyError(
                    f"the policy rule on {metric!r} is not understood; write METRIC:COLUMN, and the rest once"
                )
            metric, sensitive, support, inside = parts
        _check_side(metric, sensitive, max, min)
        self._set(metric, sensitive, {"max": max, "min": min}, support, inside, scenario)

    def _set(
        self,
        metric: str,
        sensitive: str | None,
        limits: Mapping[str, float | None],
        support: int | None,
        within: tuple[str, ...],
        scenario: Mapping[str, str],
    ) -> None:
        if not scenario.keys() <= SCENARIO:
            raise PolicyError(f"the policy rule on {metric!r} may say {', '.join(sorted(SCENARIO))}, and no more")
        stated = [(side, limit) for side, limit in limits.items() if limit is not None]
        if len(stated) != 1 or not math.isfinite(stated[0][1]):
            raise PolicyError(f"the policy rule on {metric!r} needs one finite limit, a max or a min")
        side, limit = stated[0]
        values = (metric, sensitive, limit, side, support, within, scenario)
        for each, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, each.name, value)

    @classmethod
    def parse(cls, text: str, kind: Literal["max", "min"]) -> Self:
        """Read ``METRIC:SENSITIVE=X``, ``METRIC=X`` or, with a support size, ``METRIC@SIZE=X``.

        ``METRIC:SENSITIVE|COLUMN=X`` is about the strata of a column, ``COLUMN+COLUMN`` about those of several.

        Raises
        ------
        PolicyError
            The text has another form.
        """
        name, equals, number = text.rpartition("=")
        parts = _named(name)
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        if not equals or parts is None or not math.isfinite(limit):
            raise PolicyError(
                f"the policy rule --{kind} {text!r} is not understood; "
                f"write METRIC:COLUMN=NUMBER, as in --{kind} demographic_parity_difference:sex=0.1"
            )
        metric, sensitive, support, within = parts
        limits: dict[str, Any] = {kind: limit}
        return cls(metric=metric, sensitive=sensitive, support=support, within=within, **limits)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote: ``metric``, ``max`` or ``min``, and where they are there the other keys."""
        rule = cls.__new__(cls)
        limits = {side: record.get(side) for side in ("max", "min")}
        within = tuple(record.get("within", ()))
        scenario = {key: record[key] for key in record if key in SCENARIO}
        rule._set(record["metric"], record.get("sensitive"), limits, record.get("support"), within, scenario)
        return rule

    def to_dict(self) -> dict[str, Any]:
        """Return the form of a configuration file."""
        support = {} if self.support is None else {"support": self.support}
        within = {"within": list(self.within)} if self.within else {}
        return {
            "metric": self.metric,
            "sensitive": self.sensitive,
            self.side: self.limit,
            **support,
            **within,
            **self.scenario,
        }

    def with_scenario(self, reason: str) -> str:
        """Return a sentence about the rule, followed by what the rule is for."""
        return "; ".join([reason, *(f"{key}: {text}" for key, text in self.scenario.items())])

    @property
    def upper(self) -> bool:
        """Whether the limit is the largest number that keeps the rule."""
        return self.side == "max"

    def kept(self, value: float) -> bool:
        """Tell whether a number keeps the limit."""
        return value <= self.limit if self.upper else value >= self.limit

    def settled(self, interval: Interval) -> bool | None:
        """Tell whether a whole interval keeps the limit, or breaks it (False); None where it contains the limit."""
        low, high = interval
        if self.upper:
            return True if high <= self.limit else False if low > self.limit else None
        return True if low >= self.limit else False if high < self.limit else None

    def say(self, limit: str | None = None) -> str:
        """Return the limit in words, as in ``at most 0.05``; `limit` is how the number is written elsewhere."""
        return f"{'at most' if self.upper else 'at least'} {f'{self.limit:g}' if limit is None else limit}"

    @property
    def place(self) -> str | None:
        """Between which groups, in the words of `Finding.place`."""
        return self.sensitive if not self.within else f"{self.sensitive} | {'+'.join(self.within)}"


def _check_side(metric: str, sensitive: str | None, high: float | None, low: float | None) -> None:
    """Refuse a largest ratio and a smallest difference: equal groups would break it."""
    name = metric if sensitive is None else f"{metric}:{sensitive}"
    if high is not None and metric.endswith("_ratio"):
        raise PolicyError(
            f"{metric} is 1 where groups are equal, so that a largest number would fail the most equal model: limit it "
            f"from below, as in `min={name}={high:g}`"
        )
    if low is not None and low > 0 and (metric.endswith("_difference") or metric in ("gap_max", "gap_rms")):
        raise PolicyError(
            f"{metric} is 0 where groups are equal, so that a smallest number would fail the most equal model: limit "
            f"it from above, as in `max={name}={low:g}`"
        )


def _named(text: str) -> tuple[str, str | None, int | None, tuple[str, ...]] | None:
    """Read ``METRIC@SIZE:SENSITIVE|COLUMN+COLUMN``, a name with a bar in double quotes; None: another form."""
    metric, _, groups = text.partition(":")
    quoted = re.fullmatch(r'"([^"]+)"(?:(\|)(.*))?', groups)
    sensitive, bar, inside = groups.partition("|") if quoted is None else (group or "" for group in quoted.groups())
    metric, at, size = metric.partition("@")
    support = int(size) if size.isdecimal() else None
    within = tuple(inside.split("+")) if bar else ()
    if not metric or (at and not support) or (bar and not (sensitive and all(within))):
        return None
    return metric, sensitive or None, support, within


Policy = Rule | Mapping[str, Any] | Sequence[Rule | Mapping[str, Any]]
"""What the public functions take as a policy: rules, or what `Rule.to_dict` gives."""


def rules_of(
    policy: Policy | None, max: Mapping[str, float] | None = None, min: Mapping[str, float] | None = None
) -> tuple[Rule, ...]:
    """Return a policy's rules, and those of limits by name: ``{"demographic_parity_difference:sex": 0.1}``."""
    rules = []
    for item in [policy] if isinstance(policy, Rule | Mapping | str) else policy or ():
        if isinstance(item, Mapping) and "metric" in item:
            rules.append(Rule.from_dict(item))
        elif isinstance(item, Rule):
            rules.append(item)
        else:
            raise PolicyError(
                f"`policy` holds a {type(item).__name__}, and takes rules: fairkit.Rule('METRIC:COLUMN', max=0.1), or "
                "limits by name in `max` and `min`"
            )
    for side, limits in (("max", max), ("min", min)):
        for name, limit in (limits or {}).items():
            rules.append(Rule(name, max=limit) if side == "max" else Rule(name, min=limit))
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class MoreRows:
    """How many more rows would decide an inconclusive rule, with the old rows kept.

    `rows`: rounded up to two digits; None where even 100,000 are not enough; `group`: whose rows; None: of all groups,
    in their present shares; `value`: what the number is taken to be in truth: what was found; `power`: the chance of a
    decision with these rows.
    """

    rows: int | None
    group: str | None
    value: float
    power: float

    @property
    def sentence(self) -> str:
        """Return the advice as a sentence without its full stop."""
        if self.rows is None:
            return f"Even 100,000 more rows would hardly decide it: {self.value:.4g} is too near the limit"
        whose = f"of group {self.group}" if self.group is not None else "in the present shares of the groups"
        return (
            f"About {self.rows:,} more rows {whose} would decide it "
            f"(with {self.power:.0%} chance, if the true value is {self.value:.4g})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"rows": self.rows, "group": self.group, "value": json_number(self.value), "power": self.power}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """A policy rule and what became of it.

    `reason` is a sentence with the numbers that decided. `more_rows` says how many more rows would decide an
    inconclusive rule.
    """

    rule: Rule
    verdict: VerdictName
    reason: str
    more_rows: MoreRows | None = None

    @property
    def metric(self) -> str:
        """The metric's name."""
        return self.rule.metric

    @property
    def sensitive(self) -> str | None:
        """The sensitive column; None: the rule is about every finding of the metric."""
        return self.rule.sensitive

    @property
    def place(self) -> str | None:
        """Between which groups, in the words of `Finding.place`."""
        return self.rule.place

    @property
    def within(self) -> tuple[str, ...]:
        """The columns inside whose strata the groups are compared."""
        return self.rule.within

    @property
    def limit(self) -> float:
        """The limit."""
        return self.rule.limit

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: metric, sensitive, max or min, verdict, reason, and more_rows where there is advice."""
        return {
            "metric": self.rule.metric,
            "sensitive": self.rule.sensitive,
            self.rule.side: self.rule.limit,
            "verdict": self.verdict,
            "reason": self.reason,
            **self.rule.to_dict(),
            **({} if self.more_rows is None else {"more_rows": self.more_rows.to_dict()}),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(
            rule=Rule.from_dict(record),
            verdict=record["verdict"],
            reason=record.get("reason", ""),
            more_rows=None if record.get("more_rows") is None else MoreRows(**record["more_rows"]),
        )
