"""Tables with roles: read in batches, checked once, split into groups."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_arrow, as_numpy
from fairkit.data.clusters import buckets_of, query_numbers
from fairkit.data.conditions import check_conditions
from fairkit.data.frames import empty_like
from fairkit.data.parts import Elsewhere
from fairkit.data.predictions import PredictionRoles
from fairkit.data.profile import (
    BATCH_ROWS,
    Profile,
    Total,
    cells,
    choose_bins,
    complete_rows,
    take_tally,
    total_here,
    used_rows,
)
from fairkit.data.proxies import probabilities_of
from fairkit.data.roles import (
    Missing,
    Roles,
    Sensitive,
    proxy_of,
    require_columns,
    same_value,
    value_text,
)
from fairkit.data.source import Source
from fairkit.data.sources import open_source
from fairkit.errors import DataError, did_you_mean
from fairkit.results.findings import DataInfo
from fairkit.support.timings import each, phase

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.data.groups import GroupCoder

__all__ = ["BATCH_ROWS", "Batch", "Dataset", "Profile", "load_data"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a dataset, in order: plain arrays, roles resolved.

    Attributes
    ----------
    rows
        Row numbers in the table, from 0, shape [n], int64.
    groups
        For each way to split people, the group's index for every row, shape [n], int64; -1 where the value is
        missing, in batches that were asked for with ``partial=True``.
    label
        The label as it stands in the table, shape [n]; None without a label.
    favorable
        Whether the label is the favorable value, shape [n], bool; None where there is no such value.
    weights
        Sample weights, shape [n], nonnegative; None where all count the same.
    strata
        For each column inside which groups are compared, the stratum's index for every row, shape [n].
    clusters
        The bucket of each row's cluster, shape [n] (see `fairkit.data.clusters`); None where rows are independent.
    probabilities
        For each proxy, the groups' probabilities, shape [n, K]; NaN in rows that have none.
    queries
        A number for each row's query, shape [n], uint64 (see `fairkit.data.clusters.query_numbers`); None where rows
        are no rankings.
    """

    rows: NDArray[np.int64]
    groups: Mapping[str, NDArray[np.int64]]
    label: NDArray[Any] | None
    favorable: NDArray[np.bool_] | None
    weights: NDArray[np.float64] | None
    _arrow: pa.RecordBatch
    _cache: dict[str, NDArray[Any]] = field(default_factory=dict)
    strata: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    clusters: NDArray[np.int64] | None = None
    probabilities: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    queries: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[Any]:
        """Return a column, shape [n]: text as objects (None where missing), whole numbers as int64, else float64.

        Raises
        ------
        DataError
            There is no such column.
        """
        if name not in self._cache:
            self._cache[name] = as_numpy(self.arrow(name))
        return self._cache[name]

    def arrow(self, name: str) -> pa.Array:
        """Return a column as Arrow holds it: text, numbers or booleans, null where missing.

        Raises
        ------
        DataError
            There is no such column.
        """
        names = self._arrow.schema.names
        if name not in names:
            hint = did_you_mean(name, names, what="columns")
            raise DataError(f"there is no column {name!r} in the data. {hint}")
        return self._arrow.column(names.index(name))

    def columns(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return several columns by name."""
        return {name: self.column(name) for name in names}

    def take(self, keep: NDArray[np.bool_]) -> Batch:
        """Return the rows where `keep`, shape [n], is true."""
        return Batch(
            rows=self.rows[keep],
            groups={name: codes[keep] for name, codes in self.groups.items()},
            label=None if self.label is None else self.label[keep],
            favorable=None if self.favorable is None else self.favorable[keep],
            weights=None if self.weights is None else self.weights[keep],
            _arrow=self._arrow.filter(as_arrow(keep)),
            strata={name: codes[keep] for name, codes in self.strata.items()},
            clusters=None if self.clusters is None else self.clusters[keep],
            probabilities={name: shares[keep] for name, shares in self.probabilities.items()},
            queries=None if self.queries is None else self.queries[keep],
        )


class Dataset:
    """A table with roles, made by `load_data`. It is read in batches and checked in the first pass.

    Rows without a label are left out everywhere and counted. A row without a sensitive value belongs to no group
    of that column (unless missing values are kept as a group); group metrics of other columns use it.
    """

    def __init__(self, source: Source, roles: Roles) -> None:
        self.source = source
        self.roles = roles
        self._coders: dict[str, GroupCoder] = {}
        self._strata: dict[str, GroupCoder] = {}
        self._profile: Profile | None = None
        self._start = 0
        self._noted: tuple[str, ...] = ()
        self.published: str | None = None
        """The content digest that the table should have, where its publisher's is known; another one is a note."""
        self.like: Any = None
        """The data frame that it was made of, without its rows; None for files. Models in memory get such frames."""

    def __repr__(self) -> str:
        """Return a line; no row is read."""
        roles = self.roles
        told = [f"label {roles.label!r}"] if roles.label is not None else []
        told += [f"favorable {roles.favorable!r}"] if roles.favorable is not None else []
        told += [f"sensitive {', '.join(one.name for one in roles.sensitive)}"] if roles.sensitive else []
        return f"<Dataset {self.name}: {', '.join(told) or 'no roles'}>"

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

    def with_features(self, features: Sequence[str] | None) -> Dataset:
        """Return the same rows for a model that gets other columns, in this order; None: as they are.

        Raises
        ------
        DataError
            There is no such column.
        """
        if features is None:
            return self
        require_columns(features, self.columns, role="feature", table=self.name)
        other = copy.copy(self)
        other.roles = replace(self.roles, features=tuple(features), drop=())
        return other

    @property
    def profile(self) -> Profile:
        """What the first pass found: the digest, sizes and label values.

        Raises
        ------
        DataError
            There was no first pass yet: it is made by `learn`, and by everything that reads the rows.
        """
        if self._profile is None:
            raise DataError(f"{self.name}: its rows have not been read yet; call its method `learn` first")
        return self._profile

    @phase("read")
    def learn(self, total: Total = total_here) -> Profile:
        """Make the first pass over the rows, once, and return what it found, which is then `profile`.

        Parameters
        ----------
        total
            Runs a function on the pieces of the table and adds up, as `fairkit.engines.base.Engine.total` does;
            by default in this process.

        Raises
        ------
        DataError
            The table is damaged or empty, the label is constant or never favorable, a sensitive column
            has one group, or a number that must be finite is not.
        """
        if self._profile is None:
            bins, notes = choose_bins(self.source, self.roles)
            tally = take_tally(self.source, self.roles, bins, total, self._noted)
            self._profile = tally.profile(self.name, notes)
            self._coders, self._strata = tally.coders, tally.strata
        return self._profile

    def note(self, columns: Sequence[str]) -> None:
        """Ask the first pass for the distinct values of columns: see `fairkit.data.profile.Profile`.

        A first pass that was made without them is made again.

        Raises
        ------
        DataError
            There is no such column.
        """
        require_columns(columns, self.columns, role="prediction", table=self.name)
        more = [name for name in dict.fromkeys(columns) if name not in self._noted]
        if more:
            self._noted += tuple(more)
            self._profile = None

    def without_rows(self) -> Dataset:
        """Return a dataset that knows groups and labels, and whose rows are read part by part only."""
        source = self.source
        return self.part(Source(source.name, source.types, (Elsewhere(source.name),)), 0)

    def part(self, source: Source, start: int) -> Dataset:
        """Return a part of the table, whose first row is number `start`, with the whole table's groups and profile."""
        self.learn()
        view = Dataset(source, self.roles)
        view._coders, view._strata = self._coders, self._strata
        view._profile, view._start = self._profile, start
        return view

    def with_roles(self, roles: Roles) -> Dataset:
        """Return the same rows with roles that name the same columns; the first pass is not made again."""
        view = Dataset(self.source, roles)
        view._coders, view._strata = self._coders, self._strata
        view._profile, view._start, view._noted = self._profile, self._start, self._noted
        return view

    @property
    def sha256(self) -> str:
        """The digest of the table's content (see `fairkit.data.digest.TableDigest`)."""
        return self.profile.sha256

    @property
    def splits(self) -> tuple[Sensitive, ...]:
        """The ways to split people, with the bins that the first pass found."""
        self.profile  # noqa: B018 -- raises before the pass that finds the bins
        return tuple(coder.split for coder in self._coders.values())

    def group_names(self, sensitive: str) -> list[str]:
        """Return the groups' names; a batch's group indices point into this list."""
        self.profile  # noqa: B018 -- raises before the pass that finds the groups
        return self._coders[sensitive].names

    def stratum_names(self, within: str) -> list[str]:
        """Return the strata's names; a batch's indices of strata point into this list."""
        self.profile  # noqa: B018 -- raises before the pass that finds the strata
        return self._strata[within].names

    def batches(
        self, columns: Sequence[str] = (), rows: int = BATCH_ROWS, *, partial: bool = False
    ) -> Iterator[Batch]:
        """Read the rows that are used, in order, with the given columns besides those that have a role.

        Parameters
        ----------
        columns
            What to read.
        rows
            At most so many of the table's rows at once.
        partial
            Whether rows without a sensitive value come too; their group is -1. By default only rows that have a
            group in every sensitive column come.
        """
        self.learn()
        wanted = [*columns, *self._role_columns()]
        start = self._start
        for arrow in each("read", self.source.batches(wanted or self.columns[:1], rows)):
            batch = self._batch(arrow, start, partial=partial)
            start += arrow.num_rows
            if len(batch):
                yield batch

    @phase("read")
    def read(self, columns: Sequence[str] | None = None) -> Batch:
        """Read all rows that have a label and every group at once, by default with the features."""
        import pyarrow as pa

        wanted = list(self.features if columns is None else columns)
        self.learn()
        parts = list(self.source.batches([*wanted, *self._role_columns()] or self.columns[:1], BATCH_ROWS))
        return self._batch(pa.Table.from_batches(parts).combine_chunks().to_batches()[0], self._start)

    def info(self) -> DataInfo:
        """Return what a report says about the data."""
        profile = self.learn()
        return DataInfo(
            name=self.name,
            sha256=profile.sha256,
            rows=profile.rows,
            dropped_rows=profile.dropped_rows,
            groups=profile.groups,
            notes=(*self.source.notes, *profile.notes, *self._unpublished()),
            missing=profile.missing,
            weights=self.roles.weights,
            joined=profile.joined,
            label=self.roles.label,
            favorable=None if self.roles.favorable is None else value_text(self.roles.favorable),
            columns=profile.sheet.listed(),
            more_columns=profile.sheet.more,
            period=profile.sheet.period(),
            clusters={}
            if profile.clusters is None
            else {"column": self.roles.cluster or self.roles.query, "count": profile.clusters},
            source={**self.source.origin, "unordered": profile.unordered} if self.source.origin else {},
        )

    def _unpublished(self) -> list[str]:
        if self.published is None or self.published == self.profile.sha256:
            return []
        return [
            f"{self.name} is not the published table: its content is {self.profile.sha256[:12]}, that of the published "
            f"one {self.published[:12]}."
        ]

    def _role_columns(self) -> list[str]:
        roles = self.roles
        named = [roles.label, roles.weights, *(c for split in roles.sensitive for c in split.columns)]
        named += [roles.cluster, roles.query, *(c for split in roles.within for c in split.columns)]
        named += [c for text in roles.sensitive_probability for c in proxy_of(text)[1]]
        return list(dict.fromkeys(column for column in named if column is not None))

    @phase("read")
    def _batch(self, arrow: pa.RecordBatch, start: int, *, partial: bool = False) -> Batch:
        used, keep = used_rows(arrow, self.roles)
        if not partial:
            whole = complete_rows(used, self.roles)
            if not whole.all():
                used = used.filter(as_arrow(whole))
                keep[keep] = whole
        label = None if self.roles.label is None else cells(used, self.roles.label)
        favorable = None
        if label is not None and self.roles.favorable is not None:
            favorable = label == self._favorable_cell()
        weights = None if self.roles.weights is None else cells(used, self.roles.weights).astype(float)
        return Batch(
            rows=start + np.flatnonzero(keep),
            groups={name: coder.encode(used) for name, coder in self._coders.items()},
            label=label,
            favorable=favorable,
            weights=weights,
            _arrow=used,
            strata={name: coder.encode(used) for name, coder in self._strata.items()},
            clusters=self._clusters(used, start + np.flatnonzero(keep)),
            probabilities=probabilities_of(used, self.roles, self.name),
            queries=None
            if self.roles.query is None
            else query_numbers(
                used.column(used.schema.names.index(self.roles.query)), self.roles.query, self.name
            ),
        )

    def _clusters(self, arrow: pa.RecordBatch, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        if self.roles.cluster is None:
            return None
        key = int(self.profile.sha256[:16], 16)
        return buckets_of(arrow.column(arrow.schema.names.index(self.roles.cluster)), rows, key)

    def _favorable_cell(self) -> Any:
        """The label's value, in the column's own type, that means favorable."""
        return next(v for v in self.profile.label_values if same_value(v, self.roles.favorable))


def as_dataset(
    data: Any,
    y: Any = None,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    favorable: Any = None,
) -> Dataset:
    """Return a dataset as it is, or make one of a matrix X and what stands beside it (see `load_data`).

    Raises
    ------
    DataError
        A path, a frame or an array stands alone: it has no roles. Or a dataset does not: it has them.
    """
    beside = {"y": y, "sensitive_features": sensitive_features, "sample_weight": sample_weight}
    if hasattr(data, "roles"):
        given = [name for name, value in {**beside, "favorable": favorable}.items() if value is not None]
        if given:
            raise DataError(
                f"the data is a Dataset, whose roles are named already; `{given[0]}` goes with a matrix X only"
            )
        found: Dataset = data
        return found
    if y is None:
        raise DataError(
            f"the data is a {type(data).__name__}, not a Dataset; say which columns are what: "
            'fairkit.load_data(data, label="...", favorable="...", sensitive=["..."]), or give `y` and '
            "`sensitive_features` beside it"
        )
    return load_data(data, **beside, favorable=favorable, name="X")


def load_data(
    data: Any,
    y: Any = None,
    *,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    label: str | None = None,
    favorable: Any = None,
    sensitive: Sequence[str] | str = (),
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    weights: str | None = None,
    missing: Missing = "drop",
    predictions: PredictionRoles | Mapping[str, Any] | None = None,
    join: Any = None,
    on: Sequence[str] | str | None = None,
    reference: Sequence[str] | str = (),
    within: Sequence[str] | str = (),
    cluster: str | None = None,
    sensitive_probability: Sequence[str] | str = (),
    query: str | None = None,
    name: str | None = None,
) -> Dataset:
    """Return a table with its roles.

    Parameters
    ----------
    data
        A CSV or Parquet file, a folder of such files or a glob (``"loans/*.parquet"``), an address such as
        ``"s3://bucket/loans.parquet"`` or ``"postgresql://host/db?query=SELECT ..."`` (see `fairkit.sources`), a
        pandas or polars data frame, a pyarrow Table, a DuckDB relation or anything else with the Arrow C stream
        interface (read into memory),
        a dict of arrays, or a Dask DataFrame (see `fairkit.engines`).
    y, sensitive_features, sample_weight
        What scikit-learn's users have beside a frame or matrix X in memory, shape [n] each, or [n, k] for sensitive
        features; they take the place of `label`, `sensitive` and `weights`, and are no features (see
        `fairkit.data.given.beside`).
    label
        The outcome column.
    favorable
        The label's value that is good for the person. Leave it out in regression. Beside `y` it is by default the
        larger of two numbers.
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
        ``"drop"``: rows without a sensitive value are in no group of that column, and are counted; methods that
        train leave them out. ``"group"``: they are a group.
    predictions
        Columns with somebody's predictions, by kind: ``{"decision": "approved", "score": "p"}``, or
        ``{"class": "tier", "probability": {"gold": "p_gold", ...}}``, or ``{"prediction": "amount"}`` (see
        `fairkit.PredictedColumns`). They are no features; ``fairkit.audit(None, data)`` audits them.
    join
        Another table (as `data`), whose columns each row takes by its key: sensitive columns, say, or the label. It
        must have one row for each key and is held in memory; rows without a match have nothing in these columns. They
        are features only for a model that names them.
    on
        The key's columns; ``"person_id=id"`` where the other table calls it ``id``.
    reference
        Compare every group of a sensitive column with this one, besides: ``"sex=male"``, ``"sex=@largest"``,
        ``"sex=@highest"`` (the group with the highest rate of favorable decisions).
    within
        Columns whose values are strata, written as sensitive ones: every disparity is also measured inside the
        strata and pooled over them. A missing value is a stratum.
    cluster
        The column of ids: rows with one id depend on each other. A row without an id stands alone.
    sensitive_probability
        Group probabilities in place of a sensitive column: ``"race=p_white,p_black,p_asian"``. They are in [0, 1] and
        add up to 1 in every row; rows without any are left out and counted.
    query
        The column of queries: rows with one value are the items of one ranking, ordered by the model's score. The label
        is then each item's relevance, a grade from 0 to 50; with `favorable`, the relevant ones are those with this
        label.
    name
        What to call a data frame in the report.

    Returns
    -------
    Dataset
        The table's columns are checked here; its rows in the first pass.

    Raises
    ------
    DataError
        No such file or column; see also `Dataset.learn`.
    """
    like = empty_like(data)
    if y is not None or sensitive_features is not None or sample_weight is not None:
        from fairkit.data.given import beside

        _only_one(
            label=(label, y),
            sensitive=(sensitive or None, sensitive_features),
            weights=(weights, sample_weight),
        )
        given = beside(data, y, sensitive_features, sample_weight, favorable)
        data, favorable = given.table, given.favorable
        label, weights = label or given.label, weights or given.weights
        sensitive = sensitive or given.sensitive
        features = given.features if features is None else features
    source = open_source(data, name)
    lookup = None
    if join is not None or on is not None:
        from fairkit.data.join import joined, looked_up

        wished = [sensitive] if isinstance(sensitive, str) else list(sensitive)
        named = [label, weights, *wished, *(features or ())]
        lookup = looked_up(join, on, source, named)
        source = joined(source, lookup)
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
    predicted = PredictionRoles.of(predictions) if isinstance(predictions, Mapping) else predictions
    if predicted is not None:
        require_columns(predicted.columns, columns, role="prediction", table=source.name)
    roles = Roles(
        label=label,
        favorable=favorable,
        sensitive=tuple(splits),
        features=None if features is None else tuple(features),
        drop=tuple(drop),
        weights=weights,
        missing=missing,
        predictions=predicted,
        join=None if lookup is None else lookup.role,
        joined=() if lookup is None else lookup.columns,
        reference=_listed(reference),
        within=tuple(Sensitive.parse(text, columns, "within") for text in _listed(within)),
        cluster=cluster,
        sensitive_probability=_listed(sensitive_probability),
        query=query,
    )
    check_conditions(roles, columns, source.name)
    dataset = Dataset(source, roles)
    dataset.like = like
    return dataset


def _only_one(**pairs: tuple[Any, Any]) -> None:
    """Refuse a role that is named and given at once."""
    names = {"label": "y", "sensitive": "sensitive_features", "weights": "sample_weight"}
    for role, (named, given) in pairs.items():
        if named is not None and given is not None:
            raise DataError(f"`{role}` names a column and `{names[role]}` gives one; leave one of them out")


def _listed(value: Sequence[str] | str) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
