"""Attribution of decisions, rates and scores of any model: random walks from one group's rows to the other's.

A walk takes a row x of the group and a row z of the reference, and changes z into x one player after the other, in an
order drawn anew for every walk (Castro, Gómez & Tejada 2009); each step's change of the prediction is an unbiased
estimate of that player's Shapley value. The steps of a walk add up to f(x) - f(z), whose mean is known without
sampling: each player's steps are corrected by a regression on f(x) and f(z), and then add up to the gap exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.data.hashing import BUCKETS
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.intervals import student, two_sided
from fairkit.models.scorer import Predictions
from fairkit.support.lazy_dataclass import dataclass
from fairkit_dependent import noise_of
from fairkit_onnx.read.scorer import OnnxScorer
from fairkit_onnx.structure.linear import read_linear
from fairkit_onnx.structure.trees import read_class_score, read_trees

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.models.scorer import Scorer
    from fairkit_onnx.structure.encoded import Encoded
    from fairkit_onnx.structure.linear import LinearModel
    from fairkit_onnx.structure.trees import TreeModel

    Array = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Columns = Mapping[str, NDArray[Any]]


ENOUGH = 0.3
"""Sampling stops when its part of the variance is at most this."""
ASKED = 32_768
"""Rows that the model is asked about at a time."""
FIRST = 2_000
"""Walks before the variance is estimated for the first time."""


class Asks(Protocol):
    """Rows of two groups, and a model that is asked about rows which take some players from either."""

    def mixed(self, x: Ints, z: Ints, from_x: NDArray[np.bool_]) -> Array:
        """Return f of hybrid rows, shape [k]: of row x where `from_x`, shape [k, P], else of row z."""
        ...

    def differ(self, x: Ints, z: Ints) -> NDArray[np.bool_]:
        """Tell in which players two rows differ, shape [k, P]."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Walks:
    """What walks say."""

    values: Array  # by player, shape [P]
    variance: Array  # of both groups' rows and of the sampling
    degrees: Array  # its degrees of freedom
    sampling: float  # the sampling's share of the variance, over all players
    walks: int  # how many walks were taken
    calls: int  # how many rows the model was asked about


def walk(
    asks: Asks,
    f: tuple[Array, Array],
    weights: tuple[Array | None, Array | None],
    clusters: tuple[Array, Array] | None,
    players: int,
    *,
    calls: int,
    rng: np.random.Generator,
) -> Walks:
    """Divide the difference of two groups' means among players."""
    sizes = len(f[0]), len(f[1])
    taken, steps, used = [], [], 0
    size = FIRST
    queue = _Deck(sizes[0], rng), _Deck(sizes[1], rng)
    while True:
        x, z = queue[0].draw(size), queue[1].draw(size)
        found, asked = _steps(asks, x, z, f, players, rng)
        taken.append((x, z))
        steps.append(found)
        used += asked
        result = _estimate(np.concatenate(steps), taken, f, weights, clusters, used)
        if result.sampling <= ENOUGH or used >= calls or asked == 0:
            return result
        per_walk = max(used / result.walks, 1e-9)
        # the sampling's variance is s/walks: as many as would be enough, by what is known now
        odds = result.sampling / (1 - result.sampling) if result.sampling < 1 else np.inf
        wanted = min(result.walks * odds * (1 - ENOUGH) / ENOUGH, 8.0 * result.walks)
        size = int(min(max(wanted - result.walks, FIRST), (calls - used) / per_walk + 1))


class _Deck:
    """Rows in random order, each used equally often."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self._size, self._rng = size, rng
        self._left = np.empty(0, dtype=np.int64)

    def draw(self, count: int) -> Ints:
        parts = [self._left]
        while sum(map(len, parts)) < count:
            parts.append(self._rng.permutation(self._size))
        both = np.concatenate(parts)
        self._left = both[count:]
        return both[:count]


def _steps(
    asks: Asks, x: Ints, z: Ints, f: tuple[Array, Array], players: int, rng: np.random.Generator
) -> tuple[Array, int]:
    """Walk from each z to its x; return every player's step, shape [k, P], and how often the model was asked."""
    walks = len(x)
    differ = asks.differ(x, z)
    order = rng.permuted(np.broadcast_to(np.arange(players), (walks, players)), axis=1)
    rank = np.argsort(order, axis=1)
    moves = np.take_along_axis(differ, order, axis=1)
    last = players - 1 - np.argmax(moves[:, ::-1], axis=1)
    ask = moves.copy()
    ask[np.arange(walks), last] = False  # after the last change the row is x
    row, step = np.nonzero(ask)
    values = np.empty(len(row))
    for start in range(0, len(row), ASKED):
        some = slice(start, start + ASKED)
        from_x = rank[row[some]] <= step[some, None]
        values[some] = asks.mixed(x[row[some]], z[row[some]], from_x)
    path = np.full((walks, players + 1), np.nan)
    path[:, 0] = f[1][z]
    path[row, step + 1] = values
    moved = moves.any(axis=1)
    path[moved, last[moved] + 1] = f[0][x][moved]
    known_path = np.where(np.isnan(path), 0, np.arange(players + 1))
    # a player in whom both rows agree changes nothing: carry the last value forward
    path = np.take_along_axis(path, np.maximum.accumulate(known_path, axis=1), axis=1)
    return np.take_along_axis(np.diff(path, axis=1), rank, axis=1), len(row)


def _estimate(
    steps: Array,
    taken: Sequence[tuple[Ints, Ints]],
    f: tuple[Array, Array],
    weights: tuple[Array | None, Array | None],
    clusters: tuple[Array, Array] | None,
    calls: int,
) -> Walks:
    """Return the corrected means of steps, and their variance by rows of both groups (Cameron, Gelbach & Miller)."""
    x, z = (np.concatenate([pair[side] for pair in taken]) for side in (0, 1))
    row_shares = shares(weights[0], len(f[0])), shares(weights[1], len(f[1]))
    mass = row_shares[0][x] * row_shares[1][z]
    mass = mass / mass.sum()
    means = float(row_shares[0] @ f[0]), float(row_shares[1] @ f[1])
    design = np.stack([np.ones(len(x)), f[0][x] - means[0], f[1][z] - means[1]], axis=1)
    root = np.sqrt(mass)[:, None]
    # control variates: f(x) and f(z), whose means over all rows are known
    fit, *_ = np.linalg.lstsq(design * root, steps * root, rcond=None)
    # rounding, and predictions of which no value but one was drawn: then the fit is not unique
    values = fit[0] + (means[0] - means[1] - fit[0].sum()) / steps.shape[1]
    left = mass[:, None] * (steps - design @ fit)
    count = steps.shape[1]
    pulls, sampled = [], []
    for side, rows in ((0, x), (1, z)):
        sums = np.stack([np.bincount(rows, left[:, p], len(f[side])) for p in range(count)], axis=1)
        sampled.append((sums**2).sum(axis=0))
        pulls.append(sums + np.outer(row_shares[side] * (f[side] - means[side]), fit[1 + side]))
    pair = (left**2).sum(axis=0)
    parts = [(pull**2).sum(axis=0) for pull in pulls]
    n, m, walks = (effective(weights[0], len(f[0])), effective(weights[1], len(f[1])), float(1 / (mass**2).sum()))
    noise = _sampling(sampled, pair, n, m, walks)
    with np.errstate(all="ignore"):
        degrees = (parts[0] + parts[1]) ** 2 / (parts[0] ** 2 / max(n - 1, 1) + parts[1] ** 2 / max(m - 1, 1))
    degrees = np.where(np.isfinite(degrees), degrees, max(min(n, m) - 1, 1))
    if clusters is not None:
        every = np.concatenate(clusters)
        both, degrees = clustered(by_cluster(np.concatenate(pulls), every), every)
        parts = [clustered(by_cluster(pull, c), c)[0] for pull, c in zip(pulls, clusters, strict=True)]
        # two-way clustering: clusters of x plus clusters of z, less the pairs
        total = np.fmax.reduce([both - pair, *parts])
    else:
        total = np.maximum.reduce([parts[0] + parts[1] - pair, *parts])
    share = float(noise.sum() / total.sum()) if total.sum() > 0 else 0.0
    return Walks(values, total, degrees, min(share, 1.0), len(x), calls)


def _sampling(parts: Sequence[Array], pair: Array, n: float, m: float, walks: float) -> Array:
    """Return the variance that more walks would take away, shape [P].

    With components S_x, S_z, S_e of the variance that the regression leaves, V_pair = (S_x + S_z + S_e)/B,
    V_x = S_x/n + (S_z + S_e)/B and V_z = S_z/m + (S_x + S_e)/B. Of rows that are used once at most, all of the pairs'
    variance is sampling.
    """
    noises = []
    for part, size in zip(parts, (n, m), strict=True):
        gap = 1 / size - 1 / walks
        noises.append(np.maximum((part - pair) / gap, 0.0) if gap > 1e-12 else np.zeros_like(pair))
    return np.asarray(np.maximum(pair - (noises[0] + noises[1]) / walks, 0.0))


# The model on hybrid rows: through its own encoders, or, where these are understood, on features made once.


def sources_of(model: Encoded, columns: Columns) -> list[str | None]:
    """Return the raw column behind each feature of a model; None: a constant of these rows."""
    finite = all(np.isfinite(values).all() for values in columns.values() if values.dtype.kind == "f")
    return model.sources({name: values[:3] for name, values in columns.items()}, finite=finite).source


class OneClass:
    """A model of several classes as one of two: a class, and all others."""

    task: Task = "binary"
    classes: tuple[Any, ...] = ()

    def __init__(self, scorer: Scorer, index: int) -> None:
        self.scorer, self.index = scorer, index
        self.info, self.columns = scorer.info, scorer.columns
        self.recorded = bool(getattr(scorer, "recorded", False))

    def predict(self, columns: Columns) -> Predictions:
        """Return the class's probabilities, and whether it is the one that is predicted."""
        return self.of(self.scorer.predict(columns))

    def of(self, predictions: Predictions) -> Predictions:
        """Return what predictions of all classes say about this one."""
        chances, code = predictions.probabilities, predictions.predicted
        return Predictions(
            score=None if chances is None else chances[:, self.index],
            decision=None if code is None else (code == self.index).astype(np.float64),
        )


def structure_of(scorer: Scorer, rows: Columns) -> TreeModel | LinearModel | None:
    """Return the trees or the linear sum behind a score; None where the model is no file, or has neither."""
    if isinstance(scorer, OneClass):
        inner = scorer.scorer
        return read_class_score(inner, scorer.index, rows) if isinstance(inner, OnnxScorer) else None
    return (read_trees(scorer) or read_linear(scorer)) if isinstance(scorer, OnnxScorer) else None


def values_of(predictions: Predictions, of: str) -> Array:
    """Return decisions, or scores."""
    return np.asarray(predictions.decision if of == "decision" else predictions.score, dtype=np.float64)


class RowAsks:
    """Two groups' raw rows."""

    def __init__(self, scorer: Scorer, of: str, columns: Columns, players: Sequence[Sequence[str]]) -> None:
        self._scorer, self._of = scorer, of
        self._columns, self._players = columns, players
        self._owner = {name: index for index, names in enumerate(players) for name in names}
        self._codes = {name: _codes(values) for name, values in columns.items()}

    def differ(self, x: Ints, z: Ints) -> NDArray[np.bool_]:
        """See `fairkit_why.permutation_walks.Asks.differ`."""
        out = np.zeros((len(x), len(self._players)), dtype=np.bool_)
        for name, codes in self._codes.items():
            out[:, self._owner[name]] |= codes[x] != codes[z]
        return out

    def mixed(self, x: Ints, z: Ints, from_x: NDArray[np.bool_]) -> Array:
        """See `fairkit_why.permutation_walks.Asks.mixed`."""
        rows = {name: values[np.where(from_x[:, self._owner[name]], x, z)] for name, values in self._columns.items()}
        return values_of(self._scorer.predict(rows), self._of)


class FeatureAsks(RowAsks):
    """Rows whose features were made once: what follows them is run on hybrids of the features."""

    def __init__(self, model: Encoded, *rest: Any) -> None:
        super().__init__(*rest)
        self._of_class = self._scorer.of if isinstance(self._scorer, OneClass) else None
        encode = model.encoding(doubles=True)
        first = next(iter(self._columns.values()))
        parts = [
            encode({name: values[start : start + 65_536] for name, values in self._columns.items()})
            for start in range(0, len(first), 65_536)
        ]
        self._features = np.concatenate(parts)
        owner = [-1 if name is None else self._owner[name] for name in sources_of(model, self._columns)]
        self._feature_owner = np.array(owner)[: self._features.shape[1]]
        self._reading = model.scorer.reading
        self._matrix = model.matrix
        self._file = model.rest(self._features)

    def mixed(self, x: Ints, z: Ints, from_x: NDArray[np.bool_]) -> Array:
        """See `fairkit_why.permutation_walks.Asks.mixed`."""
        rows = np.where(from_x[:, self._feature_owner], self._features[x], self._features[z])
        said = self._reading.read(self._file.run({self._matrix: rows}, self._reading.wanted))
        return values_of(said if self._of_class is None else self._of_class(said), self._of)


def asks_of(scorer: Scorer, of: str, columns: Columns, players: Sequence[Sequence[str]], predictions: Array) -> RowAsks:
    """Return the fastest way to ask a model about hybrid rows."""
    arguments = (scorer, of, columns, players)
    try:
        model = structure_of(scorer, columns)
        if model is not None and not any(feed.input.name == model.matrix for feed in model.scorer.feeds):
            asks = FeatureAsks(model, *arguments)
            few = np.arange(min(len(predictions), 1_000))
            if np.array_equal(asks.mixed(few, few, np.ones((len(few), len(players)), dtype=bool)), predictions[few]):
                return asks
    except (ModelError, ParameterError):
        pass  # encoders that are not understood, or decisions that are drawn: the model itself is asked
    rows = RowAsks(*arguments)
    few = np.arange(0, len(predictions), max(len(predictions) // 500, 1))
    again = rows.mixed(few, few, np.ones((len(few), len(players)), dtype=bool))
    if np.mean(np.abs(again - predictions[few]) > 1e-4) > 0.01:  # rounding may turn a decision
        raise ModelError(
            f"{scorer.info.name} gives rows other predictions when they are asked again among other rows: what it says "
            "about a person depends on the batch, and nothing can be divided among that person's columns"
        )
    return rows


def _codes(values: NDArray[Any]) -> Ints:
    """Return a number for each value, equal where values are; all missing ones are equal."""
    if values.dtype.kind == "O":
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(value, len(numbers)) for value in values.tolist()], dtype=np.int64)
    return np.unique(values, return_inverse=True)[1].reshape(-1)


# Intervals of attributions: the rows of both groups, rows that nobody has seen, and the sampling.


@dataclass(frozen=True, slots=True)
class Noise:
    """How sure numbers are."""

    variance: Array  # of each number, shape [P]
    degrees: Array  # the variance's degrees of freedom, shape [P]
    reach: Array  # how far one row could pull each number, shape [P]; 0: no row that was seen pulls it at all
    rows: tuple[float, float]  # of both groups, or their clusters (effective ones under weights)

    def half_width(self, confidence: float) -> Array:
        """Return the half widths of intervals, shape [P].

        ``h = (t⁴ V² + u⁴)^¼`` with ``u = reach √(u_a² + u_b²)``, ``u_g = 1 - (α/2)^(1/n_g)``: a share u_g of a group
        may differ from all rows that were seen, as in the limits of shares where none or all were counted.
        """
        z = two_sided(confidence)
        spread = student(z, self.degrees + 1) * np.sqrt(np.maximum(self.variance, 0.0))
        unseen = [1 - ((1 - confidence) / 2) ** (1 / max(n, 1.0)) for n in self.rows]
        return np.asarray((spread**4 + (self.reach * np.hypot(*unseen)) ** 4) ** 0.25)

    def around(self, value: float, most: float = np.inf) -> Callable[[float], tuple[float, float]]:
        """Return the interval of the first number, around `value` and within ± `most`, as a function of confidence."""

        def at(confidence: float) -> tuple[float, float]:
            half = float(self.half_width(confidence)[0])
            return max(value - half, -most), min(value + half, most)

        return at


def effective(weights: Array | None, rows: int) -> float:
    """Return the number of equally weighted rows that would be as sure."""
    return float(rows) if weights is None else float(weights.sum() ** 2 / (weights**2).sum())


def shares(weights: Array | None, rows: int) -> Array:
    """Return weights that add up to 1, shape [n]."""
    if weights is None:
        return np.full(rows, 1.0 / rows)
    if not weights.sum() > 0:
        raise DataError("why: every row of a group has the weight 0, so that there is no gap to explain")
    return np.asarray(weights / weights.sum())


def by_cluster(values: NDArray[Any], clusters: Array) -> Array:
    """Return the sums of rows' values, shape [n, P], by bucket of clusters, shape [P, buckets]."""
    out = np.zeros((values.shape[1], BUCKETS))
    for index, column in enumerate(values.T):
        out[index] = np.bincount(clusters.astype(np.int64), column, BUCKETS)
    return out


def clustered(sums: Array, clusters: Array) -> tuple[Array, Array]:
    """Return the variance and the degrees of freedom of numbers that buckets of clusters pull, shapes [P]."""
    there = np.broadcast_to(np.bincount(clusters.astype(np.int64), minlength=BUCKETS) > 0, sums.shape)
    noise = noise_of(sums, there)
    return noise.variance, noise.degrees


def two_samples(
    rows: tuple[Array, Array],
    weights: tuple[Array | None, Array | None],
    sizes: tuple[float, float],
    clusters: tuple[Array, Array] | None,
) -> tuple[Array, Array]:
    """Return the variance of a sum of two groups' means, and its degrees of freedom (Welch), shapes [P]."""
    centred, parts, freedom = [], [], []
    for mine, w, size in zip(rows, weights, sizes, strict=True):
        part = shares(w, len(mine))
        away = mine - part @ mine
        squared = part**2 @ away**2 / (part**2).sum()
        parts.append(squared / max(size - 1.0, 1.0))
        freedom.append(max(size - 1.0, 1.0))
        centred.append(part[:, None] * away)
    if clusters is not None:
        return clustered(by_cluster(np.concatenate(centred), np.concatenate(clusters)), np.concatenate(clusters))
    total = parts[0] + parts[1]
    with np.errstate(all="ignore"):
        # Welch and Satterthwaite: (v₁ + v₂)² / (v₁² / ν₁ + v₂² / ν₂)
        degrees = total**2 / (parts[0] ** 2 / freedom[0] + parts[1] ** 2 / freedom[1])
    return total, np.where(np.isfinite(degrees), degrees, min(freedom))
