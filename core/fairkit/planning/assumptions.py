"""What a plan assumes about the groups: typed numbers, or what a pilot report found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import ParameterError, PolicyError, did_you_mean
from fairkit.intervals import MANY, Spread, differences, extreme, spread_difference, spread_ratio, two_sided
from fairkit.metrics import ODDS, Estimate, Rate
from fairkit.statistics import Sums
from fairkit.support.lazy_dataclass import dataclass, replace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.metrics import Metric
    from fairkit.planning.results import Side
    from fairkit.results.findings import Finding, Interval
    from fairkit.results.report import Report
    from fairkit.results.rules import Rule

    Array = NDArray[np.float64]


_WORST = 0.5


def assumed(rule: Rule, target: Target, groups: Any, assume: Any, base: Any) -> tuple[Truth, tuple[str, ...]]:
    """Return the truth that was typed, and notes."""
    shares = _shares(rule, target, groups)
    names = tuple(shares)
    rates, notes = [], []
    for rate in target.rates:
        assumption = assume.get(rate.name) if isinstance(assume, Mapping) and rate.name in assume else assume
        if isinstance(assumption, Mapping) and not set(assumption) & set(names):
            assumption = None
        if assumption is None:
            if target.kind != "difference":
                raise ParameterError(
                    f"a plan for {rule.metric!r} needs the groups' {rate.name}: `assume=0.3`, or group=0.3,group=0.35"
                )
            assumption = _WORST
            notes.append(f"{rate.name} is taken to be 1/2 in every group, the worst case; `assume` says better.")
        rates.append(_by_group(assumption, names, f"the assumed {rate.name}"))
    bases = np.stack([_base(rate, base, names) for rate in target.rates])
    none = np.zeros(len(names))
    truth = Truth(
        names=names,
        shares=np.array(list(shares.values())) / sum(shares.values()),
        rates=np.stack(rates),
        bases=bases,
        rows=none,
        denominators=np.zeros(bases.shape),
        counted=np.zeros(bases.shape),
    )
    return truth, tuple(notes)


def _shares(rule: Rule, target: Target, groups: Any) -> dict[str, float]:
    if target.kind == "level" and not groups:
        return {"all": 1.0}
    chosen = groups
    if isinstance(groups, Mapping) and any(isinstance(part, Mapping) for part in groups.values()):
        chosen = groups.get(rule.sensitive) if rule.sensitive else next(iter(groups.values()))
    if not chosen:
        raise ParameterError(f"a plan for {rule.metric!r} needs the groups' shares: `groups=female=0.45,male=0.55`")
    shares = {str(name): float(share) for name, share in chosen.items()}
    if len(shares) < 2 or not all(np.isfinite(s) and s > 0 for s in shares.values()):
        raise ParameterError(f"the shares of groups {shares} must be two or more, each above 0")
    return {"all": 1.0} if target.kind == "level" else shares


def _by_group(assumption: Any, names: tuple[str, ...], what: str) -> Array:
    if isinstance(assumption, Mapping):
        lacking = [name for name in names if name not in assumption]
        odd = [name for name in assumption if name not in names]
        if lacking or odd:
            raise ParameterError(
                f"{what}: {'no number for' if lacking else 'there is no group'} {(lacking or odd)[0]!r}; "
                f"the groups are {', '.join(names)}"
            )
        values = np.array([float(assumption[name]) for name in names])
    else:
        values = np.full(len(names), float(assumption))
    if not ((values >= 0) & (values <= 1)).all():
        raise ParameterError(f"{what} must be between 0 and 1, not {values.tolist()}")
    return values


def _base(rate: type[Rate], base: Any, names: tuple[str, ...]) -> Array:
    """Return the share of each group's rows that a rate is over."""
    if all(rate.over):
        return np.ones(len(names))
    if base is None:
        raise ParameterError(
            f"a plan for {rate.name} needs `base`, the share of rows with the favorable outcome "
            "(for precision: with the favorable decision)"
        )
    share = _by_group(base, names, "the base share")
    if not ((share > 0) & (share < 1)).all():
        raise ParameterError(f"the base share must be above 0 and below 1, not {share.tolist()}")
    return 1 - share if rate.over == (1, 1, 0, 0) else share


def observed(rule: Rule, target: Target, report: Report) -> tuple[Truth, tuple[str, ...]]:
    """Return a pilot report's rates as the truth, as if no row had been seen."""
    truth = seen(rule.sensitive, target, report.findings)
    if truth is None:
        raise PolicyError(
            f"the report does not have the rates and denominators behind {rule.metric!r}; "
            "it is too old, or was made without a label: audit again"
        )
    nothing = np.zeros_like(truth.counted)
    fresh = replace(truth, rows=np.zeros(len(truth.names)), denominators=nothing, counted=nothing)
    return fresh, ("The rates of the pilot report are taken to be true.",)


def seen(sensitive: str | None, target: Target, findings: Any) -> Truth | None:
    """Return the measured rates as the truth, with its rows; None where rates or denominators are missing."""
    rates, inside, groups = [], [], None
    for rate in target.rates:
        finding = _finding(f"{rate.name}_difference", sensitive, findings)
        if finding is None or any(g.value is None or not g.denominator for g in finding.groups):
            return None
        groups = finding.groups
        inside.append([float(g.denominator or 0) for g in groups])
        rates.append([float(g.value or 0) for g in groups])
    if groups is None or target.kind == "level":
        return None
    rows = np.array([float(g.rows) for g in groups])
    denominators, values = np.array(inside), np.array(rates)
    return Truth(
        names=tuple(g.group for g in groups),
        shares=rows / rows.sum(),
        rates=values,
        bases=np.minimum(denominators / rows, 1.0),
        rows=rows,
        denominators=denominators,
        counted=values * denominators,
    )


def _finding(metric: str, sensitive: str | None, findings: Any) -> Finding | None:
    chosen = [
        f
        for f in findings
        if f.metric == metric
        and f.groups
        and f.sensitive == sensitive
        and not {"class", "probabilities"} & set(f.parameters)
        and f.plain
    ]
    return chosen[0] if len(chosen) == 1 else None


# What a rule's number is made of: rates of groups, and how they are compared.


Kind = Literal["difference", "ratio", "largest", "smallest", "level"]

_SUFFIXES: Mapping[str, Kind] = {
    "_difference": "difference",
    "_ratio": "ratio",
    "_group_max": "largest",
    "_group_min": "smallest",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A rule's number as a function of one or two rates in each group."""

    metric: str  # as the rule names it
    rates: tuple[type[Rate], ...]  # the rates, over different rows where there are two
    kind: Kind  # the largest difference, the smallest ratio, the largest or smallest rate, or the rate itself

    def value(self, rates: Array) -> float:
        """Return the number for known rates, shape [K, G]."""
        if self.kind == "difference":
            return float(np.ptp(rates, axis=1).max())
        if self.kind == "ratio":
            with np.errstate(divide="ignore", invalid="ignore"):
                return float((rates.min(axis=1) / rates.max(axis=1)).min())
        return float(rates.min() if self.kind == "smallest" else rates.max())

    def ends(self, estimates: Sequence[Estimate], draws: int, confidence: float) -> tuple[Array, Array] | None:
        """Return both ends of `interval` for many drawn audits at once, [D] each; None where each is made by itself.

        Estimates are of all groups of the first draw, then of the second, ...
        """
        groups = len(estimates[0].values) // draws
        if self.kind != "difference" or not 2 <= groups < MANY:
            return None

        def of(estimate: Estimate, confidence: float) -> tuple[Array, Array]:
            def limits(z: float) -> tuple[Array, Array]:
                low, high = estimate.limits(z)
                return low.reshape(-1, groups), high.reshape(-1, groups)

            return differences(estimate.values.reshape(-1, groups), limits, confidence)

        each = [of(estimate, confidence) for estimate in estimates]
        if len(each) == 1:
            return each[0]
        joint = [of(estimate, confidence**0.5) for estimate in estimates]
        return np.max([low for low, _ in joint], axis=0), np.max([high for _, high in each], axis=0)

    def interval(self, estimates: Sequence[Estimate], confidence: float) -> tuple[float, float]:
        """Return the interval that an audit makes from these estimates."""
        intervals = [self._one(estimate, confidence) for estimate in estimates]
        if len(intervals) == 1:
            return intervals[0].low, intervals[0].high
        joint = [self._one(estimate, confidence**0.5) for estimate in estimates]
        if self.kind == "ratio":
            return min(p.low for p in intervals), min(p.high for p in joint)
        return max(p.low for p in joint), max(p.high for p in intervals)

    def _one(self, estimate: Estimate, confidence: float) -> Spread:
        values, limits = estimate.values, estimate.limits
        if self.kind == "level":
            low, high = limits(two_sided(confidence))
            return Spread(float(values[0]), float(np.min(low)), float(np.max(high)))  # every group keeps the limit
        if self.kind in ("largest", "smallest"):
            return extreme(values, limits, confidence, largest=self.kind == "largest")
        make = spread_difference if self.kind == "difference" else spread_ratio
        return make(values, limits, confidence)


def target_of(metric: str, metrics: Sequence[type[Metric]]) -> Target:
    """Return the target of a rule on `metric`: its rates, and how they are compared."""
    rates = {cls.name: cls for cls in metrics if issubclass(cls, Rate)}
    name, kind = metric, "level"
    for suffix, of in _SUFFIXES.items():
        if metric.endswith(suffix):
            name, kind = metric.removesuffix(suffix), of
    if metric == "gap_max":
        name, kind = "equalized_odds", "difference"
    aliases = {"equalized_odds": ODDS} | {cls.alias: (cls.name,) for cls in rates.values() if cls.alias}
    parts = aliases.get(name, (name,))
    if any(part not in rates for part in parts):
        names = [*rates, *(f"{r}{s}" for r in (*rates, *aliases) for s in ("_difference", "_ratio"))]
        raise PolicyError(
            f"{metric!r} is not made of rates of groups: without a pilot report that has it nothing is planned. "
            f"{did_you_mean(metric, names, what='metrics')}"
        )
    return Target(metric, tuple(rates[part] for part in parts), kind)  # type: ignore[arg-type]


def sums_of(rate: type[Rate], rows: Array, denominators: Array, counted: Array) -> Sums:
    """Return totals whose rate is `counted` / `denominators`; arrays of one shape, flattened."""
    over, inside = np.array(rate.over, bool), np.array(rate.counted, bool)
    first = np.zeros((rows.size, 4))
    first[:, np.flatnonzero(inside)[0]] = counted.ravel()
    first[:, np.flatnonzero(over & ~inside)[0]] = (denominators - counted).ravel()
    if not over.all():
        first[:, np.flatnonzero(~over)[0]] = (rows - denominators).ravel()
    return Sums(rows.ravel().astype(np.float64), first, first[:, :, None] * np.eye(4))


# Audits that were not made yet: draw their totals, and judge them as an audit is judged.


LEAST = 30
"""The smallest group that an audit accepts (`group.min_group`), and the fewest of its rows that a rate is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is assumed about the groups."""

    names: tuple[str, ...]  # the groups
    shares: Array  # of the rows, of sum 1, shape [G]
    rates: Array  # shape [K, G]: the true rates
    bases: Array  # shape [K, G]: the share of a group's rows that each rate is over
    rows: Array  # seen already, by group, shape [G]; zeros before the first audit
    denominators: Array  # rows that each rate is over, shape [K, G]
    counted: Array  # of these, those that the rate counts, shape [K, G]


def decided(
    target: Target,
    truth: Truth,
    added: Array,
    rule: Rule,
    side: Side,
    confidence: float,
    rng: np.random.Generator,
    draws: int,
) -> float:
    """Return the share of a verdict, pass or fail, among audits with `added` more rows in each group."""
    whole = np.round(added).astype(np.int64)
    rows = truth.rows + whole
    if (rows < LEAST).any():
        return 0.0
    first = rng.binomial(whole, truth.bases[0], size=(draws, len(truth.names)))
    enough = np.ones(draws, dtype=bool)
    stacked = []
    for k, rate in enumerate(target.rates):
        inside = first if k == 0 else whole - first  # the second rate is over the other rows
        seen = inside + truth.denominators[k]
        enough &= (seen >= LEAST).all(axis=1)
        hits = rng.binomial(inside, truth.rates[k]) + truth.counted[k]
        totals = sums_of(rate, np.broadcast_to(np.maximum(rows, seen), seen.shape), seen, hits)
        stacked.append(rate().estimate(totals, rng))
    share = 0.0
    for _, ends in intervals(target, stacked, enough, confidence):
        if settled(rule, ends) is (side == "pass"):
            share += 1 / draws
    return share


def intervals(
    target: Target, estimates: Sequence[Estimate], enough: NDArray[np.bool_], confidence: float
) -> Iterator[tuple[int, Interval]]:
    """Return the interval of every drawn audit whose rates are known, with the audit's number."""
    groups = len(estimates[0].values) // len(enough)
    for estimate in estimates:
        enough = enough & np.isfinite(estimate.values).reshape(-1, groups).all(axis=1)
    with np.errstate(invalid="ignore"):  # of draws that are left out below
        ends = target.ends(estimates, len(enough), confidence)
    for draw in np.flatnonzero(enough).tolist():
        if ends is not None:
            yield draw, (float(ends[0][draw]), float(ends[1][draw]))
            continue
        part = slice(draw * groups, (draw + 1) * groups)
        yield draw, target.interval([_some_of(estimate, part) for estimate in estimates], confidence)


def settled(rule: Rule, interval: Interval) -> bool | None:
    """Tell whether an interval keeps a rule's limit or breaks it, as `fairkit.judge` does."""
    return rule.settled(interval) if np.isfinite(interval).all() else None


def _some_of(estimate: Estimate, part: slice) -> Estimate:
    """Return the estimate of some of the groups."""

    def limits(z: float) -> tuple[Array, Array]:
        low, high = estimate.limits(z)
        return low[part], high[part]

    return Estimate(estimate.values[part], limits)
