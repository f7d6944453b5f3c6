"""What a search can try: methods that can meet the policy, with the parameters that are worth trying."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit import plugins
from fairkit.capabilities import Capability
from fairkit.errors import FairkitError, ParameterError
from fairkit.learners import INSTALLED, LEARNERS
from fairkit.mitigators import Mitigator
from fairkit.objective import Objective
from fairkit.parameters import parameter, parse_parameters
from fairkit.support.lazy_dataclass import dataclass
from fairkit_repair.learners import fit_learner
from fairkit_repair.mitigation.choose import find_mitigator
from fairkit_repair.postprocess import MARGINS, CommonThreshold
from fairkit_repair.scored_rows import Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.fitted import FittedModel, Run
    from fairkit_repair.repairing.chance import Limited

UNCONSTRAINED = "unconstrained"
_SETTINGS: Mapping[str, tuple[int, Mapping[str, list[Any]]]] = {
    "lightgbm": (12, {
        "num_leaves": [4, 7, 15, 31, 63], "learning_rate": [0.03, 0.06, 0.1, 0.2], "n_estimators": [50, 100, 200],
        "min_child_samples": [5, 20, 100, 300], "feature_fraction": [0.4, 0.7, 1.0],
    }),
    "xgboost": (6, {"max_depth": [2, 3, 4, 6, 8], "eta": [0.03, 0.1, 0.3]}),
}  # fmt: skip
"""By learner, how many settings are drawn, and from which values."""
_PLAIN = Objective()


class PlainLearner(Mitigator):
    """The learner without any mitigation, with settings of its library."""

    name = UNCONSTRAINED
    stage = "in"
    tasks = ("binary", "multiclass", "regression", "ranking")
    learners = (*LEARNERS, INSTALLED)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """See `PlainLearner`."""

        settings: Mapping[str, Any] = parameter({}, help="Parameters of the learner's library.")

    capabilities: ClassVar[tuple[Capability, ...]] = (Capability(constraints=("none",)),)

    def fit(self, table: Table, run: Run, **_: object) -> FittedModel:
        """Train the learner."""
        return fit_learner(self.learner(run), table, run, settings=self.parameters.settings)


def unconstrained(settings: Mapping[str, Any] | None = None) -> Trial:
    """Return the learner as it is."""
    values = {"settings": dict(settings)} if settings else {}
    method = PlainLearner(parse_parameters(PlainLearner.Parameters, values, owner=UNCONSTRAINED))
    return Trial.of(method, dict(settings or {}), PlainLearner.capabilities[0], "settings")


def candidates(
    limits: Sequence[Limited],
    methods: Sequence[str] | None,
    fixed: Mapping[str, Mapping[str, Any]],
    rate: float,
    task: Task = "binary",
    *,
    objective: Objective = _PLAIN,
    given: bool = False,
) -> list[Trial]:
    """List what can meet at least one of the limits, cheap methods first.

    One threshold for everybody is among them where it is not what the first alternative has: under rules on rates, and
    where a given model was made for another objective.
    """
    usable: list[Trial] = []
    if task == "binary" and (objective.bounds or (given and objective.kind != "rate")):
        for margin in MARGINS if objective.bounds else (0.0,):
            values, way = {"margin": margin} if margin else {}, CommonThreshold.capabilities[0]
            method = CommonThreshold.with_values(values)
            usable.append(Trial.of(method, values, way, f"common-threshold {margin}"))
    for name in methods if methods is not None else _installed():
        cls = find_mitigator(name)
        if task not in cls.tasks:
            if methods is not None:
                raise ParameterError(f"the method {name!r} is for {' and '.join(cls.tasks)} tasks; this is {task}")
            continue
        variants = _of(cls, limits, fixed.get(cls.name, {}), rate, strict=methods is not None)
        if objective.bounds and "cost" in getattr(cls, "objectives", ()):
            variants = _within(cls, variants, fixed.get(cls.name, {}))
        usable += variants
        if not variants and methods is not None:
            wanted = ", ".join(limit.label for limit in limits)
            raise ParameterError(
                f"the method {name!r} does not say that it can meet {wanted}; leave it out of `methods`, or "
                "run it by itself without a policy"
            )
    return sorted(usable, key=lambda candidate: (candidate.capability.trainings, candidate.capability.randomized))


def _within(cls: type[Mitigator], variants: Sequence[Trial], fixed: Mapping[str, Any]) -> list[Trial]:
    """Return the variants with margins inside the limits of rules on rates; such rules may be all that there are."""
    if not variants:
        parity = next(way for way in cls.capabilities if way.meets("demographic_parity_difference"))
        wide = {**parity.settings, "tolerance": 1.0, **fixed}
        family = f"{cls.name} {sorted(parity.settings.items())} {parity.randomized}"
        variants = [Trial.of(cls.with_values(wide), wide, parity, family, frozenset(fixed))]
    changed = []
    for variant, margin in itertools.product(variants, MARGINS[1:]):
        values = {**variant.parameters, "margin": margin, **fixed}
        family = f"{variant.family} {margin}"
        changed.append(Trial.of(cls.with_values(values), values, variant.capability, family, variant.fixed))
    return changed


def _installed() -> list[str]:
    return [row.found.name for row in plugins.explain_all() if "mitigator" in row.kinds and row.reason is None]


def _of(
    cls: type[Mitigator], limits: Sequence[Limited], fixed: Mapping[str, Any], rate: float, *, strict: bool
) -> list[Trial]:
    variants: list[Trial] = []
    between = [
        limit
        for limit in limits
        if limit.split is not None and (limit.target is None or limit.target.kind in ("difference", "ratio"))
    ]
    for capability in cls.capabilities:
        met = [limit for limit in between if capability.meets(limit.rule.metric)]
        chosen = {key: value for key, value in capability.settings.items() if key not in fixed}
        clash = any(str(fixed[key]) != str(value) for key, value in capability.settings.items() if key in fixed)
        if not met or clash:
            continue
        limit = min(_difference(limit, rate) for limit in met)
        family = f"{cls.name} {sorted(chosen.items())} {capability.randomized}"
        for settings in capability.tries(limit):
            values = {**settings, **fixed}
            try:
                method = cls.with_values(values)
            except FairkitError:
                if strict:
                    raise
                continue
            if all(str(values) != str(variant.parameters) for variant in variants if variant.family == family):
                variants.append(Trial.of(method, values, capability, family, frozenset(fixed)))
    return variants


def _difference(one: Limited, rate: float) -> float:
    """Return the limit as one on a difference."""
    limit = float(one.rule.limit)
    return max(0.0, rate * (1 - limit) if one.rule.metric.endswith("_ratio") else limit)


def learner_settings(learner: str, seed: int) -> list[dict[str, Any]]:
    """Draw settings of a learner, for the search of models that are as accurate and less unequal."""
    if learner == "logistic":
        return [{"C": c} for c in (0.001, 0.01, 0.1, 10.0)]
    rng = np.random.default_rng([seed, 11])
    count, choices = _SETTINGS.get(learner, (0, {}))
    return [{key: rng.choice(values).item() for key, values in choices.items()} for _ in range(count)]
