"""Data: what a table says of people before any model, by group: numbers, outcomes, gaps, and who can be told apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.auditors import AuditContext, Auditor
from fairkit.charts import ChartTable, EvidenceChart
from fairkit.data.arrow_types import missing_cells
from fairkit.errors import ParameterError, did_you_mean
from fairkit.hookspecs import hookimpl
from fairkit.intervals import Spread, spread_difference, two_sided, wilson
from fairkit.metrics import Headline, Term
from fairkit.parameters import parameter
from fairkit.results.findings import Finding, GroupValue
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions

    Array = NDArray[np.float64]

_POPULATION = "the population's shares (the parameter `data.population`)"
SAMPLE = 50_000
"""So many rows at most tell how well the other columns tell the group: those of the smallest hashes of their cells."""
_BINS, _MOST_TEXTS, _FEWEST = 16, 50, 30


@dataclass(frozen=True, slots=True)
class TableCounts:
    """Counts by group of each sensitive column; adding two merges the rows behind them."""

    groups: Mapping[str, Array]  # by column, shape [G, 3]: rows, rows with a label, those with the favorable label
    gaps: Mapping[str, Array]  # by column, shape [G, C]: rows without a value in each column

    def __add__(self, other: TableCounts) -> TableCounts:
        return TableCounts(
            {name: counts + other.groups[name] for name, counts in self.groups.items()},
            {name: counts + other.gaps[name] for name, counts in self.gaps.items()},
        )


class DataAuditor(Auditor):
    """Describes a table by group: representation, outcomes, missing cells, and how well other columns tell the group.

    `representation` is the smallest of the groups' shares of the rows over their shares of the population.
    `label_rate_difference` is the largest difference of the shares of favorable outcomes. `missing_label_difference`
    and `missing_value_difference` are those of the shares of rows without an outcome, and without a value in the column
    in which they differ most. `group_auc` is the ROC-AUC with which a naive Bayes rule on the other columns, binned,
    tells a group from the rest on rows that it did not learn from: a better rule may tell more.
    """

    name: ClassVar[str] = "data"
    summary: ClassVar[str] = (
        "The table before any model: groups, outcomes, missing values, and columns that tell the group."
    )
    tasks: ClassVar[frozenset[Task]] = frozenset({"table"})
    partial: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = frozenset({"missing_groups", "missing_labels"})
    citation: ClassVar[str] = "Chen, Johansson & Sontag (2018), Why is my classifier discriminatory?, NeurIPS"
    terms: ClassVar[Mapping[str, Term]] = {
        "representation": Term("representation", "A group's share of the table over its share of the population."),
        "group_share": Term("share of the table", "The share of the rows that the smallest group has."),
        "label_rate_difference": Term("favorable outcomes", "How far the shares of favorable outcomes lie apart."),
        "missing_label_difference": Term("missing outcomes", "How far the shares without an outcome lie apart."),
        "missing_value_difference": Term("missing values", "How far the shares of rows without a value lie apart."),
        "group_auc": Term(
            "told from other columns", "How well the other columns tell a group: 0.5 is chance, 1 always."
        ),
    }
    headlines: ClassVar[Mapping[str, Headline]] = {"representation": Headline(condition=_POPULATION)}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """What can be set with --set data.KEY=VALUE."""

        population: Mapping[str, Any] = parameter(
            {}, help="Shares of the population by sensitive column, as data.population.sex=female:0.51,male:0.49."
        )
        columns: tuple[str, ...] = parameter(
            (), help="The columns that may tell the group; default: all features but the sensitive ones."
        )

    def __init__(self, parameters: Any = None) -> None:
        super().__init__(parameters)
        self._columns: tuple[str, ...] = ()
        self._telling: dict[str, Finding] = {}

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str]:
        """Return the names of its findings."""
        return frozenset(cls.terms)

    def columns(self, context: AuditContext) -> Sequence[str]:
        """Every feature: their missing values are counted, and they may tell the group."""
        dataset = context.dataset
        sensitive = {column for split in dataset.roles.sensitive for column in split.columns}
        if not sensitive and dataset.roles.label is None:
            raise ParameterError("which columns? Name those of groups with `sensitive`, and the outcome with `label`")
        chosen = self.parameters.columns or tuple(c for c in dataset.features if c not in sensitive)
        for name in chosen:
            if name not in dataset.columns:
                raise ParameterError(
                    f"data.columns: there is no column {name!r}. {did_you_mean(name, dataset.columns, what='columns')}"
                )
        return chosen

    def begin(self, context: AuditContext) -> None:
        """Check the population's shares, and learn how well the other columns tell each group."""
        self._columns = tuple(self.columns(context))
        names = list(context.dataset.profile.groups)
        for name in self.parameters.population:
            if name not in names:
                hint = did_you_mean(name, names, what="sensitive columns")
                raise ParameterError(f"data.population names {name!r}, which is no sensitive column. {hint}")
            population_shares(self.parameters.population[name], context.dataset.group_names(name), name)
        sample = sampled(context.dataset, self._columns, context.progress) if self._columns else None
        self._telling = {} if sample is None else {name: told_apart(sample, name, context) for name in names}

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> TableCounts:
        """Count rows, outcomes and missing cells by group; rows without a group come last."""
        labelled = np.ones(len(batch)) if batch.labelled is None else batch.labelled.astype(float)
        good = np.zeros(len(batch)) if batch.favorable is None else labelled * batch.favorable
        absent = (
            np.column_stack([missing_cells(batch.arrow(name)) for name in self._columns]) if self._columns else None
        )
        groups: dict[str, Array] = {}
        gaps: dict[str, Array] = {}
        for name, codes in batch.groups.items():
            size = len(context.dataset.group_names(name)) + 1
            code = np.where(codes < 0, size - 1, codes)
            groups[name] = np.column_stack(
                [np.bincount(code, weights, size) for weights in (np.ones(len(batch)), labelled, good)]
            )
            gaps[name] = np.zeros((size, len(self._columns)))
            if absent is not None:
                np.add.at(gaps[name], code, absent)
        return TableCounts(groups, gaps)

    def findings(self, total: TableCounts, context: AuditContext) -> list[Finding]:
        """Turn counts into findings, one column after the other."""
        made = []
        for name, counts in total.groups.items():
            made += self._column(name, counts, total.gaps[name], context)
        return made

    def _column(self, name: str, counts: Array, gaps: Array, context: AuditContext) -> list[Finding]:
        groups, confidence = context.dataset.group_names(name), context.confidence
        rows, labelled, good = counts[:-1].T
        roles = context.dataset.roles
        listed = _listed(
            groups, counts[:-1], confidence, outcomes=roles.label is not None and roles.favorable is not None
        )
        made = [self._representation(name, groups, rows, counts[-1, 0], confidence, listed)]
        if roles.label is not None and roles.favorable is not None:
            made.append(self._difference("label_rate_difference", name, groups, rows, good, labelled, confidence))
        if roles.label is not None and labelled.sum() < rows.sum():
            lost = rows - labelled
            made.append(self._difference("missing_label_difference", name, groups, rows, lost, rows, confidence))
        if self._columns and gaps[:-1].sum() > 0:
            made.append(self._missing(name, groups, rows, gaps[:-1], confidence))
        return [*made, *([self._telling[name]] if name in self._telling else [])]

    def _representation(
        self,
        name: str,
        groups: Sequence[str],
        rows: Array,
        unknown: float,
        confidence: float,
        listed: Sequence[Mapping[str, Any]],
    ) -> Finding:
        shares = self.parameters.population.get(name)
        scale = np.ones(len(rows)) if shares is None else population_shares(shares, groups, name)
        all_rows = float(rows.sum())
        notes = (f"{unknown:,.0f} rows without a value are in no group.",) if unknown else ()

        def at(level: float) -> tuple[float, float]:
            # the smallest of G ratios: its lower end needs Bonferroni's level, its upper end that of any one of them
            outer = two_sided(1 - (1 - level) / len(rows))
            low, high = wilson(rows / all_rows, np.full(len(rows), all_rows), outer)
            return float((low / scale).min()), float((high / scale).min())

        low, high = wilson(rows / all_rows, np.full(len(rows), all_rows), two_sided(confidence))
        values = rows / all_rows / scale
        return Finding(
            auditor=self.name,
            metric="group_share" if shares is None else "representation",
            sensitive=name,
            value=float(values.min()),
            interval=at(confidence),
            confidence=confidence,
            better="higher",
            groups=_group_values(groups, rows, values, (low / scale, high / scale), np.full(len(rows), all_rows)),
            parameters={} if shares is None else {"population": dict(zip(groups, scale.tolist(), strict=True))},
            evidence={"table_groups": listed},
            notes=(*notes, "The rows are taken for a random sample of those whom the model will decide about."),
            interval_at=at,
        )

    def _difference(
        self, metric: str, name: str, groups: Sequence[str], rows: Array, counted: Array, over: Array, confidence: float
    ) -> Finding:
        usable = over > 0
        small = over < _FEWEST
        values = np.divide(counted, over, out=np.full(len(over), np.nan), where=usable)

        def limits(z: float) -> tuple[Array, Array]:
            low, high = wilson(values[usable], over[usable], z)
            return low, high

        spread = _spread(values[usable], limits, confidence)
        low, high = np.full((2, len(over)), np.nan)
        low[usable], high[usable] = limits(two_sided(confidence))
        names = ", ".join(group for group, few in zip(groups, small, strict=True) if few)
        return Finding(
            auditor=self.name,
            metric=metric,
            sensitive=name,
            value=None if spread is None else spread.value,
            interval=None if spread is None else (spread.low, spread.high),
            confidence=confidence,
            better="none" if metric == "label_rate_difference" else "lower",
            groups=_group_values(groups, rows, values, (low, high), over),
            notes=() if spread is not None else ("Fewer than two groups have rows to compare.",),
            inconclusive=f"fewer than {_FEWEST} rows count in {names}" if names else None,
            interval_at=None if spread is None else lambda level: _ends(_spread(values[usable], limits, level)),
        )

    def _missing(self, name: str, groups: Sequence[str], rows: Array, gaps: Array, confidence: float) -> Finding:
        """Return the column whose missing values differ most, with an interval for all columns at once (Bonferroni)."""
        level = 1 - (1 - confidence) / max(gaps.shape[1], 1)
        found = [
            self._difference("missing_value_difference", name, groups, rows, gaps[:, k], rows, level)
            for k in range(gaps.shape[1])
        ]
        order = sorted(range(len(found)), key=lambda k: -(found[k].value or 0.0))
        first = found[order[0]]
        listed = [
            {
                "column": self._columns[k],
                "value": found[k].value,
                "interval": found[k].interval,
                "missing": gaps[:, k].tolist(),
            }
            for k in order[:3]
            if found[k].value
        ]
        from dataclasses import replace

        return replace(
            first,
            confidence=confidence,
            interval_at=None,
            evidence={"columns": listed},
            notes=(
                f"In the column {self._columns[order[0]]!r}; the interval holds for all {len(found)} columns at once.",
            ),
        )


def _listed(groups: Sequence[str], counts: Array, confidence: float, *, outcomes: bool) -> list[dict[str, Any]]:
    """Return each group's people, share, and share of favorable outcomes with its interval, as evidence."""
    listed = []
    for group, (rows, labelled, good) in zip(groups, counts, strict=True):
        row: dict[str, Any] = {"group": group, "people": int(rows), "share": float(rows / counts[:, 0].sum())}
        if outcomes:
            row["without_outcome"] = int(rows - labelled)
            if labelled:
                low, high = wilson(np.array([good / labelled]), np.array([labelled]), two_sided(confidence))
                row |= {"favorable": float(good / labelled), "low": float(low[0]), "high": float(high[0])}
        listed.append(row)
    return listed


class TableGroups(EvidenceChart):
    """The groups of a table: people, share of the rows, share of favorable outcomes, rows without an outcome."""

    name = "table_groups"
    title = "Groups of the table"

    def table(self, value: Any) -> ChartTable:
        """Return a row for each group."""
        keys = ("people", "share", "favorable", "low", "high", "without_outcome")
        used = [key for key in keys if any(key in row for row in value)]
        rows = [(str(row["group"]), *(row.get(key) for key in used)) for row in value]
        return ChartTable(columns=("group", *(key.replace("_", " ") for key in used)), rows=rows)

    @classmethod
    def example(cls) -> Any:
        """Return two groups."""
        return [{"group": "a", "people": 30, "share": 0.3}, {"group": "b", "people": 70, "share": 0.7}]


def population_shares(shares: Any, groups: Sequence[str], name: str) -> Array:
    """Return a population's shares in the order of the groups; one that is not named has what is left."""
    texts = [shares] if isinstance(shares, str) else list(shares)
    named: dict[str, float] = {}
    for text in texts:
        group, _, number = str(text).rpartition(":")
        try:
            named[group] = float(number)
        except ValueError:
            raise ParameterError(f"data.population.{name}: {text!r} is not GROUP:SHARE, as in female:0.51") from None
    unknown = [group for group in named if group not in groups]
    if unknown:
        hint = did_you_mean(unknown[0], groups, what="groups")
        raise ParameterError(f"data.population.{name}: there is no group {unknown[0]!r}. {hint}")
    left = 1 - math.fsum(named.values())
    absent = [group for group in groups if group not in named]
    if len(absent) == 1 and 0 < left < 1:
        named[absent[0]], absent, left = left, [], 0.0
    if absent or min(named.values()) <= 0 or abs(left) > 0.01:
        raise ParameterError(
            f"data.population.{name}: the shares of {', '.join(groups)} must be above 0 and add up to 1; "
            f"{'without ' + ', '.join(absent) if absent else f'they add up to {1 - left:g}'}"
        )
    return np.array([named[group] for group in groups])


def _spread(values: Array, limits: Callable[[float], tuple[Array, Array]], confidence: float) -> Spread | None:
    return None if len(values) < 2 else spread_difference(values, limits, confidence)


def _ends(spread: Spread | None) -> tuple[float, float] | None:
    return None if spread is None else (spread.low, spread.high)


def _group_values(
    groups: Sequence[str], rows: Array, values: Array, limits: tuple[Array, Array], over: Array
) -> tuple[GroupValue, ...]:
    return tuple(
        GroupValue(
            group=group,
            rows=int(rows[k]),
            value=None if math.isnan(values[k]) else float(values[k]),
            interval=None if math.isnan(values[k]) else (float(limits[0][k]), float(limits[1][k])),
            denominator=float(over[k]),
        )
        for k, group in enumerate(groups)
    )


@dataclass(frozen=True, slots=True)
class BinnedRows:
    """Some rows: the bin of each column, the group of each sensitive one, and the half that each row is in."""

    bins: NDArray[np.int64]  # shape [n, C]
    groups: Mapping[str, NDArray[np.int64]]
    half: NDArray[np.bool_]
    columns: tuple[str, ...]
    whole: bool  # whether these are all rows


def sampled(dataset: Dataset, columns: Sequence[str], progress: Any) -> BinnedRows:
    """Return the rows of the smallest hashes of their cells, whatever their order, in bins of equal numbers of rows."""
    sample: list[tuple[NDArray[np.uint64], list[NDArray[Any]], dict[str, NDArray[np.int64]]]] = []
    seen = 0
    for batch in dataset.batches(columns, partial=True):
        cells = [_numbers(batch.column(name)) for name in columns]
        seen += len(batch)
        progress("reading rows", seen, dataset.profile.rows)
        sample = [_smallest([*sample, (_hashes(cells), cells, dict(batch.groups))], 2 * SAMPLE)]
    hashes, cells, groups = _smallest(sample, SAMPLE)
    bins = np.column_stack([_binned(column) for column in cells])
    return BinnedRows(bins, groups, (hashes & np.uint64(1)).astype(bool), tuple(columns), seen <= len(hashes))


def _smallest(parts: Sequence[Any], most: int) -> Any:
    hashes = np.concatenate([part[0] for part in parts])
    cells = [np.concatenate(column) for column in zip(*(part[1] for part in parts), strict=True)]
    groups = {name: np.concatenate([part[2][name] for part in parts]) for name in parts[0][2]}
    if len(hashes) > most:
        # equal rows have equal hashes: they stay or go together
        keep = hashes <= np.partition(hashes, most - 1)[most - 1]
        hashes, cells = hashes[keep], [column[keep] for column in cells]
        groups = {name: codes[keep] for name, codes in groups.items()}
    return hashes, cells, groups


def _numbers(column: NDArray[Any]) -> NDArray[np.float64]:
    """Return a column as numbers that are equal where its cells are: text by its digest."""
    if column.dtype != object:
        return column.astype(np.float64)
    import zlib

    texts, places = np.unique([str(value) for value in column], return_inverse=True)
    codes = np.array([zlib.crc32(text.encode()) + (zlib.adler32(text.encode()) << 20) for text in texts], float)
    return codes[places]


def _hashes(cells: Sequence[Array]) -> NDArray[np.uint64]:
    """Return a hash of each row's cells (splitmix64's finaliser, column after column)."""
    result = np.zeros(len(cells[0]), np.uint64)
    for column in cells:
        mixed = result + (column + 0.0).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        result = mixed ^ (mixed >> np.uint64(31))
    return result


def _binned(column: Array) -> NDArray[np.int64]:
    """Return each cell's bin: its own value where there are few, else one of equal numbers of rows; missing last."""
    is_known = np.isfinite(column)
    values = np.unique(column[is_known])
    if len(values) > _MOST_TEXTS:
        edges = np.unique(np.quantile(column[is_known], np.linspace(0, 1, _BINS + 1)[1:-1]))
        places = np.searchsorted(edges, column, side="right")
    else:
        places = np.searchsorted(values, column)
    places[~is_known] = max(len(values), _BINS) + 1
    return np.unique(places, return_inverse=True)[1]


def told_apart(sample: BinnedRows, name: str, context: AuditContext) -> Finding:
    """Return how well naive Bayes on the other columns tells a group, learned on one half, tried on the other."""
    codes, groups = sample.groups[name], context.dataset.group_names(name)
    is_known = codes >= 0
    bins, codes, half = sample.bins[is_known], codes[is_known], sample.half[is_known]
    best: tuple[float, Array, NDArray[np.bool_], int] | None = None
    per_group, per_column = [], np.full(bins.shape[1], 0.5)
    for k in range(len(groups)):
        inside = codes == k
        if min(inside[half].sum(), inside[~half].sum(), (~inside)[half].sum(), (~inside)[~half].sum()) < _FEWEST:
            continue
        parts = _log_odds(bins, inside, half)
        auc, error = _auc(parts.sum(axis=1), inside, half)
        per_group.append((k, auc, error, int(inside.sum())))
        if best is None or auc > best[0]:
            best = auc, parts, inside, k
    if best is None:
        return Finding(
            auditor="data", metric="group_auc", value=None, sensitive=name, confidence=context.confidence,
            notes=(f"Fewer than {_FEWEST} rows of every group are in one of the halves.",),
        )  # fmt: skip
    _, parts, inside, group = best
    per_column = np.array([_auc(parts[:, c], inside, half)[0] for c in range(parts.shape[1])])

    def at(level: float) -> tuple[float, float]:
        z = two_sided(1 - (1 - level) / len(per_group))
        ends = [(auc - z * error, auc + z * error) for _, auc, error, _ in per_group]
        return max([0.0, *(low for low, _ in ends)]), min(1.0, max(high for _, high in ends))

    low, high = at(context.confidence)
    z = two_sided(context.confidence)
    order = sorted(range(len(per_column)), key=lambda c: -per_column[c])[:3]
    carried = [{"column": sample.columns[c], "auc": float(per_column[c])} for c in order]
    names = ", ".join(f"{column['column']} {column['auc']:.2f}" for column in carried)
    summary = (
        "The group cannot be told above chance from the other columns by this rule."
        if low <= 0.5
        else f"The other columns tell group {groups[group]!r} best; each alone: {names}."
    )
    notes = [
        summary,
        "A naive Bayes rule on binned columns was trained on one half of the rows and tested on the other.",
    ]
    notes += [] if sample.whole else [f"On {len(sample.half):,} rows, those of the smallest hashes."]
    return Finding(
        auditor="data",
        metric="group_auc",
        sensitive=name,
        value=best[0],
        interval=(low, high),
        confidence=context.confidence,
        better="none",
        groups=tuple(
            GroupValue(
                group=groups[k], rows=rows, value=auc, interval=(max(0.0, auc - z * error), min(1.0, auc + z * error))
            )
            for k, auc, error, rows in per_group
        ),
        evidence={"columns": carried},
        notes=tuple(notes),
        interval_at=at,
    )


def _log_odds(bins: NDArray[np.int64], inside: NDArray[np.bool_], half: NDArray[np.bool_]) -> Array:
    """Return each column's log odds of the group, shape [n, C], by the other half's counts plus one."""
    parts = np.empty(bins.shape)
    for c in range(bins.shape[1]):
        size = int(bins[:, c].max()) + 1
        for side in (False, True):
            learn, score = half == side, half != side
            yes, no = (np.bincount(bins[learn & group, c], minlength=size) + 1.0 for group in (inside, ~inside))
            parts[score, c] = np.log(yes / yes.sum() / (no / no.sum()))[bins[score, c]]
    return parts


def _auc(scores: Array, inside: NDArray[np.bool_], half: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the mean of the two halves' ROC-AUC and its standard error (DeLong, DeLong & Clarke-Pearson 1988)."""
    areas = []
    for side in (False, True):
        yes, no = np.sort(scores[(half == side) & inside]), np.sort(scores[(half == side) & ~inside])
        # the share of the others that a row beats, ties counting one half
        beats = (np.searchsorted(no, yes, "left") + np.searchsorted(no, yes, "right")) / (2 * len(no))
        beaten = 1 - (np.searchsorted(yes, no, "left") + np.searchsorted(yes, no, "right")) / (2 * len(yes))
        areas.append((beats.mean(), beats.var(ddof=1) / len(yes) + beaten.var(ddof=1) / len(no)))
    return float(np.mean([auc for auc, _ in areas])), float(math.sqrt(sum(variance for _, variance in areas)) / 2)


@hookimpl
def fairkit_evidence_charts() -> list[type[EvidenceChart]]:
    """Offer the table of groups."""
    return [TableGroups]


@hookimpl
def fairkit_auditors() -> list[type[Auditor]]:
    """Offer the auditor."""
    return [DataAuditor]
