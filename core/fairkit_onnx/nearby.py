"""Rows nearby: what a model decides about people next to the audited ones, compared with them pair by pair.

In each of up to 4,096 rows one number moves by a few ranks of its column, to a value there or between. Groups,
outcomes and all other cells stay. A model that treats the audited rows unlike rows next to them (one that knows the
table, say) shows another disparity there. Values that hold at least 5 % of the rows stay: an atom such as "no capital
gain" has no neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import FairkitError
from fairkit.metrics import ODDS, Rate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Scorer
    from fairkit.results.findings import Finding

    Array = NDArray[np.float64]

ROWS, FEWEST = 4_096, 200
"""At most so many rows are moved; fewer than the second say nothing."""
ATOM = 0.05
"""A value that holds this share of the rows has no neighbours."""
REACH = 0.05
"""How far a number goes: up to this share of its column's distinct values, at least `LEAST` ranks."""
LEAST = 2
DRAWS = 400
"""Draws of the bootstrap over pairs."""
FINITE = 0.9
"""Where fewer of the draws give a number, there is no interval."""
KEY = "nearby"
"""Where a finding has the evidence."""
_SUFFIXES = ("_difference", "_ratio", "_group_min", "_group_max")


def with_nearby(
    findings: Sequence[Finding],
    scorer: Scorer,
    dataset: Dataset,
    metrics: Sequence[type[Metric]],
    confidence: float,
) -> list[Finding]:
    """Add to findings about rates what they are on rows next to the audited ones.

    Only a model's file is asked: answers of a server, of columns or of an object in memory are taken as they are.
    Rows that depend on each other, and rows with weights, are left out: pairs are drawn as if each were a person.
    """
    roles, profile = dataset.roles, dataset.profile
    usable = scorer.task == "binary" and scorer.info.serving and not scorer.info.unseen
    if not usable or roles.weights is not None or profile.clusters is not None:
        return list(findings)
    # the model's own digest: who wrote these neighbours into the file would have other ones
    rng = np.random.default_rng([int(text[:32], 16) for text in (str(scorer.info.sha256), dataset.sha256)])
    cells, groups, favorable = _first_rows(dataset, scorer.columns)
    if len(next(iter(cells.values()), ())) < FEWEST:
        return list(findings)
    sensitive = {part for name in groups for part in name.split("+")}
    changed, moved = neighbours(cells, sensitive, rng)
    if moved.sum() < FEWEST:
        return list(findings)
    try:
        here = scorer.predict({name: values[moved] for name, values in cells.items()}).decision
        there = scorer.predict({name: values[moved] for name, values in changed.items()}).decision
    except FairkitError:
        return list(findings)
    if here is None or there is None:
        return list(findings)
    rates = {cls.name: cls() for cls in metrics if issubclass(cls, Rate)} | {
        cls.alias: cls() for cls in metrics if issubclass(cls, Rate) and cls.alias
    }
    drawn = {
        name: _Pairs(favorable, moved, codes, here >= 0.5, there >= 0.5, rng)
        for name, codes in groups.items()
    }
    return [_with_evidence(finding, drawn, rates, confidence) for finding in findings]


def _first_rows(
    dataset: Dataset, columns: Sequence[str]
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.int64]], NDArray[np.bool_] | None]:
    """Return the table's first rows, their groups and outcomes: the same ones however the table lies in parts."""
    batches, count = [], 0
    for batch in dataset.batches(columns, rows=ROWS):
        batches.append(batch)
        count += len(batch)
        if count >= ROWS:
            break

    def first(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(values)[:ROWS]

    if not batches:
        return {}, {}, None
    cells = [batch.columns(columns) for batch in batches]
    outcomes = [batch.favorable for batch in batches if batch.favorable is not None]
    return (
        {name: first([some[name] for some in cells]) for name in columns},
        {name: first([batch.groups[name] for batch in batches]) for name in batches[0].groups},
        first(outcomes) if outcomes else None,
    )


def neighbours(
    cells: Mapping[str, NDArray[Any]], fixed: set[str], rng: np.random.Generator
) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
    """Move one number of each row to a neighbouring value of its column.

    Parameters
    ----------
    cells
        Columns, each of shape [n].
    fixed
        Columns that stay.
    rng
        Draws column, direction and distance.

    Returns
    -------
    dict, array
        The columns after it, and the rows that moved, shape [n].
    """
    rows = len(next(iter(cells.values())))
    numbers = [name for name, values in cells.items() if values.dtype.kind in "iuf" and name not in fixed]
    choice, targets = np.full((len(numbers), rows), -1.0), {}
    for place, name in enumerate(numbers):
        moved, may = _moved(cells[name], rng)
        targets[name] = moved
        choice[place] = np.where(may, rng.random(rows), -1.0)
    if not numbers:
        return dict(cells), np.zeros(rows, dtype=bool)
    chosen, any_of = choice.argmax(axis=0), choice.max(axis=0) >= 0
    changed = {
        name: np.where((chosen == numbers.index(name)) & any_of, targets[name], values)
        if name in targets
        else values
        for name, values in cells.items()
    }
    return changed, any_of


def _moved(values: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return a neighbour of each value, and which may move: neither missing nor an atom."""
    finite = np.isfinite(values) if values.dtype.kind == "f" else np.ones(len(values), dtype=bool)
    distinct, level, count = np.unique(values[finite], return_inverse=True, return_counts=True)
    free = count < ATOM * len(values)
    distances = rng.integers(1, max(LEAST, int(np.ceil(REACH * len(distinct)))) + 1, len(level))
    steps = distances * rng.choice([-1, 1], len(level))
    to = level + steps
    to = np.where((to < 0) | (to >= len(distinct)), level - steps, to)
    inside = (to >= 0) & (to < len(distinct))
    far = distinct[np.clip(to, 0, len(distinct) - 1)].astype(np.float64)
    near = distinct[np.clip(to - np.sign(to - level), 0, len(distinct) - 1)].astype(np.float64)
    between = near + (far - near) * rng.random(
        len(level)
    )  # a value of its own: a table may know the column's
    if values.dtype.kind != "f" or bool((distinct == np.floor(distinct)).all()):
        between = np.where(np.abs(far - near) > 1, np.round(between), far)
    found, may = values.copy(), np.zeros(len(values), dtype=bool)
    found[finite] = between.astype(values.dtype)
    may[finite] = inside & free[level] & (found[finite] != values[finite])
    return found, may


class _Pairs:
    """Decisions about rows and about rows next to them, by group and outcome; and draws of such tables.

    The table counts rows by group, outcome, decision here and decision there, shape [G, 2, 2, 2]. Rows drawn with
    replacement give a multinomial table.
    """

    def __init__(
        self,
        favorable: NDArray[np.bool_] | None,
        moved: NDArray[np.bool_],
        codes: NDArray[np.int64],
        here: NDArray[np.bool_],
        there: NDArray[np.bool_],
        rng: np.random.Generator,
    ) -> None:
        good = np.zeros(len(moved)) if favorable is None else favorable
        group, grouped = codes[moved], codes[moved] >= 0
        outcome = np.asarray(good, dtype=np.int64)[moved]
        cell = ((group * 2 + outcome) * 2 + here) * 2 + there
        groups = int(codes.max()) + 1
        table = np.bincount(cell[grouped], minlength=8 * groups)
        self.rows = int(table.sum())
        self.flips = int((here != there)[grouped].sum())
        drawn = rng.multinomial(self.rows, table / max(self.rows, 1), DRAWS) if self.rows else table[None]
        tables = np.concatenate([table[None], drawn]).reshape(-1, groups, 2, 2, 2).astype(np.float64)
        self.here, self.there = (tables.sum(axis=axis).reshape(-1, groups, 4) for axis in (4, 3))


def _with_evidence(
    finding: Finding, drawn: Mapping[str, _Pairs], rates: Mapping[str, Rate], confidence: float
) -> Finding:
    pairs = drawn.get(str(finding.sensitive))
    if pairs is None or finding.within or finding.reference is not None or finding.value is None:
        return finding
    with np.errstate(all="ignore"):  # groups without the outcome that a rate is over
        here, there = (disparity(finding.metric, cells, rates) for cells in (pairs.here, pairs.there))
    if here is None or there is None or not np.isfinite([here[0], there[0]]).all():
        return finding
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
    return replace(finding, evidence={**finding.evidence, KEY: evidence})


def disparity(metric: str, cells: Array, rates: Mapping[str, Rate]) -> Array | None:
    """Return a disparity of rates of several tables.

    Parameters
    ----------
    metric
        Such as ``demographic_parity_difference``, ``equalized_odds_ratio``, ``accuracy_group_min``.
    cells
        Confusion cells by table and group, shape [D, G, 4].
    rates
        The rates by name and alias.

    Returns
    -------
    array or None
        Shape [D]; None for what is no disparity of rates.
    """
    if metric in ("equalized_odds_difference", "equalized_odds_ratio"):
        if not set(ODDS) <= set(rates):
            return None
        suffix = metric.removeprefix("equalized_odds")
        both = [_between(rates[name].compute(cells), suffix) for name in ODDS]
        return np.fmax(*both) if suffix == "_difference" else np.fmin(*both)
    for suffix in _SUFFIXES:
        rate = rates.get(metric.removesuffix(suffix))
        if metric.endswith(suffix) and rate is not None:
            return _between(rate.compute(cells), suffix)
    return None


def _between(values: Array, suffix: str) -> Array:
    """Compare groups, the last axis; those without a number do not count."""
    low, high = np.fmin.reduce(values, axis=-1), np.fmax.reduce(values, axis=-1)
    if suffix == "_difference":
        return np.asarray(high - low)
    if suffix == "_ratio":
        return np.asarray(low / high)
    return np.asarray(low if suffix == "_group_min" else high)
