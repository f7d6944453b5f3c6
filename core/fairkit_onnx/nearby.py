"""Rows nearby: what a model decides about people next to the audited ones, compared with them pair by pair.

In each of up to 4,096 rows one number moves by a few ranks of its column, to a value there or between. Groups,
outcomes and all other cells stay. A model that treats the audited rows unlike rows next to them (one that knows the
table, say) shows another disparity there. Values that hold at least 5 % of the rows stay: an atom such as "no capital
gain" has no neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.lists import shortened
from fairkit.data.roles import value_text
from fairkit.errors import FairkitError
from fairkit_onnx.moving import neighbours
from fairkit_onnx.paired import DRAWS, SMALL, PairedDecisions, PairedNumbers, means_of, rates_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.metrics import Mean, Metric, Rate
    from fairkit.models.scorer import Predictions, Scorer
    from fairkit.results.findings import Finding

    Array = NDArray[np.float64]
    Pairs = PairedDecisions | PairedNumbers
    Measures = tuple[Mapping[str, Rate], Mapping[str, Mean]]

ROWS, FEWEST = 4_096, 200
"""At most so many rows are moved; fewer than the second say nothing."""
FINITE = 0.9
"""Where fewer of the draws give a number, there is no interval."""
KEY = "nearby"
"""Where a finding has the evidence."""
TEXTS = "other_texts"
"""Where it has that on rows with a text of another row."""


def with_nearby(
    findings: Sequence[Finding], scorer: Scorer, dataset: Dataset, metrics: Sequence[type[Metric]], confidence: float
) -> list[Finding]:
    """Add to findings about rates and predicted numbers what they are on rows next to the audited ones.

    Only a model's file is asked: answers of a server, of columns or of an object in memory are taken as they are.
    Clusters are drawn whole; rows count by their weights. Texts go to those of another row of the same groups, and are
    reported apart: nobody is judged by them, as honest models change more there.
    """
    usable = scorer.task in ("binary", "multiclass", "regression") and scorer.info.serving and not scorer.info.unseen
    if not usable:
        return list(findings)
    # the model's own digest: who wrote these neighbours into the file would have other ones
    seed = [int(text[:32], 16) for text in (str(scorer.info.sha256), dataset.sha256)]
    rng = np.random.default_rng(seed)
    first = _FirstRows.of(dataset, scorer)
    if first is None or first.rows < FEWEST:
        return list(findings)
    sensitive = {part for name in first.groups for part in name.split("+")}
    measures = rates_of(metrics), means_of(metrics)
    found = list(findings)
    for key, change in ((KEY, neighbours), (TEXTS, first.other_texts)):
        changed, moved = change(first.cells, sensitive, rng)
        pairs = first.pairs(scorer, changed, moved, measures, rng) if moved.sum() >= FEWEST else {}
        if pairs:
            found = [_with_evidence(finding, pairs, confidence, key) for finding in found]
        if pairs and key == KEY:
            found = [_with_small_groups(finding, pairs, dataset) for finding in found]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstRows:
    """The table's first rows: the same ones however the table lies in parts."""

    cells: dict[str, NDArray[Any]]  # by column, and the groups' numbers by split, each of shape [n]
    groups: dict[str, NDArray[np.int64]]  # by column, and the groups' numbers by split, each of shape [n]
    favorable: NDArray[np.bool_] | None
    classes: NDArray[np.int64] | None
    targets: Array | None  # of predicted numbers: the labels
    weights: Array | None  # none: all alike; each row by itself
    clusters: NDArray[np.int64] | None  # none: all alike; each row by itself

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(next(iter(self.cells.values()), ()))

    @classmethod
    def of(cls, dataset: Dataset, scorer: Scorer) -> _FirstRows | None:
        """Read them; None where there are none."""
        batches, count = [], 0
        for batch in dataset.batches(scorer.columns, rows=ROWS):
            batches.append(batch)
            count += len(batch)
            if count >= ROWS:
                break
        if not batches:
            return None

        def first(values: Sequence[NDArray[Any] | None]) -> Any:
            some = [one for one in values if one is not None]
            return np.concatenate(some)[:ROWS] if len(some) == len(values) else None

        cells = [batch.columns(scorer.columns) for batch in batches]
        label = None if scorer.task == "binary" else first([batch.label for batch in batches])
        places = None
        if label is not None and scorer.task == "multiclass":
            places = np.select([label == value for value in scorer.classes], range(len(scorer.classes)), -1)
        return cls(
            cells={name: first([some[name] for some in cells]) for name in scorer.columns},
            groups={name: first([batch.groups[name] for batch in batches]) for name in batches[0].groups},
            favorable=first([batch.favorable for batch in batches]),
            classes=places,
            targets=np.asarray(label, dtype=np.float64) if label is not None and places is None else None,
            weights=first([batch.weights for batch in batches]),
            clusters=first([batch.clusters for batch in batches]),
        )

    def pairs(
        self,
        scorer: Scorer,
        changed: Mapping[str, NDArray[Any]],
        moved: NDArray[np.bool_],
        measures: Measures,
        rng: np.random.Generator,
    ) -> dict[tuple[str, str | None], Pairs]:
        """Return what is said about the rows that moved, here and there, by split and class; empty where it fails."""
        try:
            here = scorer.predict({name: values[moved] for name, values in self.cells.items()})
            there = scorer.predict({name: values[moved] for name, values in changed.items()})
        except FairkitError:
            return {}
        draws = self._draws(moved, rng)
        rates, means = measures
        if scorer.task == "regression":
            if here.score is None or there.score is None:
                return {}
            target = np.full(int(moved.sum()), np.nan) if self.targets is None else self.targets[moved]
            return {
                (name, None): PairedNumbers(target, codes[moved], here.score, there.score, draws, rng, means)
                for name, codes in self.groups.items()
            }
        return {
            (name, label): PairedDecisions(outcome, codes[moved], *decisions, draws, rng, rates)
            for name, codes in self.groups.items()
            for label, (outcome, decisions) in self._views(scorer, moved, here, there)
        }

    def _views(
        self, scorer: Scorer, moved: NDArray[np.bool_], here: Predictions, there: Predictions
    ) -> Iterator[tuple[str | None, tuple[NDArray[np.bool_], tuple[NDArray[np.bool_], NDArray[np.bool_]]]]]:
        """Yield outcomes and decisions as metrics see them: as one task, and of each class against the others."""
        if here.decision is not None and there.decision is not None:
            outcome = np.zeros(int(moved.sum()), bool) if self.favorable is None else self.favorable[moved]
            yield None, (outcome, (here.decision >= 0.5, there.decision >= 0.5))
        if here.predicted is None or there.predicted is None or self.classes is None:
            return
        true = self.classes[moved]
        yield None, (np.ones(len(true), bool), (here.predicted == true, there.predicted == true))
        for code, value in enumerate(scorer.classes):
            yield value_text(value), (true == code, (here.predicted == code, there.predicted == code))

    def _draws(self, moved: NDArray[np.bool_], rng: np.random.Generator) -> Array | None:
        """Return how much each row counts in the table and in draws of it, shape [1 + D, n]; None: rows one by one."""
        if self.weights is None and self.clusters is None:
            return None
        units = np.arange(moved.sum()) if self.clusters is None else self.clusters[moved]
        names, unit = np.unique(units, return_inverse=True)
        drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)
        times = np.concatenate([np.ones((1, len(unit))), drawn[:, unit]])
        return times if self.weights is None else times * self.weights[moved]

    def other_texts(
        self, cells: Mapping[str, NDArray[Any]], fixed: set[str], rng: np.random.Generator
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        """Give each row the text of another row of the same groups in one of its columns of texts."""
        names = [name for name, values in cells.items() if values.dtype.kind in "OUS" and name not in fixed]
        moved = np.zeros(self.rows, dtype=bool)
        if not names:
            return dict(cells), moved
        every = np.stack(list(self.groups.values())) if self.groups else np.zeros((1, self.rows), dtype=np.int64)
        _, group = np.unique(every, axis=1, return_inverse=True)
        source = np.arange(self.rows)
        for code in range(int(group.max()) + 1):
            members = np.flatnonzero(group == code)
            source[members] = rng.choice(members, len(members))
        chosen = rng.integers(0, len(names), self.rows)
        changed = dict(cells)
        for place, name in enumerate(names):
            values = cells[name]
            differs = np.array([a is not b and a != b for a, b in zip(values, values[source], strict=True)])
            here = (chosen == place) & differs
            changed[name] = np.where(here, values[source], values)
            moved |= here
        return changed, moved


def _with_small_groups(finding: Finding, drawn: Mapping[tuple[str, str | None], Pairs], dataset: Dataset) -> Finding:
    """Name the groups that a disparity next to the rows says nothing about."""
    pairs = _pairs_of(finding, drawn)
    small = None if pairs is None else pairs.small(finding.metric)
    if small is None:
        return finding
    every = dataset.group_names(str(finding.sensitive))
    names = [name for code, name in enumerate(every) if code >= len(small) or small[code]]
    if not names:
        return finding
    many = len(names) > 1
    note = (
        f"{len(names):,} group{'s' * many} of fewer than {SMALL} rows here {'are' if many else 'is'} not compared with "
        f"rows nearby: {shortened(names, most=4)}."
    )
    return replace(finding, notes=(*finding.notes, note))


def _pairs_of(finding: Finding, drawn: Mapping[tuple[str, str | None], Pairs]) -> Pairs | None:
    """Return what is said about the rows of a finding; None where nothing is."""
    if finding.within or finding.reference is not None or finding.value is None:
        return None
    return drawn.get((str(finding.sensitive), finding.parameters.get("class")))


def _with_evidence(
    finding: Finding, drawn: Mapping[tuple[str, str | None], Pairs], confidence: float, key: str
) -> Finding:
    pairs = _pairs_of(finding, drawn)
    if pairs is None:
        return finding
    with np.errstate(all="ignore"):  # groups without the outcome that a rate is over
        both = pairs.disparity(finding.metric)
    if both is None or not np.isfinite([both[0][0], both[1][0]]).all():
        return finding
    here, there = both
    usable = np.isfinite(here) & np.isfinite(there)
    if usable.mean() < FINITE:
        return finding
    here, there = here[usable], there[usable]
    ends = [(1 - confidence) / 2, (1 + confidence) / 2]
    evidence: dict[str, float] = {"rows": pairs.rows, "flips": pairs.flips}
    for name, draws in (("here", here), ("nearby", there), ("change", there - here)):
        low, high = np.quantile(draws[1:], ends)  # the basic bootstrap interval around the first entry
        evidence |= {
            name: float(draws[0]),
            f"{name}_low": float(2 * draws[0] - high),
            f"{name}_high": float(2 * draws[0] - low),
        }
    return replace(finding, evidence={**finding.evidence, key: evidence})
