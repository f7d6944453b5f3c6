"""FairGBM where the rows are: XGBoost trains on the Dask workers, the hooks of `xgb` sum the rates over them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import EngineError, MissingExtraError
from fairkit_fairgbm.constraints import make_cells
from fairkit_fairgbm.xgb import Hooks, start_of, trained
from fairkit_onnx.write.cells import MISSING_TEXT
from fairkit_onnx.write.encode import MAX_ONE_HOT, Encoder, fit_encoder
from fairkit_onnx.write.export import TabularModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.data.source import Source
    from fairkit.engines.rows import RowsInParts
    from fairkit.mitigators import Groups, Table
    from fairkit.progress import Progress
    from fairkit_fairgbm.constraints import ConstraintCells, Constraints
    from fairkit_fairgbm.trainer import Trained, TrainerSettings

TOPIC = "fairkit-fairgbm"
_COLLECTIVE_TIMEOUT = 30
"""Seconds after which a worker that waits for a lost one gives up."""


def cells(table: Table, groups: Groups, mask: NDArray[np.bool_] | None, *, held: bool) -> ConstraintCells:
    """Split the training rows, or those held for validation, by group and label."""
    codes, target, weights = groups.codes, table.target, table.weights
    if mask is not None:
        kept = mask if held else ~mask
        codes, target = codes[kept], target[kept]
        weights = None if weights is None else weights[kept]
    return make_cells(codes, target, groups.names, weights)


def train(
    rows: RowsInParts,
    table: Table,
    groups: Groups,
    is_validation: NDArray[np.bool_] | None,
    constraints: Constraints,
    settings: TrainerSettings,
    *,
    progress: Progress,
) -> tuple[Trained, Encoder]:
    """Train on the workers; `is_validation` marks the validation rows."""
    rows.engine.check({}, ("xgboost",))
    encoder = learn_encoder(rows, table)
    codes = (2 * groups.codes + (table.target > 0)).astype(np.uint8 if len(groups.names) <= 128 else np.uint32)
    start = start_of(cells(table, groups, is_validation, held=False).weight)
    hooks = Hooks(f"fairgbm-{uuid.uuid4().hex}", constraints, settings, groups.names)
    with _xgboost() as (xgboost, xgd), _told(rows, progress), _watched(rows) as run:
        matrices = _matrices(xgd, rows, encoder, codes, table.weights, is_validation, settings.params)
        evals = [(matrices[1], "validation")] if len(matrices) > 1 else []
        result = run(
            xgd.train,
            rows.engine.client,
            hooks.params(start) | {"nthread": 1},
            matrices[0],
            num_boost_round=settings.rounds,
            obj=hooks.objective,
            evals=evals,
            custom_metric=hooks.metric if evals else None,
            callbacks=[hooks.callback(_tell)],
            verbose_eval=False,
            coll_cfg=xgboost.collective.Config(timeout=_COLLECTIVE_TIMEOUT),
        )
    return trained(result["booster"], start), encoder


def baseline(rows: RowsInParts, table: Table, params: Mapping[str, Any], rounds: int) -> TabularModel:
    """Train stock XGBoost on the workers."""
    encoder = learn_encoder(rows, table)
    labels = (table.target > 0).astype(np.uint8)
    with _xgboost() as (xgboost, xgd), _watched(rows) as run:
        matrix = _matrices(xgd, rows, encoder, labels, table.weights, None, params)[0]
        result = run(
            xgd.train,
            rows.engine.client,
            {**params, "objective": "binary:logistic", "nthread": 1},
            matrix,
            num_boost_round=rounds,
            verbose_eval=False,
            coll_cfg=xgboost.collective.Config(timeout=_COLLECTIVE_TIMEOUT),
        )
    return TabularModel(encoder=encoder, estimator=result["booster"], task="binary")


def learn_encoder(rows: RowsInParts, table: Table) -> Encoder:
    """Fit the encoder of one machine (one-hot text) from what the parts count."""
    counted: dict[str, Counter[str] | None] = {}
    for part in rows.collect(count_texts, table.features):
        for name, texts in part.items():
            have = counted.get(name)
            counted[name] = texts if have is None or texts is None else have + texts
    columns: dict[str, NDArray[Any]] = {}
    for name in table.features:
        texts = counted[name]
        if texts is None:
            columns[name] = np.zeros(1)
            continue
        kept = sorted(texts.items(), key=lambda item: (-item[1], item[0]))[:MAX_ONE_HOT]
        columns[name] = np.array([text for text, _ in kept], dtype=object)
    return fit_encoder(columns, table.features, text="onehot")


def count_texts(
    source: Source, start: int, dataset: Dataset, features: tuple[str, ...]
) -> dict[str, Counter[str] | None]:
    """Count a part's texts by column; None for numbers, whose finiteness is checked."""
    counts: dict[str, Counter[str] | None] = {}
    for batch in dataset.part(source, start).batches(features):
        for name in features:
            values = batch.column(name)
            encoder = fit_encoder({name: values[:1000]}, [name], text="onehot")
            if not hasattr(encoder.columns[0], "categories"):
                fit_encoder({name: values}, [name], text="onehot")
                counts.setdefault(name, None)
                continue
            texts = [MISSING_TEXT if v is None or v != v else str(v) for v in values.tolist()]  # noqa: PLR0124
            counts[name] = Counter(texts) + (counts.get(name) or Counter())
    return counts


def encode(
    source: Source,
    start: int,
    dataset: Dataset,
    codes: NDArray[Any],
    weights: NDArray[np.float32] | None,
    is_validation: NDArray[np.bool_] | None,
    encoder: Encoder,
) -> list[NDArray[np.float32]]:
    """Encode a part: matrix, cells and weights of its training rows, then the same of its validation rows."""
    features = dataset.features
    found = [encoder.transform(batch.columns(features)) for batch in dataset.part(source, start).batches(features)]
    matrix = np.concatenate(found) if found else np.empty((0, len(encoder.names)), np.float32)
    cell = codes.astype(np.float32)
    weight = np.ones(len(cell), np.float32) if weights is None else weights
    if is_validation is None:
        return [matrix, cell, weight]
    return [
        matrix[~is_validation],
        cell[~is_validation],
        weight[~is_validation],
        matrix[is_validation],
        cell[is_validation],
        weight[is_validation],
    ]


def _matrices(
    xgd: Any,
    rows: RowsInParts,
    encoder: Encoder,
    codes: NDArray[Any],
    weights: NDArray[Any] | None,
    is_validation: NDArray[np.bool_] | None,
    params: Mapping[str, Any],
) -> list[Any]:
    """Make XGBoost's distributed matrices: training rows, and validation rows where some are held."""
    import dask
    import dask.array as da

    client = rows.engine.client
    nothing = [None] * len(rows.sizes())
    cut_weights = nothing if weights is None else rows.cut(weights)
    cut_held = nothing if is_validation is None else rows.cut(is_validation)
    arrays: list[list[Any]] = [[] for _ in range(3 if is_validation is None else 6)]
    own = list(zip(rows.cut(codes), cut_weights, cut_held, strict=True))
    tasks = rows.tasks(encode, own, rows.engine.share(encoder))
    for made, (code, _, mask) in zip(tasks, own, strict=True):
        lengths = [len(code)] if mask is None else [int((~mask).sum()), int(mask.sum())]
        for number, array in enumerate(arrays):
            length = lengths[number // 3]
            shape = (length, len(encoder.names)) if number % 3 == 0 else (length,)
            if length:
                piece = dask.delayed(_pick)(made, number)
                array.append(da.from_delayed(piece, shape, np.float32))
    matrices: list[Any] = []
    for at in range(0, len(arrays), 3):
        matrix, label, weight = (da.concatenate(array) for array in arrays[at : at + 3])
        told = {} if weights is None else {"weight": weight}
        told |= {"max_bin": int(params.get("max_bin", 256))} if at == 0 else {"ref": matrices[0]}
        matrices.append(xgd.DaskQuantileDMatrix(client, matrix, label, **told))
    return matrices


def _pick(arrays: list[Any], number: int) -> Any:
    return arrays[number]


@contextmanager
def _xgboost() -> Iterator[tuple[Any, Any]]:
    try:
        import xgboost
        import xgboost.dask as xgd
    except ImportError as error:
        raise MissingExtraError("xgboost", "xgboost") from error
    yield xgboost, xgd


def _tell(doing: str, done: int, total: int, **values: float) -> None:
    """Tell the client of a round, from the worker that came first in the collective."""
    from distributed import get_worker
    from xgboost import collective

    if collective.get_rank() == 0:
        get_worker().log_event(TOPIC, {"doing": doing, "done": done, "total": total, **values})


@contextmanager
def _told(rows: RowsInParts, progress: Progress) -> Iterator[None]:
    client = rows.engine.client

    def show(event: Any) -> None:
        _, record = event
        progress(**record)

    client.subscribe_topic(TOPIC, show)
    try:
        yield
    finally:
        client.unsubscribe_topic(TOPIC)


@contextmanager
def _watched(rows: RowsInParts) -> Iterator[Callable[..., Any]]:
    """Return a function that runs another while all workers live, and raises EngineError when one is lost."""
    from concurrent.futures import ThreadPoolExecutor, wait

    client = rows.engine.client

    def alive() -> set[str]:
        return set(client.scheduler_info(n_workers=-1)["workers"])

    before = alive()

    def run(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        pool = ThreadPoolExecutor(1)
        try:
            future = pool.submit(function, *arguments, **options)
            while not wait([future], timeout=0.5).done:
                if gone := before - alive():
                    raise _lost(gone)
            error = future.exception()
            if error is not None and (gone := before - alive()):
                raise _lost(gone) from error
            return future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    yield run


def _lost(gone: set[str]) -> EngineError:
    return EngineError(
        f"the worker {', '.join(sorted(gone))} was lost in training, and its rows with it; nothing was written. Most "
        "often it ran out of memory: give workers more, or take more of them, and start again"
    )
