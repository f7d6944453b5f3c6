"""Learners of the fair metric: from sensitive columns, comparable people, labelled pairs, or given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.timings import phase
from fairkit_similarity.encode import Columns, Design, Encoder, Floats, distinct
from fairkit_similarity.metric import FairMetric
from fairkit_similarity.networks import logistic_directions, ridge_direction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_similarity.search.problem import Lines
    from fairkit_similarity.search.tree import Ints
    from fairkit_similarity.transport import Solution


@phase("learn metric")
def subspace(
    columns: Columns, sensitive: Sequence[str], *, strength: float = 0.1, directions: Sequence[str] | None = None
) -> FairMetric:
    """Ignore the sensitive columns, and the directions that predict them.

    Each column of `directions` gives one direction from a linear model that predicts it from the features of all
    other columns: logistic regression for two values, one against the rest for more categories, ridge
    regression for a number. The sensitive columns' own features are ignored too (Yurochkin, Bower & Sun
    2020, appendix B.1).

    Parameters
    ----------
    columns
        Raw columns by name, each of shape (n,).
    sensitive
        Names among them.
    strength
        l2 penalty of the logistic regressions, weighed against the mean loss as in the papers: with n rows it counts
        n times as much against the sum. Small ones leave directions to the rarest categories: with `.1 / n` on Adult
        a linear model tells the sexes apart by z with an AUC of .93, and the directions of two halves of the data
        differ; with `.1` it is .65, and they agree.
    directions
        Those sensitive columns whose predictors are ignored too; None: all. BuDRO's appendix C takes the predictor of
        sex only on Adult, of race only on COMPAS.

    Raises
    ------
    DataError
        A sensitive column is constant or unknown, or nothing is left of the features.
    ParameterError
        `directions` names a column that is not sensitive.
    """
    if not sensitive:
        raise DataError("a subspace metric needs at least one sensitive column; name one, or use metric=euclidean")
    encoder = Encoder.learn(columns)
    own = encoder.places(sensitive)
    ignored = [np.eye(len(encoder.features))[own]]
    names = list(dict.fromkeys(sensitive))
    predicted = predicted_columns(names, directions)
    ignored += [_predict(name, encoder, columns, strength) for name in predicted]
    description: dict[str, Any] = {"kind": "subspace", "sensitive": names, "strength": strength, "loss": "mean"}
    if predicted != names:
        description["directions"] = predicted
    return FairMetric.projecting(encoder, np.concatenate(ignored), description)


def predicted_columns(sensitive: Sequence[str], directions: Sequence[str] | None) -> list[str]:
    """Return the sensitive columns whose predictors a subspace ignores, in the order of `sensitive`.

    Raises
    ------
    ParameterError
        One of `directions` is not sensitive.
    """
    if directions is None:
        return list(sensitive)
    for name in directions:
        if name not in sensitive:
            raise ParameterError(
                f"the parameter `directions={name}`: {name!r} is not one of the sensitive columns, and only those are "
                f"predicted. {did_you_mean(name, sensitive, what='sensitive columns')}"
            )
    return [name for name in sensitive if name in directions]


def face(columns: Columns, groups: NDArray[Any], *, rank: int, standardise: bool = True) -> FairMetric:
    """Ignore the directions in which comparable people differ most (FACE, Mukherjee et al. 2020).

    Parameters
    ----------
    columns
        Raw columns by name, each of shape (n,).
    groups
        Shape (n,): rows with one value are people who should be treated alike.
    rank
        How many leading right singular vectors of the group-centred features to ignore.
    standardise
        Whether numbers are standardised first; False for columns of one scale, such as an embedding's.

    Raises
    ------
    DataError
        No group has two different rows, or `rank` is out of range.
    """
    encoder = Encoder.learn(columns, standardise=standardise)
    features = encoder.encode(columns)
    _, code = np.unique(groups, return_inverse=True)
    if code.shape != (len(features),):
        raise DataError(f"groups of shape {np.shape(groups)} do not fit {len(features)} rows")
    count = np.bincount(code)
    means = np.stack([np.bincount(code, weights=column) for column in features.T], axis=1) / count[:, None]
    value, axes = np.linalg.eigh((features - means[code]).T @ (features - means[code]))
    if value[-1] <= 1e-12 * len(features):
        raise DataError("no group holds two people who differ: FACE needs groups of comparable, not identical, rows")
    if not 1 <= rank < len(value):
        raise DataError(f"rank={rank} is out of range: 1 to {len(value) - 1} directions can be ignored")
    return FairMetric.projecting(encoder, axes[:, ::-1][:, :rank].T, {"kind": "face", "rank": rank})


def explore(
    columns: Columns, pairs: NDArray[np.int64], comparable: NDArray[np.bool_], *, steps: int = 500, rate: float = 1.0
) -> FairMetric:
    """Fit Σ to labelled pairs by maximum likelihood (EXPLORE, Mukherjee et al. 2020).

    A pair is comparable with probability 2 / (1 + exp(d²)): certainly at d = 0. Projected gradient ascent over Σ ⪰ 0,
    with a step that halves whenever it would lower the likelihood.

    Parameters
    ----------
    columns
        Raw columns by name, each of shape (n,).
    pairs
        Shape (m, 2): row numbers.
    comparable
        Shape (m,): whether the two should be treated alike.
    steps, rate
        At most so many steps, the first of this size.

    Raises
    ------
    DataError
        The pairs do not fit the rows, or are all of one kind.
    """
    encoder = Encoder.learn(columns)
    features = encoder.encode(columns)
    pairs, same = np.asarray(pairs, dtype=np.int64), np.asarray(comparable, dtype=bool)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or same.shape != (len(pairs),):
        raise DataError(f"pairs of shape {pairs.shape} and labels of shape {same.shape} do not fit together")
    if len(pairs) and not (pairs.min() >= 0 and pairs.max() < len(features)):
        raise DataError(f"a pair names row {pairs.max()}; the data has {len(features)} rows, numbered from 0")
    if same.all() or not same.any():
        raise DataError("EXPLORE needs pairs of both kinds: comparable and not comparable")
    gap = features[pairs[:, 0]] - features[pairs[:, 1]]
    sigma = np.eye(features.shape[1]) / features.shape[1]
    score = _pair_likelihood(sigma, gap, same)
    for _ in range(steps):
        pull = _pair_slope(sigma, gap, same)
        trial = _positive(sigma + rate * (gap * pull[:, None]).T @ gap / len(gap))
        better = _pair_likelihood(trial, gap, same)
        if better <= score:
            rate /= 2.0
            if rate < 1e-9:
                break
            continue
        gained, sigma, score, rate = better - score, trial, better, rate * 1.5
        if gained < 1e-10:
            break
    return FairMetric.of_sigma(encoder, sigma, {"kind": "explore", "pairs": len(pairs)})


def given(columns: Columns, *, directions: Any = None, sigma: Any = None) -> FairMetric:
    """Use directions to ignore, or a matrix Σ, over the encoded features.

    Parameters
    ----------
    columns
        Raw columns by name; `Encoder.learn(columns).features` names the features in order.
    directions
        Shape (r, features): the rows of A.
    sigma
        Shape (features, features).

    Raises
    ------
    DataError
        Neither or both are given, or one does not fit.
    """
    encoder = Encoder.learn(columns)
    if (directions is None) == (sigma is None):
        raise DataError("give either directions to ignore or sigma")
    if sigma is not None:
        return FairMetric.of_sigma(encoder, np.asarray(sigma, dtype=np.float64), {"kind": "given"})
    rows = np.atleast_2d(np.asarray(directions, dtype=np.float64))
    if rows.shape[1] != len(encoder.features) or not np.isfinite(rows).all():
        raise DataError(
            f"directions of shape {rows.shape} do not fit {len(encoder.features)} features, or are not finite"
        )
    return FairMetric.projecting(encoder, rows, {"kind": "given"})


def euclidean(columns: Columns) -> FairMetric:
    """Use the plain squared distance in numeric columns, taken as they are, unscaled.

    Raises
    ------
    DataError
        A column holds text or misses values.
    """
    for name, values in columns.items():
        kind = np.asarray(values).dtype.kind
        if kind in "OUS":
            raise DataError(f"metric=euclidean takes numbers as they are; column {name!r} holds text")
        if kind == "f" and np.isnan(values).any():
            raise DataError(f"metric=euclidean: column {name!r} misses {int(np.isnan(values).sum())} value(s)")
    encoder = Encoder.learn(columns, standardise=False)
    return FairMetric(encoder=encoder, matrix=np.eye(len(encoder.features)), description={"kind": "euclidean"})


def _predict(name: str, encoder: Encoder, columns: Columns, strength: float) -> Floats:
    """Return the directions that predict one sensitive column from the others' features."""
    encoding = next(column for column in encoder.columns if column.name == name)
    raw = np.asarray(columns[name])
    if encoding.kind == "category":
        texts, inverse = distinct(raw)
        values, merged = np.unique(texts, return_inverse=True)
        code = merged[inverse]
    else:
        values, code = np.unique(raw.astype(np.float64), return_inverse=True)
    if len(values) < 2:
        raise DataError(
            f"the sensitive column {name!r} has one value only, {values[0]!s}: nothing can predict it, and no metric "
            "can be learned from it. Leave it out of the sensitive columns"
        )
    design = Design(encoder, columns, name)
    if encoding.kind == "number" and len(values) > 2:
        rows = ridge_direction(design, encoding.encode(raw)[:, 0])[None, :]
    else:
        targets = [code == k for k in range(len(values))] if len(values) > 2 else [code == 1]
        rows = logistic_directions(design, np.array(targets), strength * len(raw))
    result = np.zeros((len(rows), len(encoder.features)))
    result[:, design.kept] = rows
    return result


def _pair_likelihood(sigma: Floats, gap: Floats, same: NDArray[np.bool_]) -> float:
    """Mean log likelihood: log 2 - log(1 + e^s) for a comparable pair, log tanh(s / 2) for another."""
    square = np.maximum(np.einsum("ij,jk,ik->i", gap, sigma, gap), 1e-12)
    likelihood = np.log(2.0) - np.logaddexp(0.0, square)
    return float(np.where(same, likelihood, np.log(np.tanh(square / 2.0))).mean())


def _pair_slope(sigma: Floats, gap: Floats, same: NDArray[np.bool_]) -> Floats:
    """The derivative of each pair's log likelihood in s = d²: -σ(s), or 1 / sinh(s)."""
    square = np.maximum(np.einsum("ij,jk,ik->i", gap, sigma, gap), 1e-12)
    slope: Floats = np.where(same, -1.0 / (1.0 + np.exp(-square)), 1.0 / np.sinh(np.minimum(square, 300.0)))
    return slope


def _positive(sigma: Floats) -> Floats:
    """Project on the positive semidefinite matrices."""
    value, axes = np.linalg.eigh((sigma + sigma.T) / 2.0)
    nearest: Floats = (axes * np.maximum(value, 0.0)) @ axes.T
    return nearest


# The transport plan of a solution: which row goes where, with how much mass, how far, and for what gain.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """The nonzero entries of Π: at most two for each row that was asked, two for one row only."""

    source: Ints  # the row j that moves, shape (e,)
    target: Ints  # the row i that it moves to; j itself where it stays
    mass: Floats  # shape (e,): Π_ij > 0; sums over each source to the row's weight, in all to 1
    distance: Floats  # shape (e,): C_ij, a squared distance
    gain: Floats  # shape (e,): R_ij - R_jj ≥ 0

    @property
    def cost(self) -> float:
        """<C, Π>, never above ε beyond rounding."""
        return float(self.mass @ self.distance)

    @property
    def moved(self) -> float:
        """The share of mass, in [0, 1], that goes to another row for a gain."""
        return float(self.mass[(self.source != self.target) & (self.gain > 0.0)].sum())

    def top(self, count: int) -> Ints:
        """Return the entries of the largest gains, at most one for each pair of rows.

        Ties go to the smaller distance, then to the smaller source.
        """
        entries = np.flatnonzero((self.source != self.target) & (self.gain > 0.0))
        order = np.lexsort((self.source[entries], self.distance[entries], -self.gain[entries]))
        return entries[order][:count]

    def label_weights(self, labels: Ints, rows: int, classes: int) -> Floats:
        """Sum the mass that arrives at each row under each label: Σ_j Π_ij 1[y_j = k]."""
        flat = self.target * classes + labels[self.source]
        summed: Floats = np.bincount(flat, weights=self.mass, minlength=rows * classes).astype(np.float64)
        return summed.reshape(rows, classes)


def transport_plan(solution: Solution) -> Plan:
    """Read the plan off a solution: feasible, with the value `lower_bound`.

    <C, Π> = ε exactly, save where every row has the largest reward at less.
    """
    problem = solution.problem
    share = solution.share[problem.query]
    parts = [_entries(solution, solution.bracket.high, 1.0 - share), _entries(solution, solution.bracket.low, share)]
    source, target, mass, distance, gain = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Plan(source=source, target=target, mass=mass, distance=distance, gain=gain)


def _entries(solution: Solution, lines: Lines, share: Floats) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    problem = solution.problem
    some = np.flatnonzero((share > 0.0) & (problem.mass > 0.0))
    query = problem.query[some]
    answer, reward, cost = lines.answer[query], lines.reward[query], lines.cost[query]
    row = problem.row_of(problem.label[query], answer)
    source = problem.asked[some]
    gain = reward - problem.own[some]
    # A row that is as good as the answer, at no distance, stays: equal rows are not moved among each other.
    row = np.where((cost == 0.0) & (gain <= 0.0), source, row)
    return source, row, problem.mass[some] * share[some], cost, gain
