"""From a path, a frame or arrays, and what stands beside them, to a dataset."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairkit.data.conditions import check_conditions
from fairkit.data.dataset import Dataset
from fairkit.data.frames import empty_like
from fairkit.data.labelled import Drawn
from fairkit.data.lists import spread
from fairkit.data.predictions import PredictionRoles
from fairkit.data.proxies import proxies
from fairkit.data.roles import Missing, Roles, Sensitive, require_columns
from fairkit.data.sources import open_source
from fairkit.errors import DataError
from fairkit.support.calls import checked
from fairkit.support.names import column_named


def as_dataset(
    data: Any, y: Any = None, sensitive_features: Any = None, sample_weight: Any = None, favorable: Any = None
) -> Dataset:
    """Return a dataset as it is, or make one of a matrix X and what stands beside it (see `load_data`)."""
    extras = {"y": y, "sensitive_features": sensitive_features, "sample_weight": sample_weight}
    if hasattr(data, "roles"):
        given = [name for name, value in {**extras, "favorable": favorable}.items() if value is not None]
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
        `fairkit.data.in_memory.beside`).
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
        from fairkit.data.in_memory import beside, is_one_column

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
    features = None if features is None else spread([column_named(name, columns) for name in features], columns)
    drop = spread([column_named(name, columns) for name in drop], columns)
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
    other = Dataset(data.source, roles)
    other.like, other.published = data.like, data.published
    return other


def _only_one(**pairs: tuple[Any, Any]) -> None:
    """Refuse a role that is named and given at once."""
    names = {"label": "y", "sensitive": "sensitive_features", "weights": "sample_weight"}
    for role, (named, given) in pairs.items():
        if named is not None and given is not None:
            raise DataError(f"`{role}` names a column and `{names[role]}` gives one; leave one of them out")


def _listed(value: Sequence[str] | str) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
