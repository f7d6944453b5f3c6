"""The parameters of FairGBM, what contradicts what, and what they mean as constraints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import ParameterError, did_you_mean
from fairkit.parameters.declare import parameter
from fairkit.results.rules import Rule

if TYPE_CHECKING:
    from fairkit.mitigators import Run
    from fairkit_fairgbm.constraints import Constraints, RateName

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
        own = {alias: name for name, aliases in _OWN.items() for alias in (name, *aliases)}
        for key in self.lightgbm:
            if key in own:
                raise ParameterError(f"fairgbm: give {own[key]} itself instead of lightgbm.{key}")
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
        named = [one for name in self.constraint for one in _RATES[name]]
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
    from lightgbm import basic

    table = getattr(basic, "_ConfigAliases", None)
    find = getattr(table, "_get_all_param_aliases", None)
    if find is None:
        return
    aliases = find()
    known = {alias for name, others in aliases.items() for alias in (name, *others)}
    for key in settings:
        if key not in known:
            raise ParameterError(f"LightGBM has no parameter {key!r}. {did_you_mean(key, known, what='parameters')}")
