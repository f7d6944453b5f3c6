"""From a table to a network: rows, groups, one training, and the network that is kept."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit_adversarial_debiasing.adversary import make_adversary
from fairkit_adversarial_debiasing.groups import Protected, protect
from fairkit_adversarial_debiasing.training import TrainingSettings, train
from fairkit_onnx.write.encode import fit_encoder
from fairkit_onnx.write.export import TabularModel
from fairkit_repair.learners import check_target
from fairkit_repair.learners.networks import device_for, fully_connected
from fairkit_repair.mitigation.split import strata_of, stratified

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairkit.mitigators import Run, Table
    from fairkit_adversarial_debiasing.training import Stage
    from fairkit_onnx.write.encode import Encoder

STEPS = 2_000
"""About so many batches take a small table from the plain network to one without group differences."""
EPOCHS = 30
MOST_ROWS = 50_000
"""At most so many rows measure a network on the way."""


ONE_GROUP = "All rows are in one group: there is nothing to equalize, and the plain network was trained."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Way:
    """What training gave: the network's form, and its parameters on the way."""

    network: Any
    stages: Sequence[Stage]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitting:
    """What is known before the training."""

    run: Run
    parameters: Any
    settings: TrainingSettings
    encoder: Encoder
    inside: Table  # the rows that train
    protected: Sequence[Protected]
    outside: Table  # the rows that measure the accuracy of the networks on the way
    compared: Table  # the rows that measure their disparity: those of the user's to choose by, else all
    notes: tuple[str, ...]

    @classmethod
    def prepare(
        cls, table: Table, run: Run, parameters: Any, *, validation: Table | None = None, adversary: bool = True
    ) -> Fitting:
        """Check the table, and split off validation rows where none are given."""
        check_target(table)
        _counts(table, balanced=False)
        device_for(parameters.device, extra="adversarial-debiasing")
        constraint, protected, notes = parameters.constraint, list[Protected](), tuple[str, ...]()
        if adversary:
            protected, notes = protect(table, constraint, parameters.sensitive, parameters.min_group)
            if not protected:
                notes = (*notes, ONE_GROUP)
        inside, outside = _split(table, validation, parameters.validation_share, run.seed)
        return cls(
            run=run,
            parameters=parameters,
            settings=_settings(parameters, len(inside)),
            encoder=fit_encoder(
                inside.columns, inside.features, text="onehot", standardise=True, fill=True, weights=inside.weights
            ),
            inside=inside,
            protected=[Protected.of(inside, constraint, one.name, one.names) for one in protected],
            outside=_some(outside, run.seed),
            compared=_some(table if validation is None else validation, run.seed),
            notes=notes,
        )

    def train(self) -> Way:
        """Train the network and its adversaries."""
        chosen, seed = self.parameters, self.run.seed
        x = self.encoder.transform(self.inside.columns)
        network = fully_connected(x.shape[1], chosen.hidden, 1, seed=seed)
        label = chosen.constraint == "equalized_odds"
        adversaries = [
            make_adversary(one.count, chosen.adversary_hidden, label=label, seed=seed + 1 + place)
            for place, one in enumerate(self.protected)
        ]
        stages, notes = train(
            network,
            adversaries,
            x,
            self.inside.target,
            _counts(self.inside, balanced=chosen.balanced),
            self.protected,
            self.settings,
            self._measure(),
            device=device_for(chosen.device, extra="adversarial-debiasing"),
            seed=seed,
            threads=self.run.threads,
            progress=self.run.progress,
        )
        return Way(network=network, stages=stages, notes=notes)

    def _measure(self) -> Callable[[Any], tuple[float, float, bool]]:
        """Return a function of a network: its accuracy, its disparity, whether it is constant."""
        outside, compared = self.outside, self.compared
        rows = [self.encoder.transform(part.columns) for part in (outside, compared)]
        counts = _counts(outside, balanced=self.parameters.balanced)
        groups = [Protected.of(compared, self.parameters.constraint, one.name, one.names) for one in self.protected]

        def measure(network: Any) -> tuple[float, float, bool]:
            right = _accepted(network, rows[0]) == (outside.target == 1)
            accepted = _accepted(network, rows[1])
            gaps = [one.disparity(accepted, compared.row_weights()) for one in groups]
            constant = bool(accepted.all() or not accepted.any())
            return float((right * counts).mean()), max(gaps, default=0.0), constant

        return measure

    def choose(self, way: Way, tolerance: float) -> TabularModel:
        """Return the network of the way that is the most accurate within the tolerance.

        Without one: the network with the smallest disparity, and a note. One that decides all alike is never taken
        while another one is there.
        """
        if not way.stages:
            raise DataError(f"{self.inside.name}: {' '.join(way.notes)}")
        useful = [stage for stage in way.stages if not stage.constant] or way.stages
        within = [stage for stage in useful if stage.disparity <= tolerance]
        notes = [*self.notes, *way.notes]
        if within:
            best = max(within, key=lambda stage: stage.accuracy)
        else:
            best = min(useful, key=lambda stage: stage.disparity)
            notes.append(
                f"No network on the way had a disparity of at most {tolerance:g}: the one with the smallest, "
                f"{best.disparity:.3g}, was kept. Allow more, train longer (`epochs`), or raise `adversary_weight`."
            )
        network = copy.deepcopy(way.network)
        network.load_state_dict(best.state)
        return TabularModel(
            encoder=self.encoder,
            estimator=network.eval(),
            details={
                "kept_epoch": best.epoch,
                "tolerance_met": bool(within),
                "groups": {one.name: list(one.names) for one in self.protected},
                "history": [_record(stage) for stage in way.stages],
            },
            notes=tuple(notes),
        )


def _settings(parameters: Any, rows: int) -> TrainingSettings:
    batch = parameters.batch or min(256, max(32, rows // 100))
    steps = max(1, rows // batch)
    given = {field.name: getattr(parameters, field.name) for field in dataclasses.fields(TrainingSettings)}
    return TrainingSettings(**given | {"batch": batch, "epochs": parameters.epochs or max(EPOCHS, -(-STEPS // steps))})


def _split(table: Table, validation: Table | None, share: float, seed: int) -> tuple[Table, Table]:
    """Hold out validation rows, evenly from every group and outcome, where none are given."""
    if validation is not None:
        return table, validation
    codes = [table.target.astype(np.int64), *(groups.codes for groups in table.groups.values())]
    held = stratified(strata_of(codes, len(table)), share, np.random.default_rng([seed, 3]))
    kept = table.take(~held)
    if not held.any() or np.unique(kept.target).size < 2 or kept.row_weights().sum() <= 0:
        return table, table
    return kept, table.take(held)


def _some(table: Table, seed: int) -> Table:
    if len(table) <= MOST_ROWS:
        return table
    picked = np.random.default_rng([seed, 4]).choice(len(table), MOST_ROWS, replace=False)
    return table.take(np.sort(picked))


def _counts(table: Table, *, balanced: bool) -> NDArray[np.float64]:
    """Return the rows' weights, of mean 1; balanced: both outcomes have the same total weight."""
    weights = table.row_weights().astype(np.float64)
    if balanced:
        codes = table.target.astype(np.int64)
        weights = weights / np.maximum(np.bincount(codes, weights, minlength=2), 1e-300)[codes]
    total = float(weights.sum())
    if total <= 0:
        raise DataError(f"{table.name}: all sample weights are 0; nothing to learn")
    return np.asarray(weights * len(table) / total)


def _accepted(network: Any, rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    import torch

    with torch.no_grad():
        device = next(network.parameters()).device
        return np.asarray(network(torch.from_numpy(rows).to(device))[:, 0].cpu().numpy() >= 0)


def _record(stage: Stage) -> dict[str, Any]:
    names = ("epoch", "weight", "loss", "adversary", "accuracy", "disparity")
    return {name: round(float(getattr(stage, name)), 6) for name in names}
