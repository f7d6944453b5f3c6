"""Tables with roles: read in batches, checked once, split into groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.arrays import as_arrow, as_numpy
from fairkit.digest import TableDigest
from fairkit.errors import DataError, did_you_mean
from fairkit.findings import DataInfo
from fairkit.groups import GroupCoder, quartile_edges
from fairkit.roles import Missing, Roles, Sensitive, require_columns, same_value, value_text
from fairkit.sources import Source, open_source

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

BATCH_ROWS = 65_536
MAX_GROUP_VALUES = 20
"""A numeric sensitive column with more distinct values than this is binned at its quartiles."""

_MAX_CLASSES = 1_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a dataset, in order: plain arrays, roles resolved.

    Attributes
    ----------
    rows
        Row numbers in the table, from 0, shape [n], int64.
    groups
        For each way to split people, the group's index for every row, shape [n], int64.
    label
        The label as it stands in the table, shape [n]; None without a label.
    favorable
        Whether the label is the favorable value, shape [n], bool; None where there is no such value.
    weights
        Sample weights, shape [n], nonnegative; None where all count the same.
    """

    rows: NDArray[np.int64]
    groups: Mapping[str, NDArray[np.int64]]
    label: NDArray[Any] | None
    favorable: NDArray[np.bool_] | None
    weights: NDArray[np.float64] | None
    _arrow: pa.RecordBatch
    _cache: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[Any]:
        """Give a column, shape [n]: text as objects (None where missing), whole numbers as int64, else float64.

        Raises
        ------
        DataError
            There is no such column.
        """
        if name not in self._cache:
            names = self._arrow.schema.names
            if name not in names:
                hint = did_you_mean(name, names, what="columns")
                raise DataError(f"there is no column {name!r} in the data. {hint}")
            self._cache[name] = as_numpy(self._arrow.column(names.index(name)))
        return self._cache[name]

    def columns(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Give several columns by name."""
        return {name: self.column(name) for name in names}


@dataclass(frozen=True, slots=True)
class Profile:
    """What one pass over the table found: digest, sizes, label values."""

    sha256: str
    rows: int
    dropped_rows: int
    groups: Mapping[str, Mapping[str, int]]
    label_values: tuple[Any, ...]
    label_range: tuple[float, float] | None
    notes: tuple[str, ...]


class Dataset:
    """A table with roles, made by `load_data`. It is read in batches and checked in the first pass.

    Rows without a label, and rows without a sensitive value (unless they are kept as a group), are
    left out everywhere and counted.
    """

    def __init__(self, source: Source, roles: Roles) -> None:
        self.source = source
        self.roles = roles
        self._coders = {split.name: GroupCoder(split, roles.missing) for split in roles.sensitive}
        self._profile: Profile | None = None

    @property
    def name(self) -> str:
        """The file's name, or what the data frame was called."""
        return self.source.name

    @property
    def columns(self) -> list[str]:
        """The table's columns."""
        return self.source.columns

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that a model gets, in order."""
        return self.roles.feature_names(self.columns)

    @property
    def profile(self) -> Profile:
        """The digest, sizes and label values; the first use reads the table once.

        Raises
        ------
        DataError
            The table is damaged or empty, the label is constant or never favorable, a sensitive column
            has one group, or a number that must be finite is not.
        """
        if self._profile is None:
            self._profile = _take_profile(self)
        return self._profile

    @property
    def sha256(self) -> str:
        """The digest of the table's content (see `fairkit.digest.TableDigest`)."""
        return self.profile.sha256

    @property
    def splits(self) -> tuple[Sensitive, ...]:
        """The ways to split people, with the bins that the first pass found."""
        self.profile  # noqa: B018 -- the pass that finds the bins
        return tuple(coder.split for coder in self._coders.values())

    def group_names(self, sensitive: str) -> list[str]:
        """Give the groups' names; a batch's group indices point into this list."""
        self.profile  # noqa: B018 -- the pass that finds the groups
        return self._coders[sensitive].names

    def batches(self, columns: Sequence[str] = (), rows: int = BATCH_ROWS) -> Iterator[Batch]:
        """Read the rows that are used, in order, with the given columns besides those that have a role."""
        self.profile  # noqa: B018 -- groups must be known before rows are coded
        wanted = [*columns, *self._role_columns()]
        start = 0
        for arrow in self.source.batches(wanted or self.columns[:1], rows):
            batch = self._batch(arrow, start)
            start += arrow.num_rows
            if len(batch):
                yield batch

    def read(self, columns: Sequence[str] | None = None) -> Batch:
        """Read all rows that are used at once, by default with the features."""
        import pyarrow as pa

        wanted = list(self.features if columns is None else columns)
        self.profile  # noqa: B018 -- groups must be known before rows are coded
        parts = list(self.source.batches([*wanted, *self._role_columns()] or self.columns[:1], BATCH_ROWS))
        return self._batch(pa.Table.from_batches(parts).combine_chunks().to_batches()[0], 0)

    def info(self) -> DataInfo:
        """Give what a report says about the data."""
        profile = self.profile
        return DataInfo(
            name=self.name,
            sha256=profile.sha256,
            rows=profile.rows,
            dropped_rows=profile.dropped_rows,
            groups=profile.groups,
            notes=profile.notes,
        )

    def _role_columns(self) -> list[str]:
        roles = self.roles
        named = [roles.label, roles.weights, *(c for split in roles.sensitive for c in split.columns)]
        return list(dict.fromkeys(column for column in named if column is not None))

    def _keep(self, arrow: pa.RecordBatch) -> NDArray[np.bool_]:
        """Tell which rows are used: those with a label, and with sensitive values unless kept."""
        needed = [self.roles.label, self.roles.weights]
        if self.roles.missing == "drop":
            needed += [c for split in self.roles.sensitive for c in split.columns]
        keep = np.ones(arrow.num_rows, dtype=bool)
        for column in dict.fromkeys(needed):
            if column is not None:
                keep &= ~_missing(arrow.column(arrow.schema.names.index(column)))
        return keep

    def _used(self, arrow: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:

        keep = self._keep(arrow)
        return (arrow if keep.all() else arrow.filter(as_arrow(keep))), keep

    def _batch(self, arrow: pa.RecordBatch, start: int) -> Batch:
        used, keep = self._used(arrow)
        label = None if self.roles.label is None else _values(used, self.roles.label)
        favorable = None
        if label is not None and self.roles.favorable is not None:
            favorable = label == self._favorable_cell()
        weights = None if self.roles.weights is None else _values(used, self.roles.weights).astype(float)
        return Batch(
            rows=start + np.flatnonzero(keep),
            groups={name: coder.encode(used) for name, coder in self._coders.items()},
            label=label,
            favorable=favorable,
            weights=weights,
            _arrow=used,
        )

    def _favorable_cell(self) -> Any:
        """The label's value, in the column's own type, that means favorable."""
        return next(v for v in self.profile.label_values if same_value(v, self.roles.favorable))


def load_data(
    data: Any,
    *,
    label: str | None = None,
    favorable: Any = None,
    sensitive: Sequence[str] | str = (),
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    weights: str | None = None,
    missing: Missing = "drop",
    name: str | None = None,
) -> Dataset:
    """Give a table its roles.

    Parameters
    ----------
    data
        A CSV or Parquet file, a folder of Parquet files, a pandas or polars data frame, a pyarrow Table,
        or a dict of arrays.
    label
        The outcome column.
    favorable
        The label's value that is good for the person. Leave it out in regression.
    sensitive
        How to split people: ``"sex"``, ``"age:25:60"`` (bins), ``"sex+race"`` (an intersection). A numeric
        column with more than 20 distinct values and no bins is binned at its quartiles.
    features
        The columns that the model gets, in order; by default all but label, weights and `drop`.
    drop
        Columns that are no features.
    weights
        The column of sample weights.
    missing
        ``"drop"``: rows without a sensitive value are left out and counted. ``"group"``: they are a group.
    name
        What to call a data frame in the report.

    Returns
    -------
    Dataset
        The table's columns are checked here; its rows in the first pass.

    Raises
    ------
    DataError
        No such file or column; see also `Dataset.profile`.
    """
    source = open_source(data, name)
    if missing not in ("drop", "group"):
        raise DataError(f"missing={missing!r} is not understood; it is 'drop' or 'group'")
    columns = source.columns
    require_columns([label], columns, role="label", table=source.name)
    require_columns([weights], columns, role="weights", table=source.name)
    require_columns(features or (), columns, role="feature", table=source.name)
    require_columns(drop, columns, role="dropped", table=source.name)
    wishes = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    splits = [Sensitive.parse(text, columns) for text in wishes]
    names = [split.name for split in splits]
    if len(set(names)) != len(names):
        raise DataError(f"the sensitive column {max(names, key=names.count)!r} is named twice; name it once")
    if label is not None and label in {column for split in splits for column in split.columns}:
        raise DataError(f"column {label!r} cannot be the label and a sensitive column at once")
    roles = Roles(
        label=label,
        favorable=favorable,
        sensitive=tuple(splits),
        features=None if features is None else tuple(features),
        drop=tuple(drop),
        weights=weights,
        missing=missing,
    )
    return Dataset(source, roles)


def _values(arrow: pa.RecordBatch, column: str) -> NDArray[Any]:
    values: NDArray[Any] = as_numpy(arrow.column(arrow.schema.names.index(column)))
    return values


def _missing(column: pa.Array) -> NDArray[np.bool_]:
    import pyarrow as pa
    import pyarrow.compute as pc

    nan_is_null = pa.types.is_floating(column.type)
    flags: NDArray[np.bool_] = as_numpy(pc.is_null(column, nan_is_null=nan_is_null))
    return flags


class _Pass:
    """The first pass over a table: everything that must be known before the model is run."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.roles = dataset.roles
        self.digest = TableDigest(dataset.columns)
        self.used = 0
        self.labels: Counter[Any] = Counter()
        self.label_low, self.label_high = math.inf, -math.inf
        self.label_numeric = False

    def add(self, arrow: pa.RecordBatch) -> None:
        self.digest.update(arrow)
        used, _ = self.dataset._used(arrow)
        self.used += used.num_rows
        for coder in self.dataset._coders.values():
            coder.learn(used)
        if self.roles.label is not None:
            self._count_labels(used.column(used.schema.names.index(self.roles.label)))
            self._add_label(_values(used, self.roles.label))
        if self.roles.weights is not None:
            self._check_weights(_values(used, self.roles.weights))

    def _count_labels(self, label: pa.Array) -> None:
        import pyarrow.compute as pc

        if len(self.labels) <= _MAX_CLASSES:
            for entry in pc.value_counts(label).to_pylist():
                self.labels[entry["values"]] += entry["counts"]

    def _add_label(self, label: NDArray[Any]) -> None:
        if label.dtype.kind in "if" and len(label):
            self.label_numeric = True
            if not np.isfinite(label).all():
                self._refuse_infinite(str(self.roles.label), int((~np.isfinite(label)).sum()))
            self.label_low = min(self.label_low, float(label.min()))
            self.label_high = max(self.label_high, float(label.max()))

    def _check_weights(self, weights: NDArray[Any]) -> None:
        name = str(self.roles.weights)
        if weights.dtype.kind not in "if":
            raise DataError(
                f"{self.dataset.name}: the weights column {name!r} holds text; weights are numbers"
            )
        if not np.isfinite(weights).all():
            self._refuse_infinite(name, int((~np.isfinite(weights)).sum()))
        if len(weights) and weights.min() < 0:
            raise DataError(
                f"{self.dataset.name}: {int((weights < 0).sum())} weights in column {name!r} are negative; "
                "weights are 0 or more"
            )

    def _refuse_infinite(self, column: str, count: int) -> None:
        raise DataError(
            f"{self.dataset.name}: column {column!r} holds {count} infinite numbers; "
            "replace them or remove the rows"
        )

    def profile(self, notes: Sequence[str]) -> Profile:
        if self.digest.rows == 0:
            raise DataError(f"{self.dataset.name} has a header but no rows")
        if self.used == 0:
            raise DataError(
                f"{self.dataset.name}: none of the {self.digest.rows} rows has both a label and sensitive values"
            )
        classes: tuple[Any, ...] = ()
        if len(self.labels) <= _MAX_CLASSES:
            classes = tuple(sorted(self.labels, key=lambda v: (isinstance(v, str), v)))
        self._check_label(classes)
        for coder in self.dataset._coders.values():
            coder.finish(self.dataset.name)
        return Profile(
            sha256=self.digest.hexdigest(),
            rows=self.used,
            dropped_rows=self.digest.rows - self.used,
            groups={name: coder.sizes() for name, coder in self.dataset._coders.items()},
            label_values=classes,
            label_range=(self.label_low, self.label_high) if self.label_numeric else None,
            notes=tuple(notes),
        )

    def _check_label(self, classes: Sequence[Any]) -> None:
        name = self.roles.label
        if name is None:
            return
        if len(classes) == 1:
            raise DataError(
                f"{self.dataset.name}: the label column {name!r} holds one value only, {value_text(classes[0])!r}; "
                "an audit needs rows with different outcomes"
            )
        favorable = self.roles.favorable
        if favorable is None or any(same_value(value, favorable) for value in classes):
            return
        known = [value_text(value) for value in classes]
        hint = did_you_mean(str(favorable), known, what=f"values of {name!r}")
        raise DataError(
            f"{self.dataset.name}: the label column {name!r} never has the favorable value {favorable!r}. {hint}"
        )


def _take_profile(dataset: Dataset) -> Profile:
    notes = _choose_bins(dataset)
    while True:
        reading = _Pass(dataset)
        for coder in dataset._coders.values():
            coder.reset()
        try:
            for arrow in dataset.source.batches(dataset.columns, BATCH_ROWS):
                reading.add(arrow)
        except DataError as error:
            if not dataset.source.widen(str(error.__cause__ or error)):
                raise
        else:
            return reading.profile(notes)


def _choose_bins(dataset: Dataset) -> list[str]:
    """Bin numeric sensitive columns that have many values, at the quartiles of the first rows."""
    notes = []
    for name, coder in dataset._coders.items():
        for column in coder.unbinned():
            head = next(iter(dataset.source.batches([column], BATCH_ROWS)), None)
            edges = None if head is None else quartile_edges(_values(head, column), MAX_GROUP_VALUES)
            if edges is None:
                continue
            coder.bin(column, edges)
            shown = ":".join([column, *(value_text(edge) for edge in edges)])
            notes.append(
                f"{name}: numeric with many values, binned at the quartiles of its first rows ({shown})"
            )
    return notes
