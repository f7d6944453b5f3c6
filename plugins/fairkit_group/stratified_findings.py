"""Every disparity inside strata, pooled over them, with a test that they agree and each stratum's own number."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from fairkit_group.stratified import Pair, Test, odds_ratio, pairs_of, same_difference, same_odds, single_pair

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.roles import Sensitive
    from fairkit.metrics import Metric
    from fairkit.results.findings import Better, Finding
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
        self.pairs: dict[str, list[Pair]] = {}

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

    def _bounds(self, metric: Metric, pairs: Sequence[Pair], *, signed: bool = False) -> dict[str, Any]:
        """Return what rows without a group could do to a difference; nothing where that is not known."""
        confusion = self.strata.confusion()
        if not isinstance(metric, Rate) or not isinstance(self.gone, Sums) or confusion is None or not pairs:
            return {}
        if metric.outcome and self.section.context.dataset.profile.unlabelled:
            return {}
        differences = np.array([pair.difference for pair in pairs])
        low, high = pooled_bounds(metric, confusion, self.gone.first, pairs).T
        low, high = np.fmin(low, differences), np.fmax(high, differences)
        low, high = (low.min(), high.max()) if signed else (np.maximum(low, -high).max(), np.maximum(high, -low).max())
        return {"missing_bounds": {"low": float(max(low, -1 if signed else 0)), "high": float(high), "binding": True}}

    def _of_metric(self, metric: Metric, cells: StratumCells) -> Iterator[Finding]:
        pairs = self.pairs[metric.name] = self.strata.pairs(metric, cells)
        worst = _worst(pairs)
        test = self._agreement(metric, cells, worst)
        differences, ratios = (
            functools.cache(functools.partial(spread, pairs)) for spread in (largest_difference, smallest_ratio)
        )
        if "difference" in metric.between:
            strata = self._strata(cells, worst, metric)
            alias = f"{metric.alias}_difference" if metric.alias else ""
            for name in filter(None, (f"{metric.name}_difference", alias)):
                shown = strata if name == (alias or name) else ()
                made = self._finding(name, "lower", differences, worst, pairs, test, shown)
                yield replace(made, evidence={**made.evidence, **self._bounds(metric, pairs)})
        if "ratio" in metric.between:
            for name in filter(None, (f"{metric.name}_ratio", metric.alias and f"{metric.alias}_ratio")):
                yield self._finding(name, "higher", ratios, worst, pairs, test)
        if self.reference is not None:
            yield from self._against(metric, cells, test)

    def _finding(
        self,
        metric: str,
        better: Better,
        spread: Callable[[float], Spread],
        worst: Pair | None,
        pairs: Sequence[Pair],
        test: tuple[str, Test] | None,
        strata: tuple[StratumValue, ...] = (),
    ) -> Finding:
        evidence: dict[str, Any] = {}
        if worst is not None:
            low, high = _in_order(worst)
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

    def _caveats(self, pairs: Sequence[Pair], test: tuple[str, Test] | None) -> tuple[list[str], str | None]:
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
        sizes: dict[int, float] = {}
        for pair in pairs:
            for group, rows in zip(pair.groups, pair.sizes, strict=True):
                sizes[group] = max(sizes.get(group, 0.0), rows)
        few = [f"{self.about.names[g]} ({rows:.0f})" for g, rows in sizes.items() if round(rows, 6) < least]
        if few:
            blocking.append(f"Groups with fewer than {least} rows in the strata that count: {', '.join(few)}.")
        apart = [name for g, name in enumerate(self.about.names) if g not in sizes]
        if apart and pairs:
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

    def _agreement(self, metric: Metric, cells: StratumCells, worst: Pair | None) -> tuple[str, Test] | None:
        """Test that the strata agree: their odds ratios where cells are counts, else their differences."""
        if worst is None:
            return None
        confusion = self.strata.confusion()
        if self._counts and confusion is not None and isinstance(metric, Rate):
            return self._same_odds(
                confusion @ np.array(metric.counted, float), confusion @ np.array(metric.over, float)
            )
        a, b = worst.groups
        variance = self._variances(metric, cells, a) + self._variances(metric, cells, b)
        test = same_difference(cells.values[:, a] - cells.values[:, b], variance)
        pairs = len(pairs_of(self.strata.groups))
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

    def _strata(self, cells: StratumCells, worst: Pair | None, metric: Metric) -> tuple[StratumValue, ...]:
        """Return the strata's own numbers between the two groups of the pooled one, in its order of these."""
        if worst is None:
            return ()
        low, high = _in_order(worst)
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
        value = pair.difference
        interval = pair.difference_limits(two_sided(self.about.confidence)) if math.isfinite(value) else None
        if interval is not None and not all(map(math.isfinite, interval)):
            interval = None
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
            joint = [largest_difference(pairs, math.sqrt(confidence)) for pairs in parts if pairs]
            largest = [largest_difference(pairs, confidence) for pairs in parts if pairs]
            if not joint:
                return Spread(math.nan, math.nan, math.nan)
            return Spread(max(p.value for p in largest), max(p.low for p in joint), max(p.high for p in largest))

        both = [pair for pairs in parts for pair in pairs]
        return self._finding("equalized_odds_difference", "lower", spread, _worst(both), both, None)

    def _odds_ratios(self) -> list[Finding]:
        """Return the pooled odds ratio of favorable decisions: the smallest of a pair, and those to the reference."""
        confusion = self.strata.confusion()
        if confusion is None or "selection_rate" not in self.pairs:
            return []
        ratios = [self._odds(a, b) for a, b in pairs_of(self.strata.groups)]
        defined = [ratio for ratio in ratios if ratio.known]
        pairs = self.pairs["selection_rate"]
        yes = confusion @ np.array((0.0, 1, 0, 1))
        test = self._same_odds(yes, confusion.sum(axis=2)) if self._counts else None
        made = [self._finding(ODDS_RATIO, "higher", lambda c: smallest_odds(defined, c), _worst(pairs), pairs, test)]
        if self.reference is not None:
            against = [self._odds(a, b) for a, b in pairs_of(self.strata.groups, self.reference)]
            usable = [ratio for ratio in against if ratio.known]
            values = [ratio.pooled.value for ratio in usable]
            made.append(
                self._referred(
                    ODDS_RATIO,
                    "none",
                    [ratio.groups[0] for ratio in usable],
                    values,
                    lambda z: [ratio.limits(z) for ratio in usable],
                    worst_of([math.log(value) for value in values]),
                    pairs,
                    test,
                )
            )
        return made

    def _odds(self, a: int, b: int) -> Odds:
        confusion = self.strata.confusion()
        assert confusion is not None  # noqa: S101 -- asked only where there are decisions
        tables = _tables(confusion, a, b)
        pooled = odds_ratio(tables, None if self.strata.whole() else _tables(self.strata.effective(), a, b))
        sums = of_key(self.strata.buckets, CONFUSION.key)
        if sums is None or isinstance(sums, Failure):
            return Odds((a, b), pooled, lambda z: z)
        shaped = by_bucket(sums, len(self.counts) * self.strata.groups)
        shaped = shaped.reshape(len(self.counts), self.strata.groups, *shaped.shape[1:])
        total = shaped.sum(axis=2)
        logs = _log_odds(np.moveaxis(total[:, :, None] - shaped, 2, 0), a, b)
        there = (shaped[:, [a, b]] != 0).any(axis=(0, 1, 3))
        buckets = int(there.sum())
        moved = np.where(there, _log_odds(confusion, a, b) - logs, 0.0) * (buckets - 1) / max(buckets, 1)
        noise = noise_of(moved[None], there[None])
        spread = replace(pooled, log_error=float(np.sqrt(noise.variance[0])))
        return Odds((a, b), spread, lambda z: float(student(z, noise.degrees + 1)[0]))

    def _against(self, metric: Metric, cells: StratumCells, test: tuple[str, Test] | None) -> Iterator[Finding]:
        """Return every group's pooled number against the reference's."""
        pairs = self.strata.pairs(metric, cells, self.reference)
        groups = [pair.groups[0] for pair in pairs]
        if "difference" in metric.between:
            differences = [pair.difference for pair in pairs]
            for name in filter(None, (metric.name, metric.alias)):
                made = self._referred(
                    f"{name}_difference",
                    "none",
                    groups,
                    differences,
                    lambda z: [pair.difference_limits(z) for pair in pairs],
                    worst_of(differences),
                    pairs,
                    test,
                )
                yield replace(made, evidence={**made.evidence, **self._bounds(metric, pairs, signed=True)})
        positive = bool(pairs) and all(pair.values[1] > 0 and pair.values[0] >= 0 for pair in pairs)
        if "ratio" in metric.between and positive:
            ratios = [float(pair.values[0] / pair.values[1]) for pair in pairs]
            names = [f"{name}_ratio" for name in (metric.name, metric.alias) if name]
            names += [IMPACT_RATIO] if metric.name == "selection_rate" else []
            for name in names:
                lowest = name == IMPACT_RATIO
                logs = [math.log(max(ratio, 1e-300)) for ratio in ratios]
                yield self._referred(
                    name,
                    "higher" if lowest else "none",
                    groups,
                    ratios,
                    lambda z: [_first(pair.ratio_limits(z)) for pair in pairs],
                    int(np.argmin(ratios)) if lowest else worst_of(logs),
                    pairs,
                    test,
                )

    def _referred(
        self,
        metric: str,
        better: Better,
        groups: Sequence[int],
        values: Sequence[float],
        limits: Callable[[float], list[tuple[float, float]]],
        worst: int,
        pairs: Sequence[Pair],
        test: tuple[str, Test] | None,
    ) -> Finding:
        about, reference = self.about, self.reference
        assert reference is not None  # noqa: S101 -- asked only where there is one

        def interval(confidence: float) -> tuple[float, float] | None:
            pair = limits(joint_quantile(len(groups), confidence))[worst]
            return pair if all(map(math.isfinite, pair)) else None

        ends = limits(joint_quantile(len(groups), about.confidence))
        finding = about.finding(
            metric,
            better,
            values[worst] if values else math.nan,
            interval,
            groups=tuple(
                GroupValue(group=about.names[g], rows=about.rows[g], value=float(value), interval=pair)
                for g, value, pair in zip(groups, values, ends, strict=True)
            ),
            evidence=({"group": about.names[groups[worst]]} if groups else {}) | self._told(test),
            caveats=self._caveats(pairs, None),
        )
        return replace(finding, reference=about.names[reference], within=self.split.columns)


def _worst(pairs: Sequence[Pair]) -> Pair | None:
    return pairs[worst_of([pair.difference for pair in pairs])] if pairs else None


def _in_order(pair: Pair) -> tuple[int, int]:
    """Return the group with the lower number, and the other one."""
    a, b = pair.groups
    return (a, b) if pair.difference < 0 else (b, a)


def _tables(confusion: Array, a: int, b: int) -> Array:
    """Return favorable and unfavorable decisions of two groups, shape [..., S, 2, 2]."""
    yes = confusion[..., 1] + confusion[..., 3]
    no = confusion[..., 0] + confusion[..., 2]
    return np.stack([yes, no], axis=-1)[..., [a, b], :]


def _log_odds(confusion: Array, a: int, b: int) -> Array:
    """Return the logarithm of the pooled odds ratio of two groups, shape [...] of confusion cells [..., S, G, 4]."""
    tables = _tables(confusion, a, b)
    with np.errstate(all="ignore"):
        n = tables.sum(axis=(-2, -1))
        top = np.where(n > 0, tables[..., 0, 0] * tables[..., 1, 1] / n, 0.0).sum(axis=-1)
        bottom = np.where(n > 0, tables[..., 0, 1] * tables[..., 1, 0] / n, 0.0).sum(axis=-1)
        return np.asarray(np.log(top / bottom))


def _first(ends: tuple[Array, Array]) -> tuple[float, float]:
    return float(ends[0][0]), float(ends[1][0])
