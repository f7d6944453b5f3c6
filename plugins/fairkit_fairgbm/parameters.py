"""The parameters of FairGBM, what contradicts what, and what they mean as constraints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import ParameterError, did_you_mean
from fairkit.parameters import parameter
from fairkit.results.rules import Rule
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Run
    from fairkit_fairgbm.constraints import Constraints, RateName
    from fairkit_fairgbm.trainer import Moment, Trained


_OWN = {
    "n_estimators": ("num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round"),
    "learning_rate": ("shrinkage_rate", "eta"),
    "num_leaves": ("num_leaf", "max_leaves", "max_leaf", "max_leaf_nodes"),
    "min_child_samples": ("min_data_in_leaf", "min_data_per_leaf", "min_data", "min_samples_leaf"),
    "early_stopping": ("early_stopping_round", "early_stopping_rounds", "n_iter_no_change"),
}
_REFUSED = {
    "objective": "FairGBM is its own objective",
    "objective_type": "FairGBM is its own objective",
    "app": "FairGBM is its own objective",
    "application": "FairGBM is its own objective",
    "loss": "FairGBM is its own objective",
    "num_class": "FairGBM is for binary tasks",
    "num_classes": "FairGBM is for binary tasks",
    "linear_tree": "linear trees have no form in ONNX",
    "linear_trees": "linear trees have no form in ONNX",
    "zero_as_missing": "zeros that mean missing have no form in ONNX",
    "sigmoid": "the proxies are made for sigmoid=1",
    "metric": "the loss and the violation are reported as they are",
    "seed": "give the run's seed, which is kept in the report",
    "random_state": "give the run's seed, which is kept in the report",
    "num_threads": "give the run's threads",
    "n_jobs": "give the run's threads",
}

ConstraintName = Literal["equal_opportunity", "predictive_equality", "equalized_odds", "demographic_parity"]

_RATES: dict[str, tuple[RateName, ...]] = {
    "equal_opportunity": ("fnr",),
    "predictive_equality": ("fpr",),
    "equalized_odds": ("fnr", "fpr"),
    "demographic_parity": ("positive_rate",),
}
"""The rates whose differences each constraint bounds."""
_METRICS: dict[RateName, str] = {
    "fnr": "equal_opportunity_difference",
    "fpr": "false_positive_rate_difference",
    "positive_rate": "demographic_parity_difference",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FairGBMParameters:
    """Parameters of FairGBM."""

    constraint: tuple[ConstraintName, ...] = parameter(
        ("equal_opportunity",),
        help="What must be equal between groups: true positive rates (equal_opportunity), false positive rates "
        "(predictive_equality), both (equalized_odds), selection rates (demographic_parity); an empty list for "
        "none.",
        former_values={
            "fnr": "equal_opportunity",
            "fpr": "predictive_equality",
            "both": "equalized_odds",
            "positive_rate": "demographic_parity",
        },
    )
    tolerance: tuple[float, ...] = parameter(
        (0.0,),
        help="The largest difference allowed between two groups; one for all constraints or one for each.",
        minimum=0,
    )
    global_fpr: float | None = parameter(None, help="Limit of the overall false positive rate.", above=0, below=1)
    global_fnr: float | None = parameter(None, help="Limit of the overall false negative rate.", above=0, below=1)
    operating_point: bool = parameter(
        False, help="Reach the global rates from both sides: they are a ROC point, not only limits."
    )
    sensitive: str | None = parameter(
        None, help="The split to constrain, such as sex+race; default: the only one, else all crossed."
    )
    iterate: Literal["last", "best", "mixture", "all"] = parameter(
        "best",
        help="Which trees to keep: all of them, up to the best round on validation rows, a few numbers of "
        "trees drawn at random (randomized), or every number alike (for comparison).",
    )
    follow: Literal["train", "validation"] = parameter(
        "validation",
        help="Whose rates the multipliers follow: validation where trees fit the training rows too closely.",
    )
    min_group: int = parameter(
        30,
        help="The least rows of a group to equalize a rate between: those that the rate is over, such as the "
        "favorable outcomes for equal_opportunity.",
        minimum=1,
    )
    small_groups: Literal["error", "unconstrained"] = parameter(
        "unconstrained", help="What to do with a smaller group: leave it out of the constraint and say so, or stop."
    )
    validation_share: float | None = parameter(
        None,
        help="Share of the rows to follow and choose by, where none are given; default: a fifth of up to "
        "20,000 rows, falling to a tenth of 80,000 and more.",
        above=0,
        below=1,
    )
    early_stopping: int = parameter(
        0, help="Stop after so many rounds without a better iterate on validation rows; 0: never.", minimum=0
    )
    multiplier_rate: float = parameter(
        2.0, help="How fast multipliers follow violations; free of scale and size.", minimum=0
    )
    multiplier_cap: float = parameter(
        5.0, help="The most that a row of the smallest group may feel, in units of its own loss.", above=0
    )
    n_estimators: int = parameter(100, help="Trees.", minimum=1)
    learning_rate: float = parameter(0.1, help="The learning rate.", above=0)
    num_leaves: int = parameter(31, help="Leaves of a tree.", minimum=2)
    min_child_samples: int = parameter(20, help="LightGBM's least rows of a leaf.", minimum=0)
    lightgbm: Mapping[str, Any] = parameter({}, help="Any other parameter of LightGBM, such as lightgbm.max_bin=63.")

    def check(self) -> None:
        """Refuse LightGBM parameters that contradict the method, and tolerances that match no constraint."""
        names = {alias: name for name, aliases in _OWN.items() for alias in (name, *aliases)}
        for key in self.lightgbm:
            if key in names:
                raise ParameterError(f"fairgbm: give {names[key]} itself instead of lightgbm.{key}")
            if key in _REFUSED:
                raise ParameterError(f"fairgbm: lightgbm.{key} cannot be set: {_REFUSED[key]}")
        self._check_boosting()
        rates, tolerances = self.rates(), self.tolerance
        if len(tolerances) not in (1, len(rates)):
            raise ParameterError(
                f"fairgbm: {len(tolerances)} tolerances for {len(rates)} constraints; give one, or one for each"
            )
        point = self.global_fpr is not None or self.global_fnr is not None
        if self.operating_point and not point:
            raise ParameterError("fairgbm: operating_point needs global_fpr or global_fnr")

    def _check_boosting(self) -> None:
        settings = self.lightgbm
        kind = settings.get("boosting", settings.get("boosting_type", settings.get("boost", "gbdt")))
        if kind in ("rf", "random_forest"):
            raise ParameterError("fairgbm: a random forest has no rounds to constrain; leave out boosting=rf")
        if kind == "dart" and (self.iterate != "last" or self.early_stopping):
            raise ParameterError("fairgbm: dart changes earlier trees, so it goes with iterate=last alone")

    def rates(self) -> tuple[RateName, ...]:
        """Return the rates to equalize, each once."""
        named = [rate for name in self.constraint for rate in _RATES[name]]
        return tuple(dict.fromkeys(named))

    def constraints(self) -> Constraints:
        """Return the constraints: rates, tolerances and global targets."""
        from fairkit_fairgbm.constraints import Constraints

        rates, tolerances = self.rates(), self.tolerance
        targets: list[tuple[RateName, float]] = []
        if self.global_fpr is not None:
            targets.append(("fpr", self.global_fpr))
        if self.global_fnr is not None:
            targets.append(("fnr", self.global_fnr))
        every = tolerances * len(rates) if len(tolerances) == 1 else tolerances
        return Constraints(rates, every, tuple(targets), self.operating_point)

    def rules(self) -> tuple[Rule, ...]:
        """Bound the differences of the constrained rates by their tolerances."""
        tolerances = np.broadcast_to(self.tolerance, len(self.rates())).tolist()
        return tuple(
            Rule(metric=_METRICS[rate], max=tolerance) for rate, tolerance in zip(self.rates(), tolerances, strict=True)
        )

    def is_constrained(self, groups: int) -> bool:
        """Tell whether anything is constrained in a table with so many groups."""
        return (bool(self.rates()) and groups > 1) or (self.global_fpr, self.global_fnr) != (None, None)

    def needs_validation(self, groups: int) -> bool:
        """Tell whether training looks at validation rows."""
        choosing = self.iterate in ("best", "mixture") or self.follow == "validation"
        return self.early_stopping > 0 or (choosing and self.is_constrained(groups))

    def lightgbm_params(self, run: Run) -> dict[str, Any]:
        """Return LightGBM's parameters."""
        _check_known(self.lightgbm)
        threads = {} if run.threads is None else {"num_threads": run.threads}
        return {
            "verbosity": -1,
            "deterministic": True,
            "seed": run.seed,
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "min_child_samples": self.min_child_samples,
            **threads,
            **self.lightgbm,
        }


def _check_known(settings: Mapping[str, Any]) -> None:
    """Refuse names that LightGBM does not know; it would ignore them silently."""
    from fairkit_repair.learners import light_gbm

    table = getattr(light_gbm("fairgbm").basic, "_ConfigAliases", None)
    find = getattr(table, "_get_all_param_aliases", None)
    if find is None:
        return
    aliases = find()
    names = {alias for name, others in aliases.items() for alias in (name, *others)}
    for key in settings:
        if key not in names:
            raise ParameterError(f"LightGBM has no parameter {key!r}. {did_you_mean(key, names, what='parameters')}")


# Choosing iterates: the last, the best, or a distribution over a few of them.


Iterate = Literal["last", "best", "mixture", "all"]
_TINY = 1e-6


@dataclass(frozen=True, slots=True)
class Choice:
    """A distribution over iterates."""

    rounds: tuple[int, ...]  # the numbers of trees, ascending
    weights: tuple[float, ...]  # their probabilities; they add up to 1
    notes: tuple[str, ...] = ()  # what the user must know about the choice


def choose(iterate: Iterate, path: Sequence[Moment], constraints: Constraints) -> Choice:
    """Choose iterates by the moments of validation rows (`last` and `all` need no more than their number)."""
    total = len(path)
    if iterate == "all":
        return Choice(tuple(range(1, total + 1)), (1 / total,) * total)
    if iterate == "mixture":
        return choose_mixture(path, constraints)
    return choose_best(path) if iterate == "best" else Choice((total,), (1.0,))


def choose_best(path: Sequence[Moment]) -> Choice:
    """Return the round of least error plus violation that does not decide all people alike.

    The notes say where all rounds decide everybody alike, and where none meets the constraints: these count as met
    where the violation is within one standard error of the validation rates.
    """
    from fairkit_fairgbm.trainer import better

    best = 0
    for index, moment in enumerate(path):
        if index and better(moment, path[best]):
            best = index
    notes: list[str] = []
    if path[best].is_constant:
        notes.append("Every round decides all people alike: there is nothing to choose.")
    if all(moment.excess > 0 for moment in path):
        notes.append("No round meets the constraints on the validation rows.")
    return Choice((best + 1,), (1.0,), tuple(notes))


def choose_mixture(path: Sequence[Moment], constraints: Constraints) -> Choice:
    """Solve the LP of least expected error among distributions over rounds whose expected rates are feasible.

    A vertex of the LP has at most m + 1 rounds for m groups and one constraint. Where no distribution is
    feasible, the one of least violation is taken, and of those the one of least error. Rounds that decide all people
    alike are left out: they violate nothing.
    """
    places = [index for index, moment in enumerate(path) if not moment.is_constant]
    if not places:
        return choose_best(path)
    kept_path = [path[index] for index in places]
    errors = np.array([moment.error for moment in kept_path])
    rows, bounds = _inequalities(kept_path, constraints)
    weights = _solve(errors, rows, bounds, slack=0.0)
    notes: tuple[str, ...] = ()
    if weights is None:
        slack = _least_slack(rows, bounds)
        weights = _solve(errors, rows, bounds, slack=slack + 1e-9)
        notes = (
            f"No distribution over rounds meets the constraints on the validation rows; "
            f"the chosen one violates them least, by {slack:.3g}.",
        )
    if weights is None:
        return choose_best(path)
    support = np.flatnonzero(weights > _TINY)
    shares = weights[support] / weights[support].sum()
    return Choice(tuple(places[k] + 1 for k in support.tolist()), tuple(float(share) for share in shares), notes)


def _inequalities(path: Sequence[Moment], constraints: Constraints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return A, b of ``A p <= b`` over rounds: every ordered pair of groups, and every target."""
    by_group = np.stack([moment.rates.by_group for moment in path], axis=-1)  # [constraints, groups, rounds]
    rows: list[NDArray[np.float64]] = []
    bounds: list[float] = []
    for rates, tolerance in zip(by_group, constraints.tolerances, strict=True):
        finite = np.flatnonzero(~np.isnan(rates).any(axis=1))
        for a in finite:
            for b in finite:
                if a != b:
                    rows.append(rates[a] - rates[b])
                    bounds.append(tolerance)
    for index, (_, limit) in enumerate(constraints.targets):
        overall = np.array([moment.rates.overall[index] for moment in path])
        rows.append(overall)
        bounds.append(limit)
        if constraints.two_sided:
            rows.append(-overall)
            bounds.append(-limit)
    return np.array(rows).reshape(-1, len(path)), np.array(bounds)


def _solve(
    errors: NDArray[np.float64], rows: NDArray[np.float64], bounds: NDArray[np.float64], *, slack: float
) -> NDArray[np.float64] | None:
    from scipy.optimize import linprog

    result = linprog(
        errors,
        A_ub=rows if len(rows) else None,
        b_ub=bounds + slack if len(rows) else None,
        A_eq=np.ones((1, len(errors))),
        b_eq=[1.0],
        method="highs-ds",
    )
    return np.asarray(result.x) if result.status == 0 else None


def _least_slack(rows: NDArray[np.float64], bounds: NDArray[np.float64]) -> float:
    """Return the smallest s such that ``A p <= b + s`` has a distribution p."""
    from scipy.optimize import linprog

    count = rows.shape[1]
    result = linprog(
        [0.0] * count + [1.0],
        A_ub=np.hstack([rows, -np.ones((len(rows), 1))]),
        b_ub=bounds,
        A_eq=[[1.0] * count + [0.0]],
        b_eq=[1.0],
        method="highs-ds",
    )
    return float(result.x[-1])


# What a training leaves for people: its path as plain values, and the constraints that it did not meet.


def unmet(result: Trained, choice: Choice) -> tuple[str, ...]:
    """Say where a single round does not meet the constraints on the rows that were looked at.

    Only a violation that is larger than its standard error counts: the rows cannot resolve a smaller one. A mixture's
    own note says by how much it misses them.
    """
    if len(choice.rounds) > 1:
        return ()
    where = "validation" if result.validation else "training"
    moment = (result.validation or result.train)[choice.rounds[-1] - 1]
    if moment.excess <= 0:
        return ()
    return (f"The constraints are not met on the {where} rows: they are violated by {moment.violation:.3g}.",)


def details(result: Trained, choice: Choice, constraints: Constraints, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the whole path as plain JSON values."""
    return {
        "groups": list(names),
        "constraints": list(constraints.rates),
        "tolerances": list(constraints.tolerances),
        "targets": [[name, limit] for name, limit in constraints.targets],
        "rounds": list(choice.rounds),
        "weights": list(choice.weights),
        "multipliers": result.multipliers.tolist(),
        "train": _path(result.train),
        "validation": _path(result.validation),
    }


def _path(moments: list[Moment]) -> dict[str, Any]:
    return {
        "loss": [moment.loss for moment in moments],
        "error": [moment.error for moment in moments],
        "violation": [moment.violation for moment in moments],
        "gap": [moment.gap for moment in moments],
        "rates": [np.nan_to_num(moment.rates.by_group, nan=-1.0).tolist() for moment in moments],
        "overall": [moment.rates.overall.tolist() for moment in moments],
    }
