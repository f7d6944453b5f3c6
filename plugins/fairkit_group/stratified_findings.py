"""Every disparity inside strata, pooled over them, with a test that they agree and each stratum's own number."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit.intervals import Spread, two_sided
from fairkit.limits import student
from fairkit.metrics import CONFUSION, Estimate, Rate
from fairkit.results.findings import GroupValue, StratumValue
from fairkit.statistics import Scores, ScoreTable, Sums
from fairkit_dependent import by_bucket, doubts_of, effective_clusters, noise_of
from fairkit_group.missing_groups import pooled_bounds
from fairkit_group.ranking import SCORES
from fairkit_group.rates import Failure, of_key, of_metric
from fairkit_group.references import IMPACT_RATIO, ODDS_RATIO, reference_in
from fairkit_group.section import MOST_CELLS, ends_of
from fairkit_group.simultaneous import (
    Odds,
    distances_within,
    joint_quantile,
    largest_difference,
    largest_distance,
    smallest_odds,
    smallest_ratio,
    worst_of,
)
from fairkit_group.strata import Strata
from fairkit_group.stratified import (
    Pairs,
    Pooled,
    Test,
    in_blocks,
    odds_ratio,
    pairs_of,
    same_difference,
    same_odds,
    single_pair,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.roles import Sensitive
    from fairkit.metrics import Metric
    from fairkit.results.findings import Better, Finding
    from fairkit_dependent import Noise
    from fairkit_group.rates import GroupTotals
    from fairkit_group.section import Section
    from fairkit_group.stratified import StratumCells

    Array = NDArray[np.float64]


MOST_STRATA = 100
"""So many strata are shown at most, the largest ones."""
_SIGNIFICANT = 0.05
KS = "statistical_parity_ks"


def inside_strata(section: Section, total: GroupTotals) -> list[Finding]:
    """Return the disparities of a section's column inside the strata of each column that was named for it."""
    findings: list[Finding] = []
    for split in section.context.dataset.roles.within:
        totals, buckets, gone = total.inside(split.name, str(section.sensitive), section.label)
        usable = {key: part for key, part in totals.items() if not isinstance(part, Failure)}
        names = section.context.dataset.stratum_names(split.name)
        strata = Strata(names, len(section.about.names), usable, buckets)
        findings += Inside(section, split, strata, gone).findings()
    return findings


class Inside:
    """The disparities of one sensitive column inside the strata of one column."""

    def __init__(self, section: Section, split: Sensitive, strata: Strata, gone: Mapping[str, Any]) -> None:
        self.section, self.split, self.strata = section, split, strata
        self.gone = of_key(gone, CONFUSION.key)  # the cells of rows without a group
        self.about = section.about
        self.counts = strata.counts()
        self.mixed = (self.counts > 0).sum(axis=1) > 1
        if not self.mixed.any():
            raise DataError(
                f"every stratum of {split.name!r} has one group of {section.sensitive!r} only: inside them there is "
                "nothing to compare; name other columns as `within`"
            )
        reference = reference_in(section)
        self.reference = None if reference is None else reference.place
        self.pairs: dict[str, Pairs] = {}  # of the rates that other findings are made of

    def findings(self) -> list[Finding]:
        """Return every pooled disparity, and those against the reference where there is one."""
        findings: list[Finding] = []
        for name, (metric, _) in self.section.estimates.items():
            if not {"difference", "ratio"} & metric.between:
                continue
            rng = self.section.context.rng(f"{name} {self.section.sensitive} {self.split.name}")
            cells = self.strata.cells(metric, rng)
            if cells is not None:
                findings += self._of_metric(metric, cells)
            elif isinstance(metric.statistic, Scores):
                findings.append(self._too_many(f"{name}_difference"))
        if {"true_positive_rate", "false_positive_rate"} <= set(self.pairs):
            findings.append(self._odds_difference())
        findings += self._odds_ratios()
        if of_key(self.section.totals, SCORES.key) is not None:
            findings.append(self._distance())
        return findings

    def _too_many(self, metric: str) -> Finding:
        """Say that a number of scores was not measured: with clusters its totals would grow with the strata."""
        message = (
            f"{metric} inside the strata of {self.split.name} is not measured with clusters where strata times groups "
            f"are more than {MOST_CELLS:,}: the scores of every stratum, group and bucket of clusters would not fit. "
            "Group the strata, or leave the clusters out."
        )
        finding = self.about.finding(metric, "lower", math.nan, lambda _: None, caveats=([], None))
        return replace(finding, within=self.split.columns, notes=(message,), inconclusive=message)

    def _distance(self) -> Finding:
        """Return the largest distance of a group's scores from those of everybody in its strata."""
        table = of_key(self.strata.totals, SCORES.key)
        if not isinstance(table, ScoreTable):
            return self._too_many(KS)
        buckets = of_key(self.strata.buckets, SCORES.key)
        distances, doubts = distances_within(table, len(self.counts), buckets)
        defined = np.isfinite(distances.values)
        worst = int(np.argmax(np.where(defined, distances.values, -1.0)))
        low, high = distances.limits(self.about.confidence)
        notes, blocking = self.about.caveats.of(
            Estimate(distances.values, lambda _: (low, high), distances.sizes, doubts)
        )
        strata_notes, strata_blocking = self._caveats([], None)
        evidence: dict[str, Any] = {"group": self.about.names[worst], "at_score": float(distances.at[worst])}
        if distances.bound:
            evidence["discretisation_bound"] = distances.bound
        blocked = " ".join(dict.fromkeys(text for text in (blocking, strata_blocking) if text)) or None
        made = self.about.finding(
            KS,
            "lower",
            float(distances.values[worst]) if defined.any() else math.nan,
            lambda confidence: largest_distance(distances, confidence),
            groups=self.about.group_values(distances.values, low, high),
            evidence=evidence | self._told(None),
            caveats=([*dict.fromkeys([*notes, *strata_notes])], blocked),
        )
        return replace(made, within=self.split.columns)

    def _bounds(self, metric: Metric, pairs: Pairs, *, signed: bool = False) -> dict[str, Any]:
        """Return what rows without a group could do to a difference; nothing where that is not known."""
        confusion = self.strata.confusion()
        if not isinstance(metric, Rate) or not isinstance(self.gone, Sums) or confusion is None or not len(pairs):
            return {}
        if metric.outcome and self.section.context.dataset.profile.unlabelled:
            return {}
        low, high = pooled_bounds(metric, confusion, self.gone.first, pairs.groups).T
        low, high = np.fmin(low, pairs.differences), np.fmax(high, pairs.differences)
        low, high = (low.min(), high.max()) if signed else (np.maximum(low, -high).max(), np.maximum(high, -low).max())
        return {"missing_bounds": {"low": float(max(low, -1 if signed else 0)), "high": float(high), "binding": True}}

    def _of_metric(self, metric: Metric, cells: StratumCells) -> Iterator[Finding]:
        pairs = self.strata.pairs(metric, cells)
        if metric.name in ("true_positive_rate", "false_positive_rate", "selection_rate"):
            self.pairs[metric.name] = pairs
        worst = _worst(pairs)
        test = self._agreement(metric, cells, worst)
        differences, ratios = (
            functools.cache(partial(spread, pairs)) for spread in (largest_difference, smallest_ratio)
        )
        if "difference" in metric.between:
            strata = self._strata(cells, worst, metric)
            alias = f"{metric.alias}_difference" if metric.alias else ""
            for name in filter(None, (f"{metric.name}_difference", alias)):
                shown = strata if name == (alias or name) else ()
                made = self._finding(name, "lower", differences, worst, [pairs], test, shown)
                yield replace(made, evidence={**made.evidence, **self._bounds(metric, pairs)})
        if "ratio" in metric.between:
            for name in filter(None, (f"{metric.name}_ratio", metric.alias and f"{metric.alias}_ratio")):
                yield self._finding(name, "higher", ratios, worst, [pairs], test)
        if self.reference is not None:
            yield from self._against(metric, cells, test)

    def _finding(
        self,
        metric: str,
        better: Better,
        spread: Callable[[float], Spread],
        worst: tuple[int, int] | None,
        pairs: Sequence[Pairs],
        test: tuple[str, Test] | None,
        strata: tuple[StratumValue, ...] = (),
    ) -> Finding:
        evidence: dict[str, Any] = {}
        if worst is not None:
            low, high = worst
            evidence = {"lowest_group": self.about.names[low], "highest_group": self.about.names[high]}
        evidence |= self._told(test)
        spread = functools.cache(spread)
        here = spread(self.about.confidence)
        finding = self.about.finding(
            metric,
            better,
            here.value,
            lambda confidence: ends_of(spread(confidence)),
            evidence=evidence,
            caveats=self._caveats(pairs, test),
        )
        return replace(finding, within=self.split.columns, strata=strata)

    def _told(self, test: tuple[str, Test] | None) -> dict[str, Any]:
        record: dict[str, Any] = {"strata": int(self.mixed.sum()), "strata_with_one_group": int((~self.mixed).sum())}
        if test is not None and math.isfinite(test[1].p_value):
            name, result = test
            record["homogeneity"] = {
                "test": name,
                "statistic": result.statistic,
                "degrees": result.degrees,
                "p_value": result.p_value,
            }
        return record

    def _caveats(self, pairs: Sequence[Pairs], test: tuple[str, Test] | None) -> tuple[list[str], str | None]:
        """Return the notes, and the reason why a verdict must wait: few rows in the strata that count."""
        notes, blocking = [], []
        alone = ~self.mixed
        if alone.any():
            notes.append(
                f"{int(alone.sum())} of {len(alone)} strata of {self.split.name} "
                f"({int(self.counts[alone].sum()):,} rows) have one group only and tell nothing."
            )
        if test is not None and test[1].p_value < _SIGNIFICANT:
            notes.append(
                f"The strata of {self.split.name} do not agree ({test[0]}, p = {test[1].p_value:.2g}): read their own "
                "numbers beside the pooled one."
            )
        least = self.about.caveats.least
        sizes = np.full(self.strata.groups, -1.0)
        for part in pairs:
            np.maximum.at(sizes, part.groups, part.rows)
        few = [
            f"{self.about.names[g]} ({sizes[g]:.0f})" for g in np.flatnonzero((sizes >= 0) & (sizes.round(6) < least))
        ]
        if few:
            blocking.append(f"Groups with fewer than {least} rows in the strata that count: {', '.join(few)}.")
        apart = [name for g, name in enumerate(self.about.names) if sizes[g] < 0]
        if apart and any(map(len, pairs)):
            blocking.append(f"Groups that share no stratum with another one: {', '.join(apart)}.")
        clusters = self._few_clusters()
        if clusters:
            blocking.append(clusters)
        return [*notes, *blocking], " ".join(blocking) or None

    def _few_clusters(self) -> str:
        cells = of_key(self.strata.buckets, CONFUSION.key)
        if cells is None:
            cells = next(iter(self.strata.buckets.values()), None)
        if cells is None or isinstance(cells, Failure):
            return ""
        if isinstance(cells, ScoreTable):
            shaped = cells.mass.sum(axis=0)
        else:
            shaped = by_bucket(cells, len(self.counts) * self.strata.groups)
            shaped = shaped.reshape(-1, shaped.shape[2])
        sizes = np.abs(shaped).sum(axis=1).reshape(len(self.counts), self.strata.groups, -1)[self.mixed].sum(axis=0)
        doubts = doubts_of((sizes > 0).sum(axis=1), effective_clusters(sizes))
        return f"The interval is not trusted: {next(iter(doubts.values()))}." if doubts else ""

    def _agreement(self, metric: Metric, cells: StratumCells, worst: tuple[int, int] | None) -> tuple[str, Test] | None:
        """Test that the strata agree: their odds ratios where cells are counts, else their differences."""
        if worst is None:
            return None
        confusion = self.strata.confusion()
        if self._counts and confusion is not None and isinstance(metric, Rate):
            return self._same_odds(
                confusion @ np.array(metric.counted, float), confusion @ np.array(metric.over, float)
            )
        a, b = worst
        variance = self._variances(metric, cells, a) + self._variances(metric, cells, b)
        test = same_difference(cells.values[:, a] - cells.values[:, b], variance)
        pairs = math.comb(self.strata.groups, 2)
        many = Test(test.statistic, test.degrees, min(1.0, test.p_value * pairs))
        return "Cochran's Q", many

    @property
    def _counts(self) -> bool:
        """Whether cells are counts of independent rows."""
        return self.strata.whole() and not self.strata.buckets

    def _same_odds(self, yes: Array, rows: Array) -> tuple[str, Test]:
        name = "Breslow-Day with Tarone's correction" if self.strata.groups == 2 else "score test"
        return name, same_odds(yes, rows)

    def _variances(self, metric: Metric, cells: StratumCells, group: int) -> Array:
        """Return the variances of a group's numbers in the strata, shape [S]; NaN in thin cells."""
        sums = of_metric(self.strata.buckets, metric)
        if sums is None:
            return np.where(cells.sizes[:, group] >= 2, cells.variance[:, group], np.nan)
        if isinstance(sums, ScoreTable):
            pull, some = self.strata.influence(metric, sums)
            return noise_of(pull[:, group], some[:, group]).variance
        shaped = by_bucket(sums, len(self.counts) * self.strata.groups)
        mine = shaped.reshape(len(self.counts), self.strata.groups, *shaped.shape[1:])[:, group]
        total = mine.sum(axis=1, keepdims=True)
        with np.errstate(all="ignore"):
            moved = np.nan_to_num(metric.compute(total) - metric.compute(total - mine))
        there = np.asarray((mine != 0).any(axis=2))
        buckets = there.sum(axis=1, keepdims=True)
        return noise_of(moved * (buckets - 1) / np.maximum(buckets, 1), there).variance

    def _strata(self, cells: StratumCells, worst: tuple[int, int] | None, metric: Metric) -> tuple[StratumValue, ...]:
        """Return the strata's own numbers between the two groups of the pooled one, in its order of these."""
        if worst is None:
            return ()
        low, high = worst
        largest = np.sort(np.argsort(-self.counts.sum(axis=1), kind="stable")[:MOST_STRATA])
        variances = None
        if self.strata.buckets:
            variances = self._variances(metric, cells, high), self._variances(metric, cells, low)
        return tuple(self._stratum(cells, int(s), high, low, variances) for s in largest)

    def _stratum(
        self, cells: StratumCells, s: int, high: int, low: int, variances: tuple[Array, Array] | None
    ) -> StratumValue:
        rows = self.counts[s]
        pair = single_pair(cells, s, high, low, variances)
        value, interval = math.nan, None
        if len(pair):
            value = float(pair.differences[0])
            ends = pair.difference_limits(two_sided(self.about.confidence))
            interval = _ends_at(ends, 0)
        few = bool(min(rows[[high, low]]) < self.about.caveats.least)
        return StratumValue(
            stratum=self.strata.names[s],
            rows=int(rows.sum()),
            value=value if math.isfinite(value) else None,
            interval=interval,
            few=few,
            groups=tuple(
                GroupValue(group=name, rows=int(n), value=float(v) if math.isfinite(v) else None)
                for name, n, v in zip(self.about.names, rows, cells.values[s], strict=True)
            ),
        )

    def _odds_difference(self) -> Finding:
        """Return equalized odds inside strata: the larger of the pooled differences of both error rates."""
        parts = [self.pairs[name] for name in ("true_positive_rate", "false_positive_rate")]

        def spread(confidence: float) -> Spread:
            joint = [largest_difference(pairs, math.sqrt(confidence)) for pairs in parts if len(pairs)]
            largest = [largest_difference(pairs, confidence) for pairs in parts if len(pairs)]
            if not joint:
                return Spread(math.nan, math.nan, math.nan)
            return Spread(max(p.value for p in largest), max(p.low for p in joint), max(p.high for p in largest))

        return self._finding("equalized_odds_difference", "lower", spread, _worst(*parts), parts, None)

    def _odds_ratios(self) -> list[Finding]:
        """Return the pooled odds ratio of favorable decisions: the smallest of a pair, and those to the reference."""
        confusion = self.strata.confusion()
        if confusion is None or "selection_rate" not in self.pairs:
            return []
        defined = self._odds(pairs_of(self.strata.groups))
        pairs = self.pairs["selection_rate"]
        yes = confusion @ np.array((0.0, 1, 0, 1))
        test = self._same_odds(yes, confusion.sum(axis=2)) if self._counts else None
        worst = _worst(pairs)
        made = [self._finding(ODDS_RATIO, "higher", lambda c: smallest_odds(defined, c), worst, [pairs], test)]
        if self.reference is not None:
            against = self._odds(pairs_of(self.strata.groups, self.reference))
            values = against.pooled.value
            largest = worst_of(np.log(values))
            made.append(
                self._referred(ODDS_RATIO, "none", against.groups[0], values, against.limits, largest, pairs, test)
            )
        return made

    def _odds(self, groups: NDArray[np.intp]) -> Odds:
        """Return the odds ratios of pairs of groups, shape [2, P], that are numbers above 0 with an error."""
        confusion = self.strata.confusion()
        assert confusion is not None  # noqa: S101 -- asked only where there are decisions
        effective = None if self.strata.whole() else self.strata.effective()
        made = [
            odds_ratio(_tables(confusion, *part), None if effective is None else _tables(effective, *part))
            for part in in_blocks(groups, len(confusion))
        ]
        value, error = (np.concatenate([getattr(each, name) for each in made]) for name in ("value", "log_error"))
        sums, degrees = of_key(self.strata.buckets, CONFUSION.key), None
        if sums is not None and not isinstance(sums, Failure):
            shaped = by_bucket(sums, len(self.counts) * self.strata.groups)
            shaped = shaped.reshape(len(self.counts), self.strata.groups, *shaped.shape[1:])
            noises = [_noise_of_odds(confusion[:, [a, b]], shaped[:, [a, b]]) for a, b in groups.T]
            error = np.array([math.sqrt(noise.variance[0]) for noise in noises])
            degrees = np.array([noise.degrees[0] for noise in noises])
        known = np.isfinite(error) & (value > 0) & np.isfinite(value)
        pooled = Pooled(value[known], error[known])
        if degrees is None:
            return Odds(groups[:, known], pooled, lambda z: z)
        freedom = degrees[known] + 1
        return Odds(groups[:, known], pooled, lambda z: student(z, freedom))

    def _against(self, metric: Metric, cells: StratumCells, test: tuple[str, Test] | None) -> Iterator[Finding]:
        """Return every group's pooled number against the reference's."""
        pairs = self.strata.pairs(metric, cells, self.reference)
        groups = pairs.groups[0]
        if "difference" in metric.between:
            values = pairs.differences
            for name in filter(None, (metric.name, metric.alias)):
                made = self._referred(
                    f"{name}_difference", "none", groups, values, pairs.difference_limits, worst_of(values), pairs, test
                )
                yield replace(made, evidence={**made.evidence, **self._bounds(metric, pairs, signed=True)})
        positive = bool(len(pairs)) and bool((pairs.values[1] > 0).all() and (pairs.values[0] >= 0).all())
        if "ratio" in metric.between and positive:
            ratios = pairs.values[0] / pairs.values[1]
            names = [f"{name}_ratio" for name in (metric.name, metric.alias) if name]
            names += [IMPACT_RATIO] if metric.name == "selection_rate" else []
            for name in names:
                lowest = name == IMPACT_RATIO
                worst = int(np.argmin(ratios)) if lowest else worst_of(np.log(np.maximum(ratios, 1e-300)))
                better: Better = "higher" if lowest else "none"
                yield self._referred(name, better, groups, ratios, partial(_first, pairs), worst, pairs, test)

    def _referred(
        self,
        metric: str,
        better: Better,
        groups: NDArray[np.intp],
        values: Array,
        limits: Callable[[float], tuple[Array, Array]],
        worst: int,
        pairs: Pairs,
        test: tuple[str, Test] | None,
    ) -> Finding:
        about, reference = self.about, self.reference
        assert reference is not None  # noqa: S101 -- asked only where there is one

        def interval(confidence: float) -> tuple[float, float] | None:
            return _ends_at(limits(joint_quantile(len(groups), confidence)), worst)

        ends = limits(joint_quantile(len(groups), about.confidence))
        finding = about.finding(
            metric,
            better,
            float(values[worst]) if len(values) else math.nan,
            interval,
            groups=tuple(
                GroupValue(
                    group=about.names[g], rows=about.rows[g], value=float(value), interval=(float(low), float(high))
                )
                for g, value, low, high in zip(groups, values, *ends, strict=True)
            ),
            evidence=({"group": about.names[groups[worst]]} if len(groups) else {}) | self._told(test),
            caveats=self._caveats([pairs], None),
        )
        return replace(finding, reference=about.names[reference], within=self.split.columns)


def _worst(*parts: Pairs) -> tuple[int, int] | None:
    """Return the two groups that are the furthest apart, the one with the lower number first."""
    if not any(map(len, parts)):
        return None
    differences = np.concatenate([pairs.differences for pairs in parts])
    worst = worst_of(differences)
    a, b = np.concatenate([pairs.groups for pairs in parts], axis=1)[:, worst].tolist()
    return (a, b) if differences[worst] < 0 else (b, a)


def _ends_at(ends: tuple[Array, Array], index: int) -> tuple[float, float] | None:
    """Return one pair of limits; None where one is not finite."""
    low, high = float(ends[0][index]), float(ends[1][index])
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _tables(confusion: Array, a: NDArray[np.intp], b: NDArray[np.intp]) -> Array:
    """Return favorable and unfavorable decisions of pairs of groups, shape [P, S, 2, 2], of cells [S, G, 4]."""
    decided = np.stack([confusion[..., 1] + confusion[..., 3], confusion[..., 0] + confusion[..., 2]], axis=-1)
    return np.stack([decided[:, a], decided[:, b]], axis=2).swapaxes(0, 1)


def _log_odds(confusion: Array) -> Array:
    """Return the logarithm of the pooled odds ratio of two groups, shape [...] of confusion cells [..., S, 2, 4]."""
    yes, no = confusion[..., 1] + confusion[..., 3], confusion[..., 0] + confusion[..., 2]
    with np.errstate(all="ignore"):
        n = (yes + no).sum(axis=-1)
        top = np.where(n > 0, yes[..., 0] * no[..., 1] / n, 0.0).sum(axis=-1)
        bottom = np.where(n > 0, no[..., 0] * yes[..., 1] / n, 0.0).sum(axis=-1)
        return np.asarray(np.log(top / bottom))


def _noise_of_odds(confusion: Array, buckets: Array) -> Noise:
    """Return the noise of the logarithm of two groups' odds ratio; buckets' cells have the shape [S, 2, B, 4]."""
    logs = _log_odds(np.moveaxis(buckets.sum(axis=2)[:, :, None] - buckets, 2, 0))
    there = (buckets != 0).any(axis=(0, 1, 3))
    count = int(there.sum())
    moved = np.where(there, _log_odds(confusion) - logs, 0.0) * (count - 1) / max(count, 1)
    return noise_of(moved[None], there[None])


def _first(pairs: Pairs, z: float) -> tuple[Array, Array]:
    low, high = pairs.ratio_limits(z)
    return low[0], high[0]
