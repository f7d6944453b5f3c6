"""Boosting on the worst case: XGBoost's rounds, each on the rows as the adversary weighs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit.progress import Progress, no_progress
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_similarity.outside import FEWEST, spread
from fairkit_similarity.transport import Support

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_budro.plans import Plan, WorstCase
    from fairkit_similarity.search.tree import Floats, Ints


Watch = Callable[[Any, int], int | None]
"""(booster, trees so far) -> the number of trees to keep, or None to go on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoostingRows:
    """Encoded rows."""

    matrix: NDArray[np.float32]  # shape (n, d), float32
    labels: Ints  # shape (n,): 0 ... K - 1
    mass: Floats  # shape (n,): weights of sum 1
    factors: Floats  # shape (K,): what each class weighs in the trees; the adversary's losses are not weighted by it

    @property
    def classes(self) -> int:
        """K."""
        return len(self.factors)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostingSettings:
    """How to train."""

    rounds: int  # trees after the first one (of every class), which is plain boosting
    params: Mapping[str, Any]  # XGBoost's parameters, on the scale of weights that sum to n
    first: Mapping[str, Any] = field(default_factory=dict)  # what is different in the first round


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moment:
    """One round as the adversary saw it, before its tree."""

    value: float  # those of the worst case; see `WorstCase`
    loss: float  # mean loss without the adversary; `value` less this is the performance gap on the training rows
    cost: float  # those of the worst case; see `WorstCase`
    eta: float
    searched: str
    shortfall: float | None

    @classmethod
    def of(cls, worst: WorstCase, loss: float) -> Moment:
        """Keep what is worth telling."""
        return cls(
            value=worst.value,
            loss=loss,
            cost=worst.cost,
            eta=worst.eta,
            searched=worst.searched,
            shortfall=worst.shortfall,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """A booster whose trees add to 0, and its path: one moment for every round but the first."""

    booster: Any
    path: list[Moment]


def train(
    rows: BoostingRows,
    plan: Plan,
    settings: BoostingSettings,
    *,
    watch: Watch | None = None,
    progress: Progress = no_progress,
) -> Trained:
    """Boost (BuDRO Algorithm 1): one plain round, then rounds on the worst case of the scores before them.

    The two weighted copies of the data in the paper's algorithm are not made: a tree gets, for n rows, the sums over
    the labels of gradients and hessians, Σ_k w(i, k) ℓ'(f_i, k). Weights sum to n there, so that ``lambda`` and
    ``min_child_weight`` mean what they mean in XGBoost.
    """
    import xgboost

    if (rows.matrix == rows.matrix[:1]).all():
        raise DataError(f"all {rows.matrix.shape[1]} features are constant in the training rows; nothing to learn")
    state = _State(rows, plan, settings, progress)
    data = xgboost.DMatrix(rows.matrix, label=rows.labels)
    params = dict(settings.params)
    booster = xgboost.Booster(params | dict(settings.first), [data])
    for number in range(settings.rounds + 1):
        if number == 1 and settings.first:
            booster.set_param({name: params[name] for name in settings.first if name in params})
        booster.update(data, number, fobj=state.objective)
        watched = None if watch is None else watch(booster, number + 1)
        if watched is not None:
            return Trained(booster=booster[:watched], path=state.path[: max(watched - 1, 0)])
    return Trained(booster=booster, path=state.path)


class _State:
    """What the objective carries from round to round."""

    def __init__(self, rows: BoostingRows, plan: Plan, settings: BoostingSettings, progress: Progress) -> None:
        self.rows, self.plan, self.settings, self.progress = rows, plan, settings, progress
        self.path: list[Moment] = []
        self.calls = 0

    def objective(self, margins: Any, _: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return for XGBoost the gradient at the margins: of the data in the first round, then of the worst case."""
        rows = self.rows
        scores = np.asarray(margins, dtype=np.float64)
        n = len(rows.labels)
        if self.calls == 0:
            weights = np.zeros((n, rows.classes))
            weights[np.arange(n), rows.labels] = rows.mass
        else:
            weights = self._worst(scores)
        self.calls += 1
        return derivatives(scores, weights * (rows.factors * n))

    def _worst(self, scores: Floats) -> Floats:
        values = class_losses(scores)
        worst = self.plan(values)
        loss = float(self.rows.mass @ values[self.rows.labels, np.arange(len(self.rows.labels))])
        self.path.append(Moment.of(worst, loss))
        self.progress(
            "training rounds",
            self.calls,
            self.settings.rounds,
            eta=worst.eta,
            inner_maximum=worst.value,
            transport_cost=worst.cost,
            gap=worst.value - loss,
        )
        return worst.weights


# The logistic loss of margins, and its derivatives under label weights.


def class_losses(margins: Floats) -> Floats:
    """Return every row's loss under each label, ℓ(f, k) = -log p_k(f)."""
    if margins.ndim == 1:
        return np.stack([np.logaddexp(0.0, margins), np.logaddexp(0.0, -margins)])
    top = margins.max(axis=1, keepdims=True)
    total = top + np.log(np.exp(margins - top).sum(axis=1, keepdims=True))
    return np.ascontiguousarray((total - margins).T)


def derivatives(margins: Floats, weights: Floats) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return gradient and hessian of Σ_ik w(i, k) ℓ(f_i, k) in the margins (BuDRO eq. 2.6)."""
    mass = weights.sum(axis=1)
    if margins.ndim == 1:
        chance = 0.5 * (1.0 + np.tanh(0.5 * margins))
        gradient = mass * chance - weights[:, 1]
        hessian = mass * chance * (1.0 - chance)
    else:
        chance = np.exp(margins - margins.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        gradient = mass[:, None] * chance - weights
        hessian = 2.0 * mass[:, None] * chance * (1.0 - chance)
    return gradient.astype(np.float32), hessian.astype(np.float32)


# Training up to a certified gap: how unfair has the model become on validation rows?


STEP = 5
"""Rounds between two looks; once the target is passed the rounds since the last look are looked at, newest first."""

CONFIDENCE = 0.95


@dataclass(kw_only=True, eq=False)
class GapWatch:
    """Certifies the gap of every few rounds on validation rows, and says when the target is passed.

    A model that knows nothing has no gap; it grows as the trees learn to tell people apart.
    """

    matrix: NDArray[np.float32]  # the validation rows, encoded
    z: Floats  # under the fair metric
    labels: Ints  # their labels
    weights: Floats  # their weights
    epsilon: float  # the budget
    target: float  # the largest upper confidence bound (95 %, one-sided) that is accepted
    seed: int  # splits the rows in halves for the bound
    bounds: dict[int, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        effective = self.weights.sum() ** 2 / (self.weights**2).sum()
        if effective < FEWEST:
            raise DataError(
                f"budro: {effective:.0f} effective validation rows are too few to certify a gap ({FEWEST} are needed); "
                "give more rows, or a larger validation_share"
            )
        self._support = Support(self.z)
        self._eta: float | None = None

    def __call__(self, booster: Any, trees: int) -> int | None:
        """Look, if it is time; return the number of trees to keep where the target is passed."""
        if trees % STEP != 1 or self.gap(booster, trees)[1] <= self.target:
            return None
        for fewer in range(trees - 1, max(trees - STEP, 0), -1):
            if self.gap(booster, fewer)[1] <= self.target:
                return fewer
        return max(trees - STEP, 1)

    def gap(self, booster: Any, trees: int) -> tuple[float, float]:
        """Return the gap after so many rounds, and its upper confidence bound."""
        import xgboost

        data = xgboost.DMatrix(self.matrix)
        margins = booster.predict(data, output_margin=True, iteration_range=(0, trees))
        values = class_losses(np.asarray(margins, dtype=np.float64))
        problem = self._support.losses(values, self.labels, weights=self.weights, eta=self._eta)
        solution = problem.solve(self.epsilon, eta=self._eta, tolerance=1e-6)
        self._eta = solution.eta if np.isfinite(solution.eta) and solution.eta > 0.0 else None
        sure = spread(solution, np.random.default_rng(self.seed))
        bound = sure.upper_bound(CONFIDENCE)
        self.bounds[trees] = (sure.gap, sure.gap if bound is None else bound)
        return self.bounds[trees]

    def record(self) -> dict[str, Any]:
        """Return the observed gaps and their upper confidence bounds, by number of rounds."""
        seen = sorted(self.bounds)
        return {
            "epsilon": self.epsilon,
            "target_gap": self.target,
            "rounds": seen,
            "gap": [self.bounds[trees][0] for trees in seen],
            "upper_confidence_bound": [self.bounds[trees][1] for trees in seen],
        }

    def notes(self) -> tuple[str, ...]:
        """Say whether the target was met."""
        first = min(self.bounds)
        if self.bounds[first][1] > self.target:
            return (
                f"The certified gap is {self.bounds[first][1]:.3g} after one round already, above target_gap = "
                f"{self.target:g}: the model is that one round.",
            )
        last = max(self.bounds)
        if self.bounds[last][1] <= self.target:
            return (
                f"The certified gap reached {self.bounds[last][1]:.3g} of target_gap = {self.target:g} in all rounds.",
            )
        return ()
