"""From a table to a network: metric, features, validation rows, one training for each ρ."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ModelError
from fairkit_repair.learners import check_target
from fairkit_repair.learners.networks import device_for, fully_connected
from fairkit_repair.mitigation.split import stratified
from fairkit_sensei.architecture import in_units
from fairkit_sensei.counterfactuals import ColumnFlips, find_flips
from fairkit_sensei.frontier import Frontier, Yardstick
from fairkit_sensei.metric import make_metric, plain_encoder, shared_features
from fairkit_sensei.model import NetworkModel
from fairkit_sensei.records import SenSeIRows, SenSeISettings, Trained, usual_rho
from fairkit_sensei.training import train
from fairkit_sensei.versions import Versions
from fairkit_similarity.geometry import Geometry
from fairkit_similarity.training import sensitive_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Run, Table
    from fairkit.progress import Progress
    from fairkit_onnx.write.encode import Encoder
    from fairkit_sensei.counterfactuals import Counterfactuals, Flip
    from fairkit_similarity.metric import FairMetric

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
    flips: Sequence[Flip]
    versions: Versions | None
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
        device_for(parameters.device, extra="sensei")
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
        versions: Versions | None = None
        flipped: Counterfactuals | None = None
        if settings.method == "clp" and counterfactuals is None:
            flipped = ColumnFlips(flips, encoder, inside.columns)
        elif settings.method == "clp":
            versions = Versions.read(counterfactuals, parameters.of, table, encoder)
            found = versions.of(features)
            flipped, notes = found, notes + versions.note(found, len(inside))
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
            flips=flips,
            versions=versions,
            flipped=flipped,
            scale=scale,
            notes=notes,
        )

    def fit(self) -> NetworkModel:
        """Train for every ρ, and return the chosen network."""
        given: tuple[float, ...] | None = self.parameters.rho
        rhos = (usual_rho(len(self.table)),) if given is None else given
        chosen = rhos[0] if self.parameters.choose is None else self.parameters.choose
        if self.settings.method in ("sensr", "erm"):
            rhos = (chosen,)
        trained = [self._train(rho, place, len(rhos)) for place, rho in enumerate(rhos)]
        best = trained[rhos.index(chosen)]
        frontier, train_points = None, []
        if len(rhos) > 1:
            yardstick = Yardstick(
                task=self.table.task,
                encoder=self.encoder,
                geometry=self.geometry,
                epsilon=self.settings.epsilon,
                flips=self.flips,
                versions=self.versions,
                seed=self.run.seed,
            )
            frontier = Frontier(
                rhos=rhos, modules=tuple(one.module for one in trained), chosen=chosen, yardstick=yardstick
            )
            train_points = frontier.measure(self.table, 0.95)
        details: dict[str, Any] = {
            "history": [dict(record) for record in best.history],
            "kept_epoch": best.best,
            "rho": chosen,
        }
        if self.metric is not None and self.geometry is not None:
            details["metric_sha256"] = self.metric.sha256
            details["free_directions"] = int(self.geometry.free.shape[1])
        if frontier is not None:
            details["frontier"] = frontier.to_dict(train_points, None)
        notes = [*self.notes, *(note for one in trained for note in one.notes)]
        return NetworkModel(
            encoder=self.encoder,
            estimator=best.module,
            task=self.table.task,
            details=_plain(details),
            notes=tuple(dict.fromkeys(notes)),
            metric=self.metric,
            frontier=frontier,
            train=train_points,
            audited_at=self.settings.epsilon if self.parameters.fair_metric == "subspace" else None,
        )

    def _train(self, rho: float, index: int, count: int) -> Trained:
        epochs = self.settings.epochs or 1

        def progress(doing: str, done: int, total: int, **values: float) -> None:
            self.run.progress(doing, index * epochs + done, count * epochs, **values)

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
            progress=progress,
        )
        self.run.progress("training epochs", (index + 1) * epochs, count * epochs)
        return trained


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
    held = stratified(classes, HELD_OUT, np.random.default_rng([seed, 3]))
    if held.sum() < 30:
        return table, None
    kept, outside = table.take(~held), table.take(held)
    if np.unique(kept.target).size < np.unique(table.target).size and table.task != "regression":
        raise DataError(f"{table.name}: a class has too few rows to learn from")
    return kept, outside


def _rows(features: NDArray[np.float32], table: Table, scale: tuple[float, float]) -> SenSeIRows:
    if not np.isfinite(features).all():
        raise DataError(f"{table.name}: encoded features hold numbers that are not finite")
    return SenSeIRows(x=features, target=(table.target - scale[1]) / scale[0], weights=table.weights)


def _plain(value: Any) -> Any:
    """Make numbers JSON can hold: what is not finite becomes None."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
