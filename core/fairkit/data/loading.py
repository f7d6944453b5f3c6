"""From a path, a frame or arrays, and what stands beside them, to a dataset."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow_types import is_list, is_readable
from fairkit.data.dataset import Dataset
from fairkit.data.groups import proxies
from fairkit.data.labelled import Drawn
from fairkit.data.parts import column_of, empty_like, memory_table
from fairkit.data.roles import (
    Missing,
    PredictionRoles,
    Roles,
    Sensitive,
    check_conditions,
    column_named,
    good_value,
    require_columns,
    spread,
    value_text,
)
from fairkit.data.sources import open_source
from fairkit.errors import DataError
from fairkit.support.calls import checked
from fairkit.support.lazy_dataclass import dataclass, replace

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


def as_dataset(
    data: Any, y: Any = None, sensitive_features: Any = None, sample_weight: Any = None, favorable: Any = None
) -> Dataset:
    """Return a dataset as it is, or make one of a matrix X and what stands beside it (see `load_data`)."""
    extras = {"y": y, "sensitive_features": sensitive_features, "sample_weight": sample_weight}
    if hasattr(data, "roles"):
        options = [name for name, value in {**extras, "favorable": favorable}.items() if value is not None]
        if options:
            raise DataError(
                f"the data is a Dataset, whose roles are named already; `{options[0]}` goes with a matrix X only"
            )
        result: Dataset = data
        return result
    if y is None:
        raise DataError(
            f"the data is a {type(data).__name__}, not a Dataset; say which columns are what: "
            'fairkit.load_data(data, label="...", favorable="...", sensitive=["..."]), or give `y` and '
            "`sensitive_features` beside it"
        )
    return load_data(data, **extras, favorable=favorable, name="X")


@checked
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
    counts_from: int = 0,
    labelled: Any = None,
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
        `fairkit.data.loading.beside`).
    label
        The outcome column.
    favorable
        The label's value that is good for the person. Leave it out in regression. Beside `y` it may be left out where
        its values leave no doubt: 0 and 1, False and True, no and yes, denied and approved.
    sensitive
        How to split people: ``"sex"``, ``"age:25:60"`` (bins), ``"sex+race"`` (an intersection). A numeric
        column with more than 20 distinct values and no bins is binned at its quartiles.
    features
        The columns that the model gets, in order; by default all but label, weights and `drop`. A column of lists
        stands for its columns: ``emb`` for ``emb[0]``, ``emb[1]`` and so on.
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
        The column of ids: rows with one id depend on each other. Every row has one.
    sensitive_probability
        Group probabilities in place of a sensitive column: ``"race=p_white,p_black,p_asian"``. They are in [0, 1] and
        add up to 1 in every row; rows without any are left out and counted.
    query
        The column of queries: rows with one value are the items of one ranking, ordered by the model's score. The label
        is then each item's relevance, a grade from 0 to 50; with `favorable`, the relevant ones are those with this
        label.
    counts_from
        Groups of fewer rows than this have no numbers of their own: they are one group, ``"(small groups)"``, joined
        by the next larger ones until it has as many rows and two groups at least. 0: every group has its own.
    labelled
        Where outcomes are known for some rows only, how these were chosen: a `fairkit.Drawn`, or its design.
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
        _only_one(label=(label, y), sensitive=(sensitive or None, sensitive_features), weights=(weights, sample_weight))
        given = beside(data, y, sensitive_features, sample_weight, favorable)
        like = np.empty(0, dtype=object) if is_one_column(data) else like
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
    if counts_from < 0:
        raise DataError(f"counts_from={counts_from} is not a number of rows: 0 or more")
    columns = source.columns
    conditions = [*_listed(reference), *_listed(within), *_listed(sensitive_probability), *_listed(sensitive)]
    parts = {part for text in conditions for part in (text, *re.split("[+:=,]", text))}
    source.check_read([label, weights, cluster, query, *(features or ()), *parts])
    label, weights, cluster, query = (
        None if name is None else column_named(name, columns) for name in (label, weights, cluster, query)
    )
    features = None if features is None else spread(features, columns)
    drop = spread(drop, columns)
    require_columns([label], columns, role="label", table=source.name)
    require_columns([weights], columns, role="weights", table=source.name)
    require_columns(features or (), columns, role="feature", table=source.name)
    require_columns(drop, [*columns, *source.unread], role="dropped", table=source.name)
    wishes = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    splits = [Sensitive.parse(text, columns) for text in wishes]
    names = [split.name for split in splits]
    if len(set(names)) != len(names):
        raise DataError(f"the sensitive column {max(names, key=names.count)!r} is named twice; name it once")
    if label is not None and label in {column for split in splits for column in split.columns}:
        raise DataError(f"column {label!r} cannot be the label and a sensitive column at once")
    predicted = PredictionRoles.of(predictions) if isinstance(predictions, Mapping) else predictions
    if predicted is not None:
        source.check_read(predicted.columns)
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
        counts_from=counts_from,
        labelled=None if labelled is None else Drawn.of(labelled),
    )
    check_conditions(roles, columns, source.name)
    roles = replace(roles, known=tuple(name for name in proxies(roles) if name in columns))
    dataset = Dataset(source, roles)
    dataset.like = like
    return dataset


def with_outcomes(data: Dataset, outcomes: Any) -> Dataset:
    """Return a table with how its known outcomes were chosen (see `fairkit.Drawn`); it is read anew."""
    roles = replace(data.roles, labelled=Drawn.of(outcomes))
    check_conditions(roles, data.columns, data.name)
    without = Dataset(data.source, roles)
    without.like, without.published = data.like, data.published
    return without


def _only_one(**pairs: tuple[Any, Any]) -> None:
    """Refuse a role that is named and given at once."""
    names = {"label": "y", "sensitive": "sensitive_features", "weights": "sample_weight"}
    for role, (named, argument) in pairs.items():
        if named is not None and argument is not None:
            raise DataError(f"`{role}` names a column and `{names[role]}` gives one; leave one of them out")


def _listed(value: Sequence[str] | str) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


# What scikit-learn's users hold, X, y and sensitive features, as one table with roles.


_PLAIN = (("0", "1"), ("-1", "1"), ("false", "true"), ("no", "yes"))
"""Pairs of values of which the second is the good one."""


@dataclass(frozen=True, slots=True)
class NamedMatrix:
    """A matrix and what stood beside it, as one table: the arguments of `fairkit.load_data`."""

    table: pa.Table
    features: tuple[str, ...]
    label: str | None
    favorable: Any
    sensitive: tuple[str, ...]
    weights: str | None


def beside(X: Any, y: Any, sensitive_features: Any, sample_weight: Any, favorable: Any) -> NamedMatrix:
    """Put a matrix and what stands beside it into one table."""
    table = _table(X)
    features = tuple(field.name for field in table.schema if is_list(field.type) or is_readable(field.type))
    label = weights = None
    if y is not None:
        labels = _array(y, "y", table.num_rows)
        label = _new_name(str(getattr(y, "name", None) or "y"), features, "label")
        table = table.append_column(label, [labels])
        favorable = _favorable(labels, label) if favorable is None else favorable
    table, sensitive = _with_sensitive(table, sensitive_features)
    if sample_weight is not None:
        weights = _new_name("sample_weight", table.column_names, "weight")
        table = table.append_column(weights, [_array(sample_weight, "sample_weight", table.num_rows)])
    return NamedMatrix(table, features, label, favorable, tuple(sensitive), weights)


def _table(X: Any) -> pa.Table:
    import pyarrow as pa

    if hasattr(X, "toarray"):  # a sparse matrix
        X = X.toarray()
    if is_one_column(X):
        return pa.table({str(getattr(X, "name", None) or "text"): _array(X, "X", len(X))})
    if isinstance(X, np.ndarray | list):
        matrix = np.asarray(X)
        if matrix.ndim != 2:
            raise DataError(f"X has {matrix.ndim} dimensions; it is a matrix or a table: rows and columns")
        return pa.table({f"x{index}": _values(matrix[:, index]) for index in range(matrix.shape[1])})
    return memory_table(X)


def is_one_column(X: Any) -> bool:
    """Tell whether a matrix is a series or list: texts, one for each row."""
    return not hasattr(X, "columns") and not hasattr(X, "column_names") and np.ndim(X) == 1


def _with_sensitive(table: pa.Table, sensitive: Any) -> tuple[pa.Table, list[str]]:
    if sensitive is None:
        return table, []
    if isinstance(sensitive, str):
        return table, [sensitive]
    texts = isinstance(sensitive, list | tuple) and all(isinstance(item, str) for item in sensitive)
    if texts and 0 < len(sensitive) != table.num_rows:  # n texts are a column, fewer are names of columns
        return table, list(sensitive)
    columns = _columns(sensitive)
    for name, values in columns.items():
        cells = _array(values, f"sensitive_features[{name!r}]", table.num_rows)
        if name not in table.column_names:
            table = table.append_column(name, [cells])
        elif table.column(name).to_pylist() != cells.to_pylist():
            raise DataError(
                f"`sensitive_features` and X both have a column {name!r}, with other values; rename one of them"
            )
    return table, list(columns)


def _columns(features: Any) -> dict[str, Any]:
    """Return sensitive features as columns: a frame's, a series' by its name, or ``sensitive``, numbered."""
    if isinstance(features, Mapping):
        return {str(name): values for name, values in features.items()}
    if hasattr(features, "column_names"):
        return {name: features.column(name) for name in features.column_names}
    if hasattr(features, "columns"):
        return {str(name): features[name] for name in features.columns}
    values = np.asarray(features)
    if values.ndim > 1 and values.shape[1] > 1:
        return {f"sensitive_{index}": values[:, index] for index in range(values.shape[1])}
    single = values.reshape(-1) if values.ndim > 1 else features
    return {str(getattr(features, "name", None) or "sensitive"): single}


def _array(values: Any, what: str, rows: int) -> pa.Array:
    """Return a column of any library as an Arrow array of `rows` values."""
    import pyarrow as pa

    if hasattr(values, "columns") and len(values.columns) == 1:
        return _array(values[values.columns[0]], what, rows)
    cells = column_of(values)
    cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    if len(cells) != rows:
        raise DataError(f"`{what}` has {len(cells)} rows, X has {rows}")
    return cells


def _values(column: NDArray[Any]) -> Any:
    """Return a matrix' column as Arrow takes it; a column of Python objects by what its cells are."""
    return column.tolist() if column.dtype.kind in "OUS" else column


def _new_name(name: str, taken: Sequence[str], otherwise: str) -> str:
    result = name
    while result in taken:
        result = otherwise if result == name and otherwise != name else f"{result}_"
    return result


def _favorable(labels: pa.Array, name: str) -> Any:
    """Return which of two values is good for a person where they leave no doubt; None where there are more of them.

    No doubt: 1 of 0 and 1 (or -1 and 1), True, yes, and words such as approved, unless the name says that it is bad.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = labels.dictionary_decode() if pa.types.is_dictionary(labels.type) else labels
    values = [value for value in pc.unique(cells).to_pylist() if value is not None and value == value]  # noqa: PLR0124 -- NaN
    if len(values) != 2:
        return None
    texts = sorted(map(value_text, values))
    by_words = good_value(name, values)
    usual = {text.lower(): text for text in texts}
    good = next((usual[yes] for no, yes in _PLAIN if usual.keys() == {no, yes}), by_words)
    if good is None or by_words not in (None, good):
        raise DataError(
            f"`{name}` has the values {texts[0]!r} and {texts[1]!r}; say which is good for the person with `favorable`"
        )
    return next(value for value in values if value_text(value) == good)
