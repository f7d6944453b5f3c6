"""Holding rows out: a share of every stratum, drawn from the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.dataset import BATCH_ROWS, Dataset
from fairkit.data.table import fixed_roles
from fairkit.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

MOST_CLASSES = 20
"""A label of more values is no stratum."""
_WIDE = 2**31


def split_dataset(data: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """Split a dataset's rows into two datasets, evenly within every combination of groups and label.

    Rankings are split by queries: the items of a query stay together.
    """
    import pyarrow as pa

    from fairkit.data.sources import open_source

    check_share(share)
    batch = data.read(())
    if batch.queries is not None:
        held_out = whole_queries(batch.queries, share, np.random.default_rng(seed))
    else:
        held_out = stratified(_strata(data, batch), share, np.random.default_rng(seed))
    whole = pa.Table.from_batches(list(data.source.batches(data.columns, BATCH_ROWS)))
    roles = fixed_roles(data)
    parts = []
    for rows, name in ((batch.rows[~held_out], "training part"), (batch.rows[held_out], "held-out part")):
        if len(rows) == 0:
            raise DataError(f"{data.name}: too few rows ({len(held_out)}) to hold out {share:g} of them; give `test`")
        parts.append(Dataset(open_source(whole.take(rows), f"{data.name}, {name}"), roles))
    return parts[0], parts[1]


def whole_queries(queries: NDArray[Any], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask of the rows of about `share` of the queries, shape [n]: the items of a query stay together."""
    names, codes = np.unique(queries, return_inverse=True)
    chosen = np.zeros(len(names), dtype=bool)
    chosen[rng.permutation(len(names))[: min(len(names) - 1, round(share * len(names)))]] = True
    return np.asarray(chosen[codes.ravel()])


def check_share(share: float) -> None:
    """Raise ParameterError where a share of rows is not between 0 and 1."""
    if not 0 < share < 1:
        raise ParameterError(f"holdout={share} is not a share; it is between 0 and 1, such as 0.2")


def stratified(strata: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask of about `share` of the rows of every stratum, shape [n].

    A stratum of one row keeps it out of the mask.
    """
    held = np.zeros(len(strata), dtype=bool)
    for stratum in np.unique(strata):
        places = rng.permutation(np.flatnonzero(strata == stratum))
        held[places[: min(len(places) - 1, round(share * len(places)))]] = True
    return held


def strata_of(codes: Iterable[NDArray[Any]], rows: int) -> NDArray[np.int64]:
    """Number the combinations of several codings of the rows, in the order of the first, then the second, ..."""
    strata, count = np.zeros(rows, dtype=np.int64), 1
    for one in codes:
        size = int(one.max(initial=0)) + 1
        if count > _WIDE // size:
            present, strata = np.unique(strata, return_inverse=True)
            strata, count = strata.ravel().astype(np.int64), len(present)
        strata, count = strata * size + one, count * size
    return strata


def _strata(data: Dataset, batch: Any) -> NDArray[np.int64]:
    """Number the combinations of groups and label."""
    codes = [batch.groups[split.name] for split in data.roles.sensitive]
    if batch.favorable is not None:
        codes.append(batch.favorable.astype(np.int64))
    elif batch.label is not None and 0 < len(data.profile.label_values) <= MOST_CLASSES:
        codes.append(np.unique(batch.label.astype(str), return_inverse=True)[1])
    return strata_of(codes, len(batch))
