"""Rows to learn from: plain arrays with roles, read from a dataset."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.data.roles import Roles, Sensitive, value_among
from fairkit.data.task import Task, choose_task
from fairkit.errors import DataError, did_you_mean
from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Groups:
    """One way to split the rows of a table into groups."""

    split: Sensitive | None  # the columns and bin edges behind it; None where the codes were given as they are
    names: tuple[str, ...]  # the groups' names; codes point into them
    codes: NDArray[np.int64]  # each row's group, shape [n], int64

    def sizes(self) -> NDArray[np.int64]:
        """Return the rows of each group, shape [len(names)]."""
        return np.bincount(self.codes, minlength=len(self.names)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows to learn from: plain arrays with roles."""

    # Raw columns by name, each of shape [n]: text as objects (None where missing), whole numbers as int64, other
    # numbers as float64 (NaN where missing). Holds the features and the sensitive columns
    columns: Mapping[str, NDArray[Any]]
    features: tuple[str, ...]  # the columns that the model gets, in order
    # Shape [n], float64. Binary: 1 where the label is the favorable value, else 0. Multiclass: the index into
    # `classes`. Regression: the value. Ranking: the relevance
    target: NDArray[np.float64]
    # The ways to split people, by name, first the one named first by the user
    groups: Mapping[str, Groups] = field(default_factory=dict)
    weights: NDArray[np.float64] | None = None  # sample weights, shape [n], nonnegative; None where all count the same
    # Each row's query, shape [n], from 0; None where rows are no items of rankings
    queries: NDArray[np.int64] | None = None
    # What approving each person brings, shape [n]; None where no column of values is named
    value: NDArray[np.float64] | None = None
    task: Task = "binary"  # binary, multiclass, regression or ranking
    classes: tuple[Any, ...] = ()  # the label's values; in a binary task the favorable one is last
    roles: Roles = field(default_factory=Roles)  # what the columns are for, as it goes into the model's metadata
    name: str = "the data"  # the table's name, for messages

    def __len__(self) -> int:
        return len(self.target)

    @classmethod
    def from_dataset(cls, data: Dataset, task: Task | None = None) -> Self:
        """Read a dataset into memory."""
        roles = fixed_roles(data)
        if roles.label is None:
            raise DataError(f"{data.name}: training needs the outcome column; name it with `label`")
        if roles.counts_from:
            raise DataError(f"{data.name}: counts_from is for audits; leave it out, training needs every group")
        values = data.profile.label_values
        chosen = choose_task(data, task)
        batch = data.read(list(dict.fromkeys([*data.features, *_sensitive_columns(roles)])))
        target, classes = _target(chosen, batch.label, batch.favorable, values, data)
        return cls(
            columns=batch.columns(list(dict.fromkeys([*data.features, *_sensitive_columns(roles)]))),
            features=data.features,
            target=target,
            groups={
                split.name: Groups(split, tuple(data.group_names(split.name)), batch.groups[split.name])
                for split in roles.sensitive
            },
            weights=batch.weights,
            queries=None if batch.queries is None else _numbered(batch.queries),
            task=chosen,
            classes=classes,
            roles=roles,
            name=data.name,
        )

    def take(self, index: NDArray[Any]) -> Self:
        """Return the rows that a mask or an index array names."""
        return dataclasses.replace(
            self,
            columns={name: values[index] for name, values in self.columns.items()},
            target=self.target[index],
            groups={n: Groups(g.split, g.names, g.codes[index]) for n, g in self.groups.items()},
            weights=None if self.weights is None else self.weights[index],
            queries=None if self.queries is None else _numbered(self.queries[index]),
            value=None if self.value is None else self.value[index],
        )

    def with_weights(self, weights: NDArray[np.float64] | None) -> Self:
        """Return the same rows with other weights."""
        return dataclasses.replace(self, weights=weights)

    def row_weights(self) -> NDArray[np.float64]:
        """Return the weights, shape [n]; ones where there are none."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def only_groups(self, wanted: str | None = None) -> Groups:
        """Return the split that a method works on: the named one, else the only one, else the intersection."""
        if not self.groups:
            raise DataError(f"{self.name}: this method needs a sensitive column; name it with `sensitive`")
        if wanted is not None:
            if wanted not in self.groups:
                hint = did_you_mean(wanted, self.groups, what="splits")
                raise DataError(f"{self.name}: there is no sensitive split {wanted!r}. {hint}")
            return self.groups[wanted]
        return next(iter(self.groups.values())) if len(self.groups) == 1 else intersect(self.groups)


def intersect(groups: Mapping[str, Groups]) -> Groups:
    """Cross several splits: the groups are the combinations that occur, ``"Female & Black"``."""
    splits = list(groups.values())
    shape = [len(split.names) for split in splits]
    cells = np.ravel_multi_index([split.codes for split in splits], shape)
    present, codes = np.unique(cells, return_inverse=True)
    places = np.array(np.unravel_index(present, shape)).T
    names = tuple(" & ".join(split.names[i] for split, i in zip(splits, row, strict=True)) for row in places.tolist())
    return Groups(_crossed([split.split for split in splits]), names, codes.astype(np.int64).ravel())


def _crossed(splits: list[Sensitive | None]) -> Sensitive | None:
    present = [split for split in splits if split is not None]
    columns = tuple(column for split in present for column in split.columns)
    if len(present) < len(splits) or len(set(columns)) < len(columns):
        return None
    return Sensitive(columns, tuple(edges for split in present for edges in split.edges))


def fixed_roles(data: Dataset) -> Roles:
    """Return a dataset's roles with the bins that its first pass found and the features by name."""
    data.learn()
    return dataclasses.replace(data.roles, sensitive=data.splits, features=data.features)


def target_of(data: Dataset) -> tuple[Any, ...]:
    """Return the label's values in a binary task, the favorable one last."""
    values, favorable = data.profile.label_values, data.roles.favorable
    good = value_among(values, favorable)
    return (*(value for value in values if value != good), good)


def _numbered(queries: NDArray[Any]) -> NDArray[np.int64]:
    return np.unique(queries, return_inverse=True)[1].ravel().astype(np.int64)


def _sensitive_columns(roles: Roles) -> list[str]:
    return [column for split in roles.sensitive for column in split.columns]


def _target(
    task: Task, label: Any, favorable: Any, values: tuple[Any, ...], data: Dataset
) -> tuple[NDArray[np.float64], tuple[Any, ...]]:
    if task == "ranking" and favorable is not None:
        return favorable.astype(np.float64), ()
    if task == "binary":
        good = next((value for value, yes in zip(label, favorable, strict=True) if yes), None)
        others = tuple(value for value in values if value != good)
        return favorable.astype(np.float64), (*others, good)
    if task == "multiclass":
        index = {value: i for i, value in enumerate(values)}
        return np.array([index[value] for value in label.tolist()], dtype=np.float64), values
    if label.dtype.kind not in "ifb":
        raise DataError(f"{data.name}: regression needs numbers, but the label {data.roles.label!r} is text")
    return label.astype(np.float64), ()
