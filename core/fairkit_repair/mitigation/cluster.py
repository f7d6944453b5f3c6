"""Mitigation on a cluster, up to the model: split, train, export, check."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairkit import plugins
from fairkit.data.table import Table
from fairkit.errors import ParameterError, did_you_mean
from fairkit.mitigators import TrainsInParts
from fairkit_dask.engine import DaskEngine
from fairkit_onnx.model import OnnxModel
from fairkit_onnx.write.export import export_bytes
from fairkit_repair.learners import check_target
from fairkit_repair.mitigation.choose import plugins_of
from fairkit_repair.mitigation.learned import AFTER, BEFORE, Learned, provenance, training
from fairkit_repair.mitigation.rows import COMPARED_ROWS, SAMPLE_ROWS, SpreadRows, bring, choose, table_without_columns
from fairkit_repair.mitigation.split import check_share, strata_of, stratified

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.engines.base import Engine
    from fairkit.fitted import Run
    from fairkit.mitigators import Mitigator


def learn_spread(
    engine: Engine,
    method: Mitigator,
    data: Dataset,
    test: Dataset | None,
    holdout: float,
    task: Task | None,
    run: Run,
    base: OnnxModel | None,
) -> Learned:
    """Train on a cluster; the rows are held out as in `fairkit_repair.mitigation.learned.learn_here`."""
    if not (isinstance(engine, DaskEngine) and isinstance(method, TrainsInParts) and "dask" in method.engines):
        raise ParameterError(
            f"{method.name} trains on one machine only: leave out `engine`. {did_you_mean(method.name, ['fairgbm'])}"
        )
    method.learner(run)  # refused before rows are read
    engine.check(*plugins.needs_of(plugins_of([method.name])))
    train_data, test_data = _split(engine, data, test, holdout, task, run.seed)
    table, _ = table_without_columns(engine, train_data, task)
    check_target(table)
    sample = Table.from_dataset(bring(engine, train_data, SAMPLE_ROWS / len(table), run.rng()), task)
    rows = SpreadRows(engine, train_data)
    with training(method, table, run):
        fitted = method.fit_spread(table, rows, run)
        content = export_bytes(fitted, sample, provenance(method, run, None))
        baseline = export_bytes(method.baseline_spread(table, rows, run), sample)
    held, compared, notes = test_data.profile.rows, test_data, list[str]()
    if held > COMPARED_ROWS:
        compared = bring(engine, test_data, COMPARED_ROWS / held, run.rng())
        told = f"Before and after are compared row by row on {compared.learn().rows:,} rows of the {held:,}."
        notes.append(told)
    return Learned(
        fitted=fitted,
        model=OnnxModel(content, AFTER),
        baseline=OnnxModel(baseline, BEFORE),
        table=table,
        test=test_data,
        compared=compared,
        notes=tuple(notes),
    )


def _split(
    engine: DaskEngine, data: Dataset, test: Dataset | None, holdout: float, task: Task | None, seed: int
) -> tuple[Dataset, Dataset]:
    """Return training and test rows; the split is drawn here, as `fairkit_repair.mitigation.split_dataset` draws it."""
    data.learn(engine.total)
    if test is not None:
        test.learn(engine.total)
        return data, test
    check_share(holdout)
    table, codes = table_without_columns(engine, data, task)
    favorable = (table.target > 0).astype(np.int64)
    strata = strata_of([*(groups.codes for groups in table.groups.values()), favorable], len(table))
    held = stratified(strata, holdout, np.random.default_rng(seed))
    train = choose(engine, data, codes, ~held, f"{data.name}, training part")
    return train, choose(engine, data, codes, held, f"{data.name}, held-out part")
