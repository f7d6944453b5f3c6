"""What a plan says: schema ``fairkit.plan/1``."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from fairkit.results.rules import Rule

SCHEMA = "fairkit.plan/1"
MOST = 100_000_000
"""Rows beyond which no plan is made."""

Side = Literal["pass", "fail"]


def two_digits(rows: float) -> int:
    """Round a number of rows up to two significant digits."""
    if rows < 100:
        return math.ceil(rows)
    unit = 10 ** (math.floor(math.log10(rows)) - 1)
    return int(math.ceil(rows / unit - 1e-9) * unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """What an audit of a given size can see.

    `fails_from`: the number nearest to the limit that it would fail with chance `power`; None where no number does;
    `passes_up_to`: the number nearest to the limit that it would pass with chance `power`; None where no number does;
    `power`: in (0, 1).
    """

    fails_from: float | None
    passes_up_to: float | None
    power: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One group's part: its rows, and those of them that the rate is over (rows with the favorable outcome, say)."""

    group: str
    rows: int
    denominator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePlan:
    """The rows that decide one rule.

    `rule`: the rule; `value`: its number under the assumptions; `side`: the verdict that is planned for: pass where the
    number keeps the limit, fail where it breaks it; `rows`: rows in all, rounded up to two digits; None where the
    number is at the limit, or no plan was found; `groups`: each group's part of them; `power`: the chance of the
    verdict with these rows; `balanced_rows`: about how many rows would do if each group had as many as it needs, not
    its share; `detectable`: what an audit of this size can see; None for other numbers than differences and ratios;
    `curve`: pairs (rows, chance of the verdict); `notes`: what a reader must know; `line`: intercept and slope of the
    chance's probit in the root of the rows.
    """

    rule: Rule
    value: float
    side: Side
    rows: int | None
    groups: tuple[GroupPlan, ...]
    power: float | None
    balanced_rows: int | None
    detectable: Detectable | None
    curve: tuple[tuple[int, float], ...]
    notes: tuple[str, ...] = ()
    line: tuple[float, float] | None = None

    def chance(self, rows: float) -> float:
        """Return the chance of the verdict with so many rows; 0 where it is not known."""
        if self.line is None:
            return 0.0
        return NormalDist().cdf(self.line[0] + self.line[1] * math.sqrt(rows))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self.rule.to_dict() | record_of(self, without=("rule", "line"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The rows that decide a policy: all of its rules at once, with the chance that was asked for.

    Rules are judged on the same rows, and how their verdicts hang together is not among the assumptions. Whatever it
    is, all are decided with a chance of at least 1 - Σ (1 - the chance of each) (Bonferroni): two rules of which each
    has a chance of .8 are both decided with one of .6 to .8, mostly near .64.
    """

    rules: tuple[RulePlan, ...]
    confidence: float
    adjustment: str | None
    power: float
    seed: int
    fairkit: str

    def __repr__(self) -> str:
        """Return a line."""
        rows_text = "no number of rows" if self.rows is None else f"{self.rows:,} rows"
        rules = f"{len(self.rules)} rule{'s' * (len(self.rules) != 1)}"
        together = " together" if len(self.rules) > 1 else ""
        return f"<Plan: {rows_text} decide {rules}{together} with {self.power:.0%} chance>"

    def __str__(self) -> str:
        """Return the line, and one for each rule."""
        lines = [
            f"{rule.rule.metric}{f' of {rule.rule.place}' if rule.rule.place else ''}: at {rule.value:.4g}, "
            + ("no number of rows was found" if rule.rows is None else f"{rule.rows:,} rows to {rule.side}")
            for rule in self.rules
        ]
        return "\n".join([repr(self), *lines])

    @property
    def rows(self) -> int | None:
        """Rows that decide all rules at once with the chance `power`; None where one cannot be decided."""
        counts = [rule.rows for rule in self.rules]
        if any(rows is None for rows in counts):
            return None
        low = max(rows or 0 for rows in counts)
        if len(self.rules) == 1 or any(rule.line is None for rule in self.rules):
            return low
        high = low
        while self.chance(high) < self.power:
            low, high = high, 2 * high
            if high > MOST:
                return None
        while high - low > max(1, low // 1_000):
            middle = (low + high) // 2
            low, high = (low, middle) if self.chance(middle) >= self.power else (middle, high)
        return two_digits(high)

    def chance(self, rows: float) -> float:
        """Return the least chance that so many rows decide all rules at once."""
        return max(0.0, 1 - math.fsum(1 - rule.chance(rows) for rule in self.rules))

    @property
    def policy_power(self) -> float | None:
        """The least chance that `rows` decide all rules at once; None without such rows."""
        return None if self.rows is None else self.chance(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, schema ``fairkit.plan/1``."""
        return {
            "schema": SCHEMA,
            "rows": self.rows,
            "rules": [rule.to_dict() for rule in self.rules],
            "confidence": self.confidence,
            "adjustment": self.adjustment,
            "power": self.power,
            "policy_power": self.policy_power,
            "seed": self.seed,
            "fairkit": self.fairkit,
        }
