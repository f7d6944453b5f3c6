"""The plugin `fairgbm`: parameters, checks, and the way from a table to a fitted model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import ParameterError, did_you_mean
from fairkit.learners import check_target
from fairkit.mitigation.split import stratified
from fairkit.mitigators import FittedModel, Mitigator, Run, Table
from fairkit.onnx.write.encode import fit_encoder
from fairkit.parameters.declare import parameter
from fairkit.results.policy import Rule
from fairkit_fairgbm import backends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.engines.rows import RowsInParts
    from fairkit.mitigators import Groups
    from fairkit.onnx.model import OnnxModel
    from fairkit.onnx.write.encode import Encoder, TextMode
    from fairkit_fairgbm.constraints import Constraints, RateName
    from fairkit_fairgbm.select import Iterate
    from fairkit_fairgbm.trainer import Moment, Rows, Settings, Trained

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


class FairGBM(Mitigator):
    """Gradient boosting under fairness constraints, on stock LightGBM or XGBoost.

    Trains one gradient boosted model whose error rates (or positive rates) are alike between groups at the
    threshold 1/2: by the proxy Lagrangian, every tree follows the gradient of the loss plus multipliers
    times smooth stand-ins for the rates, and the multipliers move with the true rates.
    """

    name = "fairgbm"
    stage = "in"
    tasks = ("binary",)
    engines = ("dask",)
    citation = "Cruz, Belém, Jesus, Bravo, Saleiro, Bizarro: FairGBM, ICLR 2023, arXiv:2209.07850"

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
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
        global_fpr: float | None = parameter(
            None, help="Limit of the overall false positive rate.", above=0, below=1
        )
        global_fnr: float | None = parameter(
            None, help="Limit of the overall false negative rate.", above=0, below=1
        )
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
        validation_share: float | None = parameter(
            None,
            help="Share of the rows to follow and choose by, where none are given; default: a fifth of up to "
            "20,000 rows, falling to a tenth of 80,000 and more.",
            above=0,
            below=1,
        )
        early_stopping: int = parameter(
            0,
            help="Stop after so many rounds without a better iterate on validation rows; 0: never.",
            minimum=0,
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
        backend: Literal["lightgbm", "xgboost"] | None = parameter(
            None, help="Which library grows the trees; by default lightgbm, and xgboost with --engine dask."
        )
        lightgbm: Mapping[str, Any] = parameter(
            {}, help="Any other parameter of LightGBM, such as lightgbm.max_bin=63."
        )
        xgboost: Mapping[str, Any] = parameter(
            {}, help="Any other parameter of XGBoost, such as xgboost.max_depth=6."
        )

    def check(self) -> None:
        """Refuse LightGBM parameters that contradict the method, and tolerances that match no constraint."""
        own = {alias: name for name, aliases in _OWN.items() for alias in (name, *aliases)}
        for key in self.parameters.lightgbm:
            if key in own:
                raise ParameterError(f"fairgbm: give {own[key]} itself instead of lightgbm.{key}")
            if key in _REFUSED:
                raise ParameterError(f"fairgbm: lightgbm.{key} cannot be set: {_REFUSED[key]}")
        self._check_boosting()
        backends.check(self.parameters)
        rates, tolerances = self._rates(), self.parameters.tolerance
        if len(tolerances) not in (1, len(rates)):
            raise ParameterError(
                f"fairgbm: {len(tolerances)} tolerances for {len(rates)} constraints; give one, or one for each"
            )
        point = self.parameters.global_fpr is not None or self.parameters.global_fnr is not None
        if self.parameters.operating_point and not point:
            raise ParameterError("fairgbm: operating_point needs global_fpr or global_fnr")

    def _check_boosting(self) -> None:
        settings = self.parameters.lightgbm
        kind = settings.get("boosting", settings.get("boosting_type", settings.get("boost", "gbdt")))
        if kind in ("rf", "random_forest"):
            raise ParameterError("fairgbm: a random forest has no rounds to constrain; leave out boosting=rf")
        if kind == "dart" and (self.parameters.iterate != "last" or self.parameters.early_stopping):
            raise ParameterError("fairgbm: dart changes earlier trees, so it goes with iterate=last alone")

    def promises(self) -> Sequence[Rule]:
        """Bound the differences of the constrained rates by their tolerances."""
        metrics = {
            "equal_opportunity": ("equal_opportunity_difference",),
            "predictive_equality": ("false_positive_rate_difference",),
            "equalized_odds": ("equal_opportunity_difference", "false_positive_rate_difference"),
            "demographic_parity": ("demographic_parity_difference",),
        }
        chosen = self.parameters
        tolerances = np.broadcast_to(chosen.tolerance, len(chosen.constraint)).tolist()
        return tuple(
            Rule(metric=metric, maximum=tolerance)
            for name, tolerance in zip(chosen.constraint, tolerances, strict=True)
            for metric in metrics[name]
        )

    def fit(
        self, table: Table, run: Run, *, validation: Table | None = None, model: OnnxModel | None = None
    ) -> FittedModel:
        """Train; see `Mitigator.fit`."""
        self.learner(run)
        check_target(table)
        groups = table.only_groups(self.parameters.sensitive)
        train, held = self._split(table, groups, validation, run)
        text: TextMode = "onehot" if self.parameters.backend == "xgboost" else "ordinal"
        encoder = fit_encoder(train.columns, train.features, text=text)
        return self._fit(encoder, train, held, run)

    def fit_spread(self, table: Table, rows: RowsInParts, run: Run) -> FittedModel:
        """Train where the rows are; see `TrainsInParts`."""
        from fairkit_fairgbm import spread

        self._check_spread()
        groups = table.only_groups(self.parameters.sensitive)
        constraints, names = self._constraints(), groups.names
        held = None
        if self._needs_validation(groups):
            held = self._held(table, groups, run)
        constraints.check(spread.cells(table, groups, held, held=False), what=table.name)
        result, encoder = spread.train(
            rows, table, groups, held, constraints, self._settings(run, None), progress=run.progress
        )
        cells = spread.cells(table, groups, held, held=False)
        return self._fitted(encoder, result, groups, constraints, constraints.resolution(cells), names)

    def baseline_spread(self, table: Table, rows: RowsInParts, run: Run) -> FittedModel:
        """Train stock XGBoost where the rows are, with the same parameters."""
        from fairkit_fairgbm import spread

        self._check_spread()
        return spread.baseline(
            rows, table, backends.xgboost_params(self.parameters, run), self.parameters.n_estimators
        )

    def _check_spread(self) -> None:
        if self.parameters.backend == "lightgbm":
            raise ParameterError(
                "fairgbm: backend=lightgbm trains on one machine; with --engine dask use xgboost"
            )
        if self.parameters.lightgbm:
            raise ParameterError("fairgbm: XGBoost grows the trees with --engine dask: give xgboost.KEY")

    def baseline(self, table: Table, run: Run) -> FittedModel:
        """Train the stock library with the same parameters."""
        from fairkit.learners import fit_learner

        if self.parameters.backend == "xgboost":
            params = backends.xgboost_params(self.parameters, run) | {
                "n_estimators": self.parameters.n_estimators
            }
            return fit_learner("xgboost", table, run, settings=params)
        settings = self._lightgbm(run) | {"n_estimators": self.parameters.n_estimators}
        return fit_learner("lightgbm", table, run, settings=settings)

    def _fit(self, encoder: Encoder, train: Table, held: Table | None, run: Run) -> FittedModel:
        trainer = backends.machinery(self.parameters.backend, run)
        constraints = self._constraints()
        wanted = self.parameters.sensitive
        rows = _rows(encoder, train, wanted)
        constraints.check(rows.cells, what=train.name)
        groups = train.only_groups(wanted)
        names = groups.names
        seen = None if held is None else _rows(encoder, held, wanted, names=names)
        result: Trained = trainer.train(
            rows, constraints, self._settings(run, encoder), validation=seen, progress=run.progress
        )
        notes = constraints.resolution(rows.cells)
        return self._fitted(encoder, result, groups, constraints, notes, names)

    def _fitted(
        self,
        encoder: Encoder,
        result: Trained,
        groups: Groups,
        constraints: Constraints,
        notes: Sequence[str],
        names: tuple[str, ...],
    ) -> FittedModel:
        """Choose iterates, and put the model together."""
        from fairkit_fairgbm import model, select

        choice = select.choose(self._iterate(groups), result.validation or result.train, constraints)
        return model.FairGBMModel(
            encoder=encoder,
            booster=result.booster,
            start=result.start,
            choice=choice,
            details=_details(result, choice, constraints, names),
            notes=(*notes, *choice.notes, *_unmet(result, choice.rounds[-1])),
        )

    def _split(
        self, table: Table, groups: Groups, validation: Table | None, run: Run
    ) -> tuple[Table, Table | None]:
        """Return training and validation rows; split some off, group by group and label by label, if needed."""
        needed = self._needs_validation(groups)
        if validation is not None or not needed:
            return table, validation if needed else None
        held = self._held(table, groups, run)
        return table.take(~held), table.take(held)

    def _held(self, table: Table, groups: Groups, run: Run) -> NDArray[np.bool_]:
        """Choose validation rows, group by group and label by label."""
        cells = 2 * groups.codes + table.target.astype(np.int64)
        share = self.parameters.validation_share or min(0.2, max(0.1, 0.2 * (20_000 / len(table)) ** 0.5))
        return stratified(cells, share, run.rng())

    def _needs_validation(self, groups: Groups) -> bool:
        chosen = self.parameters
        choosing = chosen.iterate in ("best", "mixture") or chosen.follow == "validation"
        return chosen.early_stopping > 0 or (choosing and self._is_constrained(groups))

    def _is_constrained(self, groups: Groups) -> bool:
        limits = (self.parameters.global_fpr, self.parameters.global_fnr)
        return (bool(self._rates()) and len(groups.names) > 1) or limits != (None, None)

    def _iterate(self, groups: Groups) -> Iterate:
        """Without a constraint (and without early stopping) all trees are kept: plain LightGBM."""
        plain = not self._is_constrained(groups) and not self.parameters.early_stopping
        iterate: Iterate = "last" if plain else self.parameters.iterate
        return iterate

    def _rates(self) -> tuple[RateName, ...]:
        named = [one for name in self.parameters.constraint for one in _RATES[name]]
        return tuple(dict.fromkeys(named))

    def _constraints(self) -> Constraints:
        from fairkit_fairgbm.constraints import Constraints

        rates, tolerances = self._rates(), self.parameters.tolerance
        targets: list[tuple[RateName, float]] = []
        if self.parameters.global_fpr is not None:
            targets.append(("fpr", self.parameters.global_fpr))
        if self.parameters.global_fnr is not None:
            targets.append(("fnr", self.parameters.global_fnr))
        every = tolerances * len(rates) if len(tolerances) == 1 else tolerances
        return Constraints(rates, every, tuple(targets), self.parameters.operating_point)

    def _lightgbm(self, run: Run) -> dict[str, Any]:
        chosen = self.parameters
        _check_known(chosen.lightgbm)
        threads = {} if run.threads is None else {"num_threads": run.threads}
        return {
            "verbosity": -1,
            "deterministic": True,
            "seed": run.seed,
            "learning_rate": chosen.learning_rate,
            "num_leaves": chosen.num_leaves,
            "min_child_samples": chosen.min_child_samples,
            **threads,
            **chosen.lightgbm,
        }

    def _settings(self, run: Run, encoder: Encoder | None) -> Settings:
        """Return the settings of a training; the encoder's part is absent with XGBoost and with spread rows."""
        from fairkit_fairgbm.trainer import Settings

        stock = encoder is not None and self.parameters.backend != "xgboost"
        params = self._lightgbm(run) if stock else backends.xgboost_params(self.parameters, run)
        return Settings(
            rounds=self.parameters.n_estimators,
            multiplier_rate=self.parameters.multiplier_rate,
            multiplier_cap=self.parameters.multiplier_cap,
            follow_validation=self.parameters.follow == "validation",
            patience=self.parameters.early_stopping,
            params=params,
            categorical=() if encoder is None else encoder.categorical,
        )


_RATES: dict[str, tuple[RateName, ...]] = {
    "equal_opportunity": ("fnr",),
    "predictive_equality": ("fpr",),
    "equalized_odds": ("fnr", "fpr"),
    "demographic_parity": ("positive_rate",),
}
"""The rates whose differences each constraint bounds."""


def _rows(encoder: Encoder, table: Table, wanted: str | None, names: tuple[str, ...] | None = None) -> Rows:
    from fairkit_fairgbm.constraints import make_cells
    from fairkit_fairgbm.trainer import Rows

    groups = table.only_groups(wanted)
    codes = groups.codes
    if names is not None and names != groups.names:
        known = [name for name in groups.names if name in names]
        if len(known) < len(groups.names):
            strange = next(name for name in groups.names if name not in names)
            raise ParameterError(f"{table.name}: the group {strange!r} does not occur in the training rows")
        codes = np.array([names.index(name) for name in groups.names], dtype=np.int64)[codes]
    weights = None if table.weights is None else table.weights.astype(np.float32)
    cells = make_cells(
        codes, table.target, names or groups.names, None if weights is None else weights.astype(float)
    )
    return Rows(encoder.transform(table.columns), cells, weights)


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
            raise ParameterError(
                f"LightGBM has no parameter {key!r}. {did_you_mean(key, known, what='parameters')}"
            )


def _unmet(result: Trained, rounds: int) -> tuple[str, ...]:
    """Say where the constraints do not hold on the rows that were looked at, beyond what these can resolve."""
    where = "validation" if result.validation else "training"
    moment = (result.validation or result.train)[rounds - 1]
    if moment.excess <= 0:
        return ()
    return (f"The constraints are not met on the {where} rows: they are violated by {moment.violation:.3g}.",)


def _details(
    result: Trained, choice: Any, constraints: Constraints, names: tuple[str, ...]
) -> dict[str, Any]:
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
