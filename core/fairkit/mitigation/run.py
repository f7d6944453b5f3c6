"""From data to a mitigated model: split, fit, export, check, and audit before and after on held-out rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit import plugins
from fairkit.auditing.run import audit
from fairkit.data.dataset import BATCH_ROWS, Dataset, need_dataset
from fairkit.data.table import Table, fixed_roles
from fairkit.engines.base import opened
from fairkit.errors import DataError, ParameterError, PluginError, did_you_mean
from fairkit.files import check_writable, write_atomic
from fairkit.fitted import FittedModel, Run
from fairkit.mitigators import Mitigator
from fairkit.models.scorer import ModelOptions
from fairkit.onnx.read.safety import digest
from fairkit.onnx.write.export import export
from fairkit.parameters.declare import parameters_to_dict, parse_parameters
from fairkit.progress import no_progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit.engines.base import Engine
    from fairkit.onnx.model import OnnxModel
    from fairkit.progress import Progress
    from fairkit.results.comparisons import Change
    from fairkit.results.findings import Report
    from fairkit.results.policy import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class MitigationResult:
    """A mitigated model with the audits before and after, on the same held-out rows.

    Attributes
    ----------
    plugin, parameters
        The method and all its parameters, defaults too, as plain values.
    before, after
        Reports on the held-out rows: of the same learner without mitigation (or of the given model), and of
        the exported file.
    onnx
        The file's bytes; `after` has their digest.
    baseline_onnx
        The bytes of the model that `before` is about.
    fitted
        The model in memory.
    train_rows, test_rows
        How many rows each part has.
    notes
        What the user must know.
    held_out
        What the method itself measured on the held-out rows.
    """

    plugin: str
    parameters: Mapping[str, Any]
    before: Report
    after: Report
    onnx: bytes
    baseline_onnx: bytes
    fitted: FittedModel
    train_rows: int
    test_rows: int
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    held_out: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The digest of the file."""
        return digest(self.onnx)

    @property
    def details(self) -> Mapping[str, Any]:
        """What happened during training, and what the method measured since; plain JSON values."""
        return dict(self.fitted.details) | dict(self.held_out)

    def save(self, path: str | Path) -> Path:
        """Write the file, atomically, and beside it what the method attaches, such as a frontier's drawing.

        Raises
        ------
        FairkitError
            The folder does not exist or is not writable.
        """
        target = Path(path)
        write_atomic(target, self.onnx)
        for suffix, text in self.fitted.attachments(self.details).items():
            write_atomic(target.with_suffix(suffix), text.encode())
        return target

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, schema ``fairkit.mitigation/1``."""
        return {
            "schema": "fairkit.mitigation/1",
            "plugin": self.plugin,
            "parameters": dict(self.parameters),
            "model": {"sha256": self.sha256, "bytes": len(self.onnx)},
            "rows": {"train": self.train_rows, "test": self.test_rows},
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "changes": [change.to_dict() for change in self.changes],
            "details": dict(self.details),
            "notes": list(self.notes),
        }


def mitigate(
    plugin: str | type[Mitigator] | Mitigator,
    data: Dataset,
    *,
    test: Dataset | None = None,
    holdout: float = 0.2,
    model: Any = None,
    learner: Any = None,
    task: Task | None = None,
    seed: int = 0,
    threads: int | None = None,
    policy: Sequence[Rule] = (),
    confidence: float = 0.95,
    output: str | Path | None = None,
    progress: Progress = no_progress,
    engine: Engine | str | None = None,
    scheduler: str | None = None,
    **parameters: Any,
) -> MitigationResult:
    """Train or repair a model so that it treats people more alike, and measure it before and after.

    Parameters
    ----------
    plugin
        The method's name, such as ``"fairgbm"``, or a mitigator (class).
    data
        Rows to learn from, from `fairkit.load_data`.
    test
        Rows to audit on. Without them a share of `data` is held out, drawn evenly from every group and class.
    holdout
        That share, in (0, 1).
    model
        The base model, for post-processing: a path, bytes, or `OnnxModel`.
    learner
        For methods that take one.
    task
        Default: told by the label.
    seed
        For every random draw.
    threads
        Default: left to the libraries.
    policy
        Rules that the result is judged by (`after.verdict`).
    confidence
        Of the intervals.
    output
        Where the result will be saved: checked before training, written at the end.
    progress
        Told about every round.
    engine
        ``"dask"`` trains and audits on a cluster, where the method can (see `fairkit.engines.opened`).
    scheduler
        The cluster's address; None starts one on this machine.
    **parameters
        The method's own, as Python values or text.

    Returns
    -------
    MitigationResult
        Equal for equal inputs.

    Raises
    ------
    FairkitError
        The plugin, its parameters, the data or the model cannot be used.

    Examples
    --------
    >>> data = fairkit.load_data("adult.parquet", label="income", favorable=">50K",
    ...                          sensitive="sex")                                      # doctest: +SKIP
    >>> fairkit.mitigate("fairgbm", data, constraint="fnr").save("fair.onnx")          # doctest: +SKIP
    """
    need_dataset(data)
    if output is not None:
        check_writable(Path(output))
    method = as_mitigator(plugin, parameters)
    base = _base_model(method, model)
    run = Run(seed=seed, threads=threads, learner=learner, progress=progress)
    with opened(engine, scheduler) as running:
        if running is None:
            learned = _learn(method, data, test, holdout, task, run, base)
        else:
            from fairkit.mitigation.cluster import learn

            learned = learn(running, method, data, test, holdout, task, run)
        result = _measured(learned, method, base, policy, confidence, seed, running)
    if output is not None:
        result.save(output)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A fitted model, and what it is measured with.

    Attributes
    ----------
    fitted, content, baseline
        The model, its file, and the file of the model before.
    table
        The training rows.
    test
        Rows to audit on.
    compared
        Those of them on which before and after are compared row by row.
    notes
        What the user must know about this.
    """

    fitted: FittedModel
    content: bytes
    baseline: bytes
    table: Table
    test: Dataset
    compared: Dataset
    notes: tuple[str, ...] = ()


def _learn(
    method: Mitigator,
    data: Dataset,
    test: Dataset | None,
    holdout: float,
    task: Task | None,
    run: Run,
    base: OnnxModel | None,
) -> Learned:
    """Train on this machine."""
    train_data, test_data = (data, test) if test is not None else split_dataset(data, holdout, run.seed)
    table = Table.from_dataset(train_data, task)
    _check_task(method, table)
    method.learner(run)  # refuses what the method cannot use before anything is trained
    with plugins.blame(plugins.owner_of(method.name), f"the method {method.name!r} trained its model"):
        fitted = method.fit(table, run, validation=None, model=base)
        content = export(fitted, table, _mitigation(method, run, base)).SerializeToString(deterministic=True)
    baseline = _baseline(method, table, run, base)
    return Learned(
        fitted=fitted, content=content, baseline=baseline, table=table, test=test_data, compared=test_data
    )


def _measured(
    learned: Learned,
    method: Mitigator,
    base: OnnxModel | None,
    policy: Sequence[Rule],
    confidence: float,
    seed: int,
    engine: Engine | None,
) -> MitigationResult:
    """Audit before and after."""
    fitted, table, test_data = learned.fitted, learned.table, learned.test
    content, baseline, options = learned.content, learned.baseline, method.model_options()
    held = {} if engine is not None else _held_out(fitted, test_data, table, confidence)
    compared = baseline if base is None or not base.external else base
    with TemporaryDirectory() as folder:
        auditors = fitted.audits(Path(folder))
        told = (test_data, table, policy, confidence, seed, auditors)
        before = _audit(compared, "before", *told, options, engine)
        after = _audit(content, "after", *told, engine=engine)
    return MitigationResult(
        plugin=method.name,
        parameters=parameters_to_dict(method.parameters),
        before=before,
        after=after,
        onnx=content,
        baseline_onnx=baseline,
        fitted=fitted,
        train_rows=len(table),
        test_rows=test_data.info().rows,
        changes=_paired_changes(compared, content, learned.compared, table, options, confidence),
        notes=(*fitted.notes, *learned.notes, *held.pop("notes", ())),
        held_out=held,
    )


def _held_out(fitted: FittedModel, data: Dataset, table: Table, confidence: float) -> dict[str, Any]:
    """Return what the method measures on held-out rows; they are read into memory only where it does."""
    if type(fitted).held_out is FittedModel.held_out:
        return {}
    return dict(fitted.held_out(Table.from_dataset(data, table.task), confidence))


def as_mitigator(plugin: str | type[Mitigator] | Mitigator, parameters: Mapping[str, Any]) -> Mitigator:
    """Make a mitigator with checked parameters from a name, a class, or an instance (whose own they change).

    Raises
    ------
    PluginError
        No installed plugin of that name has a mitigator.
    ParameterError
        See `fairkit.parameters.parse_parameters`.
    """
    if isinstance(plugin, Mitigator):
        if not parameters:
            return plugin
        fields = {field.name: getattr(plugin.parameters, field.name) for field in _fields(plugin.parameters)}
        return type(plugin)(parse_parameters(plugin.Parameters, fields | dict(parameters), owner=plugin.name))
    return find_mitigator(plugin).with_values(parameters)


def find_mitigator(plugin: str | type[Mitigator]) -> type[Mitigator]:
    """Return a mitigator's class by its plugin's name.

    Raises
    ------
    PluginError
        There is no such plugin, it does not load, or it mitigates nothing.
    """
    if not isinstance(plugin, str):
        return plugin
    loaded = plugins.load(plugin)
    if not loaded.mitigators:
        names = [row.found.name for row in plugins.explain_all() if "mitigator" in row.kinds]
        hint = did_you_mean(plugin, names, what="mitigators")
        raise PluginError(f"the plugin {plugin!r} has no mitigator. {hint}")
    return loaded.mitigators[0]


def split_dataset(data: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """Split a dataset's rows into two datasets, evenly within every combination of groups and label.

    Parameters
    ----------
    data
        Rows that it leaves out are left out of both parts.
    share
        Of the second part, in (0, 1).
    seed
        The same seed gives the same split.

    Returns
    -------
    Dataset, Dataset
        In memory, with the same roles; bins that were found in `data` are kept.
    """
    import pyarrow as pa

    from fairkit.data.sources import open_source

    if not 0 < share < 1:
        raise ParameterError(f"holdout={share} is not a share; it is between 0 and 1, such as 0.2")
    batch = data.read(())
    held = stratified(_strata(data, batch), share, np.random.default_rng(seed))
    whole = pa.Table.from_batches(list(data.source.batches(data.columns, BATCH_ROWS)))
    roles = fixed_roles(data)
    parts = []
    for rows, name in ((batch.rows[~held], "training part"), (batch.rows[held], "held-out part")):
        if len(rows) == 0:
            raise DataError(
                f"{data.name}: too few rows ({len(held)}) to hold out {share:g} of them; give --test"
            )
        parts.append(Dataset(open_source(whole.take(rows), f"{data.name}, {name}"), roles))
    return parts[0], parts[1]


def stratified(strata: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask of about `share` of the rows of every stratum, shape [n].

    A stratum of one row keeps it out of the mask.
    """
    held = np.zeros(len(strata), dtype=bool)
    for stratum in np.unique(strata):
        places = rng.permutation(np.flatnonzero(strata == stratum))
        held[places[: min(len(places) - 1, round(share * len(places)))]] = True
    return held


def _strata(data: Dataset, batch: Any) -> NDArray[np.int64]:
    codes = [batch.groups[split.name] for split in data.roles.sensitive]
    if batch.favorable is not None:
        codes.append(batch.favorable.astype(np.int64))
    elif batch.label is not None and 0 < len(data.profile.label_values) <= 20:
        codes.append(np.unique(batch.label.astype(str), return_inverse=True)[1])
    if not codes:
        return np.zeros(len(batch), dtype=np.int64)
    return np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def _fields(parameters: Any) -> tuple[Any, ...]:
    return dataclasses.fields(parameters)


def _base_model(method: Mitigator, model: Any) -> OnnxModel | None:
    if method.stage == "post" and model is None:
        raise ParameterError(f"{method.name} repairs a given model: name it with --model BASE.onnx")
    if method.stage != "post" and model is not None:
        raise ParameterError(f"{method.name} trains its own model: leave out --model")
    if model is None:
        return None
    from fairkit.onnx.model import OnnxModel

    return model if isinstance(model, OnnxModel) else OnnxModel.load(model)


def _check_task(method: Mitigator, table: Table) -> None:
    if table.task not in method.tasks:
        raise ParameterError(
            f"{method.name} is for {' and '.join(method.tasks)} tasks, but the label "
            f"{table.roles.label!r} makes this a {table.task} task"
        )


def _mitigation(method: Mitigator, run: Run, base: OnnxModel | None) -> dict[str, Any]:
    """Return what the file says about how it was made."""
    from importlib.metadata import version

    learner = method.learner(run) if method.learners else None
    return {
        "mitigation": {
            "plugin": method.name,
            "parameters": parameters_to_dict(method.parameters),
            "learner": learner,
            "seed": run.seed,
            "base_model": None if base is None else base.sha256,
            "fairkit": version("fairkit"),
        }
    }


def _baseline(method: Mitigator, table: Table, run: Run, base: OnnxModel | None) -> bytes:
    if base is not None:
        return base.content
    quiet = dataclasses.replace(run, progress=no_progress)
    return export(method.baseline(table, quiet), table).SerializeToString(deterministic=True)


def _paired_changes(
    before: bytes | OnnxModel,
    after: bytes,
    data: Dataset,
    table: Table,
    before_options: ModelOptions | None,
    confidence: float,
) -> tuple[Change, ...]:
    """Compare both models on the very rows of the audits."""
    from fairkit.comparing.run import compare

    plain = ModelOptions(task=table.task)
    models = [_as_onnx(before, "before"), _as_onnx(after, "after")]
    result = compare(models, data, confidence=confidence, options=(before_options or plain, plain))
    return result.changes[0]


def _as_onnx(content: bytes | OnnxModel, name: str) -> OnnxModel:
    from fairkit.onnx.model import OnnxModel

    return OnnxModel(content, name) if isinstance(content, bytes) else content


def _audit(
    content: bytes | OnnxModel,
    name: str,
    data: Dataset,
    table: Table,
    policy: Sequence[Rule],
    confidence: float,
    seed: int,
    auditors: Mapping[str, Mapping[str, Any]],
    options: ModelOptions | None = None,
    engine: Engine | None = None,
) -> Report:
    return audit(
        _as_onnx(content, name),
        data,
        engine=engine,
        auditors=("group", *auditors),
        parameters=auditors,
        policy=policy,
        confidence=confidence,
        seed=seed,
        options=options or ModelOptions(task=table.task),
    )
