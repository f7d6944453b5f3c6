"""From a table to a network: metric, features, validation rows, one training."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ModelError, ParameterError, did_you_mean
from fairkit.progress import no_progress
from fairkit_repair.learners import check_target, device_for, fully_connected
from fairkit_repair.mitigation.choose import stratified
from fairkit_sensei.counterfactuals import ColumnFlips, GivenCounterfactuals, Versions, find_flips
from fairkit_sensei.metric import make_metric, plain_encoder, shared_features
from fairkit_sensei.networks import NetworkModel, SenSeIRows, SenSeISettings, Trained, in_units, usual_rho
from fairkit_sensei.training import train
from fairkit_similarity.metric import FairMetric, Geometry
from fairkit_similarity.training import sensitive_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Run, Table
    from fairkit.progress import Progress
    from fairkit_onnx.write.encode import Encoder
    from fairkit_sensei.counterfactuals import Counterfactuals


HELD_OUT = 0.1
"""The share of the training rows that choose the epoch, where no validation rows are given."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitting:
    """What all trainings of one run share."""

    table: Table
    run: Run
    parameters: Any
    module: Any
    settings: SenSeISettings
    encoder: Encoder
    rows: SenSeIRows
    validation: SenSeIRows | None
    metric: FairMetric | None
    geometry: Geometry | None
    flipped: Counterfactuals | None
    scale: tuple[float, float]
    notes: tuple[str, ...]

    @classmethod
    def prepare(
        cls,
        table: Table,
        run: Run,
        parameters: Any,
        *,
        module: Any = None,
        metric: FairMetric | None = None,
        validation: Table | None = None,
    ) -> Fitting:
        """Check the table, and learn what is needed before the network is trained."""
        check_target(table)
        device_for(parameters.device)
        settings, notes = _settings(table, parameters, metric)
        flips = []
        learned = parameters.fair_metric in ("face", "explore") and parameters.counterfactuals is None
        counterfactuals = parameters.counterfactuals
        if (settings.method == "clp" and counterfactuals is None) or learned:
            flips = find_flips(parameters.sensitive, table.columns, parameters.values, table.features)
        if settings.method in ("sensei", "sensr"):
            if metric is None:
                metric = make_metric(
                    parameters.fair_metric,
                    table,
                    flips,
                    strength=parameters.strength,
                    directions=parameters.directions,
                    rank=parameters.rank,
                    standardise=parameters.standardise,
                    counterfactuals=parameters.counterfactuals,
                    of=parameters.of,
                )
            encoder, matrix = shared_features(metric, table)
        else:
            metric, matrix, encoder = None, None, plain_encoder(table)
        scale = (1.0, 0.0)
        if table.task == "regression":
            scale = (float(table.target.std()), float(table.target.mean()))
        inside, outside = _split(table, validation, run.seed)
        settings = settings.resolved(len(inside), len(table.classes))
        features = encoder.transform(inside.columns)
        flipped: Counterfactuals | None = None
        if settings.method == "clp" and counterfactuals is None:
            flipped = ColumnFlips(flips, encoder, inside.columns)
        elif settings.method == "clp":
            versions = Versions.read(counterfactuals, parameters.of, table, encoder)
            version = versions.of(features)
            flipped, notes = version, notes + versions.note(version, len(inside))
        return cls(
            table=table,
            run=run,
            parameters=parameters,
            module=module,
            settings=settings,
            encoder=encoder,
            rows=_rows(features, inside, scale),
            validation=None if outside is None else _rows(encoder.transform(outside.columns), outside, scale),
            metric=metric,
            geometry=None if matrix is None else Geometry.learn(features.astype(np.float64), matrix),
            flipped=flipped,
            scale=scale,
            notes=notes,
        )

    def fit(self) -> NetworkModel:
        """Train, and return the network."""
        rho = usual_rho(len(self.table)) if self.parameters.rho is None else self.parameters.rho
        trained = train_network(
            self.module,
            self.rows,
            dataclasses.replace(self.settings, rho=rho),
            hidden=self.parameters.hidden,
            classes=len(self.table.classes),
            geometry=self.geometry,
            counterfactuals=self.flipped,
            validation=self.validation,
            regression=self.table.task == "regression",
            scale=self.scale,
            seed=self.run.seed,
            threads=self.run.threads,
            progress=self.run.progress,
        )
        epochs = self.settings.epochs or 1
        self.run.progress("training epochs", epochs, epochs)
        details: dict[str, Any] = {
            "history": [dict(record) for record in trained.history],
            "kept_epoch": trained.best,
            "rho": rho,
        }
        if self.metric is not None and self.geometry is not None:
            details["metric_sha256"] = self.metric.sha256
            details["free_directions"] = int(self.geometry.free.shape[1])
        return NetworkModel(
            encoder=self.encoder,
            estimator=trained.module,
            task=self.table.task,
            details=_plain(details),
            notes=tuple(dict.fromkeys([*self.notes, *trained.notes])),
            metric=self.metric,
            audited_at=self.settings.epsilon if self.parameters.fair_metric == "subspace" else None,
        )


def train_network(
    module: Any,
    rows: SenSeIRows,
    settings: SenSeISettings,
    *,
    hidden: Sequence[int],
    classes: int,
    geometry: Geometry | None,
    counterfactuals: Any,
    validation: SenSeIRows | None,
    regression: bool,
    scale: tuple[float, float],
    seed: int,
    threads: int | None,
    progress: Progress,
) -> Trained:
    """Train a copy of a module, or a fully connected network, whose outputs are in the target's unit at the end."""
    width = rows.x.shape[1]
    if module is None:
        network = fully_connected(width, hidden, 1 if regression else classes, seed=seed)
    else:
        network = copy.deepcopy(module)
        if not hasattr(network, "parameters"):
            raise ModelError(f"a {type(module).__name__} is no torch module; give a torch.nn.Module")
    trained = train(
        network,
        rows,
        settings,
        geometry=geometry,
        counterfactuals=counterfactuals,
        validation=validation,
        regression=regression,
        seed=seed,
        threads=threads,
        progress=progress,
    )
    if regression and scale != (1.0, 0.0):
        trained = dataclasses.replace(trained, module=in_units(trained.module, *scale).eval())
    return trained


def _settings(table: Table, parameters: Any, metric: FairMetric | None) -> tuple[SenSeISettings, tuple[str, ...]]:
    names = {field.name for field in dataclasses.fields(SenSeISettings)} - {"rho"}
    settings = SenSeISettings(**{name: getattr(parameters, name) for name in names if hasattr(parameters, name)})
    nothing = (
        settings.method in ("sensei", "sensr")
        and metric is None
        and parameters.fair_metric == "subspace"
        and bool(table.groups)
        and not sensitive_columns(table)
    )
    if not nothing:
        return settings, ()
    note = "All rows are in one group: no sensitive directions can be learned, and the plain network was trained."
    return dataclasses.replace(settings, method="erm"), (note,)


def _split(table: Table, validation: Table | None, seed: int) -> tuple[Table, Table | None]:
    """Hold out validation rows, evenly from every class, where none are given and there are enough."""
    if validation is not None:
        return table, validation
    classes = np.zeros(len(table), dtype=np.int64)
    if table.task != "regression":
        classes = table.target.astype(np.int64)
    held_out = stratified(classes, HELD_OUT, np.random.default_rng([seed, 3]))
    if held_out.sum() < 30:
        return table, None
    training_rows, outside = table.take(~held_out), table.take(held_out)
    if np.unique(training_rows.target).size < np.unique(table.target).size and table.task != "regression":
        raise DataError(f"{table.name}: a class has too few rows to learn from")
    return training_rows, outside


def _rows(features: NDArray[np.float32], table: Table, scale: tuple[float, float]) -> SenSeIRows:
    if not np.isfinite(features).all():
        raise DataError(f"{table.name}: encoded features hold numbers that are not finite")
    return SenSeIRows(x=features, target=(table.target - scale[1]) / scale[0], weights=table.weights)


def _plain(value: Any) -> Any:
    """Make numbers JSON can hold: what is not finite becomes None."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


# Training on a matrix of features, such as embeddings of text or images.


def fit_network(
    features: Any,
    target: Any,
    *,
    metric: FairMetric | None = None,
    directions: Any = None,
    sigma: Any = None,
    module: Any = None,
    counterfactuals: tuple[Any, Any] | None = None,
    validation: tuple[Any, Any] | None = None,
    sample_weight: Any = None,
    regression: bool = False,
    hidden: Sequence[int] = (100,),
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = no_progress,
    **settings: Any,
) -> Trained:
    """Train a network on any features."""
    rows = _table_rows(features, target, sample_weight, "features", regression)
    chosen = _table_settings(settings)
    scale = (1.0, 0.0)
    if regression:
        scale = (float(rows.target.std()), float(rows.target.mean()))
    rows = dataclasses.replace(rows, target=(rows.target - scale[1]) / scale[0])
    outside = None
    if validation is not None:
        outside = _table_rows(*validation, None, "validation features", regression, least=1)
        outside = dataclasses.replace(outside, target=(outside.target - scale[1]) / scale[0])
    geometry = None
    if chosen.method in ("sensei", "sensr"):
        geometry = Geometry.learn(rows.x.astype(np.float64), _matrix(metric, directions, sigma, rows.x.shape[1]))
    flipped = None
    if counterfactuals is not None:
        flipped = GivenCounterfactuals(*counterfactuals, len(rows.x))
        if flipped.features.shape[1] != rows.x.shape[1]:
            raise DataError(f"counterfactuals have {flipped.features.shape[1]} features, the rows {rows.x.shape[1]}")
    return train_network(
        module,
        rows,
        chosen,
        hidden=hidden,
        classes=0 if regression else int(rows.target.max()) + 1,
        geometry=geometry,
        counterfactuals=flipped,
        validation=outside,
        regression=regression,
        scale=scale,
        seed=seed,
        threads=threads,
        progress=progress,
    )


def _table_rows(features: Any, target: Any, weights: Any, name: str, regression: bool, *, least: int = 2) -> SenSeIRows:
    x = np.asarray(features, dtype=np.float32)
    y = np.asarray(target, dtype=np.float64)
    if x.ndim != 2 or y.shape != (len(x),) or not len(x):
        raise DataError(f"{name} of shape {x.shape} and targets of shape {y.shape} do not fit together")
    if not np.isfinite(x).all() or not np.isfinite(y).all():
        raise DataError(f"{name} or their targets hold numbers that are not finite")
    if not regression and ((y < 0).any() or (y != np.round(y)).any()):
        raise DataError("targets must be classes 0, 1, ...; for numbers say regression=True")
    if len(np.unique(y)) < least:
        what = "the same value" if regression else "the same class"
        raise DataError(f"all {len(y)} rows have {what}; nothing to learn")
    row_weights = None if weights is None else np.asarray(weights, dtype=np.float64)
    if row_weights is not None and (
        row_weights.shape != y.shape or not np.isfinite(row_weights).all() or (row_weights < 0).any()
    ):
        raise DataError("sample_weight must be one nonnegative finite number for each row")
    return SenSeIRows(x=x, target=y, weights=row_weights)


def _table_settings(options: dict[str, Any]) -> SenSeISettings:
    names = [field.name for field in dataclasses.fields(SenSeISettings)]
    for name in options:
        if name not in names:
            raise ParameterError(f"there is no setting {name!r}. {did_you_mean(name, names, what='settings')}")
    chosen = SenSeISettings(**options)
    for name in ("rho", "epsilon", "weight_decay"):
        value = float(getattr(chosen, name))
        if not 0 <= value < np.inf:
            raise ParameterError(f"{name}={value} must be a finite number, 0 or larger")
    for name in ("epochs", "batch", "rate", "patience"):
        value = getattr(chosen, name)
        if value is not None and not value > 0:
            raise ParameterError(f"{name}={getattr(chosen, name)} must be above 0")
    if chosen.method not in ("sensei", "sensr", "clp", "erm"):
        raise ParameterError(
            f"method={chosen.method!r} is unknown. {did_you_mean(chosen.method, ('sensei', 'sensr', 'clp', 'erm'))}"
        )
    return dataclasses.replace(chosen, epsilon=float(chosen.epsilon), rho=float(chosen.rho))


def _matrix(metric: FairMetric | None, directions: Any, sigma: Any, width: int) -> Any:
    """Return the matrix with d² = ‖(x - x') · matrix‖²."""
    if sum(source is not None for source in (metric, directions, sigma)) != 1:
        raise ParameterError("give the fair metric as one of metric, directions and sigma")
    if metric is not None:
        encodings = metric.encoder.columns
        if any(column.kind != "number" or column.missing for column in encodings):
            raise DataError("the fair metric is for columns of text or with missing values, not for a matrix")
        if len(encodings) != width:
            raise DataError(
                f"the fair metric is for {len(encodings)} features, but there are {width}: learn the metric on the "
                "features that the network gets"
            )
        return metric.matrix / np.array([column.scale for column in encodings])[:, None]
    from fairkit_similarity.encode import ColumnEncoding, Encoder

    names = [ColumnEncoding(name=f"x{index}", kind="number") for index in range(width)]
    encoder = Encoder(columns=tuple(names))
    if sigma is not None:
        return FairMetric.of_sigma(encoder, np.asarray(sigma), {}).matrix
    ignored = np.atleast_2d(np.asarray(directions, dtype=np.float64))
    if ignored.shape[1] != width or not np.isfinite(ignored).all():
        raise DataError(f"directions of shape {ignored.shape} do not fit {width} features, or are not finite")
    return FairMetric.projecting(encoder, ignored, {}).matrix
