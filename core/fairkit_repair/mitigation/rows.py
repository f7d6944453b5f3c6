"""Mitigation on a cluster: rows stay on the workers; groups, labels and the split into parts are drawn here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.dataset import Dataset
from fairkit.data.profile import BATCH_ROWS
from fairkit.data.table import Groups, Table, fixed_roles, target_of
from fairkit.data.task import choose_task
from fairkit.errors import DataError, ParameterError
from fairkit_repair.mitigation.split import strata_of, stratified

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.source import Source
    from fairkit.data.task import Task
    from fairkit_dask.engine import DaskEngine

SAMPLE_ROWS = 20_000
"""Training rows that come here, for the checks of the exported file."""

COMPARED_ROWS = 500_000
"""Held-out rows that come here, at most, for the paired comparison before and after."""


@dataclass(frozen=True, slots=True)
class Codes:
    """What a part's rows are: which are used, their groups, labels, weights; a few bytes a row."""

    rows: int
    used: NDArray[np.int64]
    groups: dict[str, NDArray[Any]]
    label: NDArray[Any]
    weights: NDArray[np.float32] | None


class SpreadRows:
    """Rows on the workers of a Dask engine (see `fairkit.engines.rows.RowsInParts`)."""

    def __init__(self, engine: DaskEngine, data: Dataset) -> None:
        self.engine, self.data = engine, data

    def sizes(self) -> list[int]:
        """See `RowsInParts.sizes`."""
        return list(self.engine.counts(self.data.source))

    def cut(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """See `RowsInParts.cut`."""
        return np.split(values, np.cumsum(self.sizes())[:-1])

    def collect(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        """See `RowsInParts.collect`."""
        return self.engine.map(function, self.data.source, self._dataset(), *shared).collect()

    def tasks(self, function: Callable[..., Any], each: Iterable[tuple[Any, ...]], *shared: Any) -> list[Any]:
        """See `RowsInParts.tasks`."""
        dataset = self._dataset()
        own = [(dataset, *one) for one in each]
        return self.engine.start(function, self.data.source, own, *shared)

    def _dataset(self) -> Any:
        """Share the dataset, without its rows, as `Dataset.part` on the workers needs it."""
        return self.engine.share(self.data.without_rows())


def read_codes(source: Source, start: int, dataset: Dataset) -> Codes:
    """Read what a part's rows are; they are numbered from 0."""
    view = dataset.part(source, 0)
    batches = list(view.batches())
    rows = sum(arrow.num_rows for arrow in source.batches(source.columns[:1], BATCH_ROWS))

    def joined(values: Sequence[NDArray[Any]], kind: Any) -> NDArray[Any]:
        return np.concatenate([np.asarray(v, dtype=kind) for v in values]) if values else np.empty(0, kind)

    names = [split.name for split in dataset.splits]
    favorable = dataset.roles.favorable is not None
    label: list[Any] = [batch.favorable if favorable else batch.label for batch in batches]
    weights = [batch.weights for batch in batches if batch.weights is not None]
    return Codes(
        rows=rows,
        used=joined([batch.rows for batch in batches], np.int64),
        groups={name: joined([batch.groups[name] for batch in batches], np.int32) for name in names},
        label=joined(label, bool if favorable else np.float32),
        weights=joined(weights, np.float32) if dataset.roles.weights is not None else None,
    )


def read_rows(source: Source, start: int, dataset: Dataset) -> pa.Table:
    """Bring a part's rows."""
    import pyarrow as pa

    batches = list(source.batches(source.columns, BATCH_ROWS))
    return pa.Table.from_batches(batches) if batches else None


def table_without_columns(engine: DaskEngine, data: Dataset, task: Task | None) -> tuple[Table, list[Codes]]:
    """Return a dataset's groups, target and weights as a table that has no columns."""
    roles = fixed_roles(data)
    if roles.label is None:
        raise DataError(f"{data.name}: training needs the outcome column; name it with `label`")
    chosen = choose_task(data, task)
    if chosen != "binary":
        raise ParameterError(f"on a cluster fairkit trains for binary tasks; this task is {chosen}")
    codes = SpreadRows(engine, data).collect(read_codes)
    label = np.concatenate([one.label for one in codes])
    weights = [one.weights for one in codes if one.weights is not None]
    table = Table(
        columns={},
        features=data.features,
        target=label.astype(np.float32),
        groups={
            split.name: Groups(
                split, tuple(data.group_names(split.name)), np.concatenate([one.groups[split.name] for one in codes])
            )
            for split in roles.sensitive
        },
        weights=np.concatenate(weights) if weights else None,
        task=chosen,
        classes=target_of(data),
        roles=roles,
        name=data.name,
    )
    return table, codes


def choose(engine: DaskEngine, data: Dataset, codes: Sequence[Codes], mask: NDArray[np.bool_], name: str) -> Dataset:
    """Return the dataset of some of the rows that are used; `mask` has one entry for each of these."""
    masks, at = [], 0
    for one in codes:
        chosen = np.zeros(one.rows, dtype=bool)
        chosen[one.used[mask[at : at + len(one.used)]]] = True
        at += len(one.used)
        masks.append(chosen)
    part = Dataset(data.source.chosen(masks, name), fixed_roles(data))
    part.learn(engine.total)
    return part


def bring(engine: DaskEngine, data: Dataset, share: float, rng: np.random.Generator) -> Dataset:
    """Bring some rows of a dataset here, drawn evenly from every group and class."""
    import pyarrow as pa

    from fairkit.data.sources import open_source

    rows = SpreadRows(engine, data)
    codes = rows.collect(read_codes)
    label = np.concatenate([one.label for one in codes]).astype(np.int64)
    groups = [np.concatenate([one.groups[name] for one in codes]) for name in codes[0].groups]
    strata = strata_of([label, *groups], len(label))
    mask = np.ones(len(strata), dtype=bool) if share >= 1 else stratified(strata, share, rng)
    chosen = choose(engine, data, codes, mask, data.name)
    tables = [table for table in SpreadRows(engine, chosen).collect(read_rows) if table is not None]
    return Dataset(open_source(pa.concat_tables(tables), data.name), fixed_roles(data))
