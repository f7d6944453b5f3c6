"""A table of answers as arrays: which document, context, group and name each answer is about, and what it was."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit_correspondence.interval import Cells
from fairkit_correspondence.parameters import ANSWERED, NOT_ASKED, OPEN, Parameters

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext

    Array = NDArray[np.float64]
    Indices = NDArray[np.int64]

OPTIONAL = ("context", "outcome", "unresolved", "order", "look")
RECORDED = ("stated_model", "fingerprint", "address", "model", "parameters", "plan", "asked_on")
"""Columns that say who answered: their values stand in the certificate."""
MOST_RECORDED = 8


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """Rows of a table, in parts that add up: row numbers, groups by sensitive column, answers, and text columns."""

    parts: tuple[tuple[NDArray[np.int64], Mapping[str, Indices], Array, pa.RecordBatch], ...]

    def __add__(self, other: AnswerRows) -> AnswerRows:
        return AnswerRows(self.parts + other.parts)

    def sorted_parts(self) -> list[tuple[Any, ...]]:
        """Return the parts in the table's order."""
        return sorted(self.parts, key=lambda part: int(part[0][0]) if len(part[0]) else -1)


def columns_of(parameters: Parameters, columns: Sequence[str], table: str) -> dict[str, str]:
    """Return the column of each role.

    Raises
    ------
    DataError
        A column that was named is not there.
    """
    default = Parameters()
    found = {}
    for role in ("document", "name", *OPTIONAL):
        column = getattr(parameters, role)
        if column in columns:
            found[role] = column
        elif role not in OPTIONAL or column != getattr(default, role):
            raise DataError(
                f"{table} has no column {column!r} for the {role}; name it with `correspondence.{role}=COLUMN`"
            )
    for column in parameters.adjust:
        if column not in columns:
            raise DataError(f"{table} has no column {column!r} to adjust for")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers in one way to split people.

    Attributes
    ----------
    documents, contexts, names, groups
        What the codes stand for.
    document, context, name, group
        Codes, shape [n].
    low, high
        The answer if everything open is 0, and if it is 1, shape [n].
    open
        The probability that is open: 1 for a refusal, the unresolved part of a probability else, shape [n].
    outcome
        The outcome of each row, as its index in `OUTCOMES`.
    order, block
        Position in which it was asked, None where that is not known; and the look in which it was, shape [n].
    look, looks
        How many planned looks are complete, and how many there are; 1 and 1 without looks.
    unfinished
        Documents that are left out since not all of their questions were asked.
    """

    documents: list[str]
    contexts: list[str]
    names: list[tuple[str, str]]
    groups: list[str]
    document: Indices
    context: Indices
    name: Indices
    group: Indices
    low: Array
    high: Array
    open: Array
    outcome: Indices
    order: Array | None
    block: Indices
    look: int
    looks: int
    unfinished: int

    @property
    def middle(self) -> Array:
        """The answers with open ones half way, shape [n]."""
        return np.asarray((self.low + self.high) / 2)

    def cells(self, first: int, second: int, context: int | None = None, *, open_only: bool = False) -> Cells:
        """Return the mean answers of two groups: draws of one cell are one entry.

        Parameters
        ----------
        first, second
            The groups; the difference is the first minus the second.
        context
            The context; None: all of them.
        open_only
            Compare the open shares in place of the answers.
        """
        rows = (self.group == first) | (self.group == second)
        if context is not None:
            rows &= self.context == context
        keys = np.stack([self.document[rows], self.context[rows], self.name[rows]])
        shape = [len(self.documents), len(self.contexts), len(self.names)]
        flat = np.ravel_multi_index(tuple(keys), shape)
        cell, index = np.unique(flat, return_inverse=True)
        document, place, name = np.unravel_index(cell, shape)
        count = np.bincount(index)
        low, high = (self.open, self.open) if open_only else (self.low, self.high)
        means = [np.bincount(index, values[rows]) / count for values in (low, high)]
        side = np.zeros(len(self.names), dtype=bool)
        side[np.unique(self.name[rows & (self.group == first)])] = True
        present, number = np.unique(document, return_inverse=True)
        if context is not None:
            place = np.zeros_like(place)
        return Cells(number, place, name, side[name], means[0], means[1], len(present))


OUTCOMES = (ANSWERED, *OPEN, NOT_ASKED)


def answers_of(
    rows: AnswerRows, sensitive: str, groups: list[str], parameters: Parameters, context: AuditContext
) -> Answers:
    """Return the answers of complete documents.

    Raises
    ------
    DataError
        A document lacks a group, or a column holds what it cannot hold.
    """
    import pyarrow as pa

    ordered = rows.sorted_parts()
    table = pa.Table.from_batches([part[3] for part in ordered])
    group = np.concatenate([part[1][sensitive] for part in ordered])
    y = np.concatenate([part[2] for part in ordered])
    roles = columns_of(parameters, context.dataset.columns, context.dataset.name)
    known = group >= 0
    document, documents = _coded(table, roles["document"])
    where, contexts = _coded(table, roles["context"]) if "context" in roles else _single(len(y))
    name, names = _coded(table, roles["name"])
    outcome = _outcomes(table, roles, y)
    unresolved = _numbers(table, roles["unresolved"]) if "unresolved" in roles else np.zeros(len(y))
    unresolved = np.clip(np.nan_to_num(unresolved), 0, 1)
    is_open = outcome != 0
    missing = ~is_open & np.isnan(y)
    if missing.any():
        raise DataError(
            f"{context.dataset.name}: {int(missing.sum()):,} rows are {ANSWERED} and have no answer; name their "
            f"outcome ({', '.join(OPEN)}) or leave the column of outcomes out"
        )
    if parameters.adjust:
        y = np.where(is_open, np.nan, adjusted(table, y, group, parameters.adjust))
    low, high = np.where(is_open, 0.0, y), np.where(is_open, 1.0, y + unresolved)
    if parameters.refused != "bounds":
        fixed = float(parameters.refused == "yes")
        low = high = np.where(is_open, fixed, y + fixed * unresolved)
    keep, look, looks, unfinished = _complete(
        table, roles, document, outcome == len(OUTCOMES) - 1, parameters
    )
    keep &= known
    document, present = _compact(document, keep, documents)
    _check_arms(document, where[keep], group[keep], (present, contexts, groups), context.dataset.name)
    pair = name[keep] * len(groups) + group[keep]
    cells, index = np.unique(pair, return_inverse=True)
    return Answers(
        documents=present,
        contexts=contexts,
        names=[(names[cell // len(groups)], groups[cell % len(groups)]) for cell in cells],
        groups=groups,
        document=document,
        context=where[keep],
        name=index,
        group=group[keep],
        low=low[keep],
        high=np.maximum(high, low)[keep],
        open=np.where(is_open, 1.0, unresolved)[keep],
        outcome=outcome[keep],
        order=_numbers(table, roles["order"])[keep] if "order" in roles else None,
        block=np.unique(_numbers(table, roles["look"])[keep], return_inverse=True)[1]
        if "look" in roles
        else np.zeros(int(keep.sum()), np.int64),
        look=look,
        looks=looks,
        unfinished=unfinished,
    )


def _coded(table: pa.Table, column: str) -> tuple[Indices, list[str]]:
    """Return a column as codes into its sorted texts."""
    from fairkit.data.roles import value_text

    coded = table.column(column).combine_chunks().dictionary_encode()
    if coded.null_count or coded.dictionary.null_count:
        raise DataError(f"the column {column!r} is missing in some rows; every answer needs one")
    texts = [value_text(value) for value in coded.dictionary.to_pylist()]
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts), dtype=np.int64)
    rank[order] = np.arange(len(texts))
    return rank[coded.indices.to_numpy(zero_copy_only=False)], [texts[i] for i in order]


def _single(size: int) -> tuple[Indices, list[str]]:
    return np.zeros(size, dtype=np.int64), ["all"]


def _numbers(table: pa.Table, column: str) -> Array:
    import pyarrow as pa

    kind = table.column(column).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        raise DataError(f"the column {column!r} holds text, and numbers are due")
    values = table.column(column).cast(pa.float64()).to_numpy()
    return np.asarray(values, dtype=np.float64)


def _outcomes(table: pa.Table, roles: Mapping[str, str], y: Array) -> Indices:
    if "outcome" not in roles:
        return np.where(np.isnan(y), 2, 0)
    codes, texts = _coded(table, roles["outcome"])
    odd = [text for text in texts if text not in OUTCOMES]
    if odd:
        raise DataError(
            f"the column {roles['outcome']!r} holds {odd[0]!r}; outcomes are {', '.join(OUTCOMES)}"
        )
    return np.array([OUTCOMES.index(text) for text in texts] or [0], dtype=np.int64)[codes]


def _complete(
    table: pa.Table,
    roles: Mapping[str, str],
    document: Indices,
    waiting: NDArray[np.bool_],
    parameters: Parameters,
) -> tuple[NDArray[np.bool_], int, int, int]:
    """Return the rows of documents that count, the look, how many looks there are, and unfinished documents."""
    size = int(document.max(initial=-1)) + 1
    left = np.bincount(document, waiting, minlength=size) > 0
    if "look" not in roles or parameters.sequence:
        return ~left[document], 1, 1, int(left.sum())
    numbers = _numbers(table, roles["look"])
    looks = int(np.nanmax(numbers, initial=1))
    late = numbers[left[document]]
    done = int(late.min()) - 1 if len(late) else looks
    keep = numbers <= done
    return keep, done, looks, size - len(np.unique(document[keep]))


def _compact(document: Indices, keep: NDArray[np.bool_], documents: list[str]) -> tuple[Indices, list[str]]:
    if not keep.any():
        raise DataError("no document has all of its answers yet: ask more, with the same plan and output")
    present, index = np.unique(document[keep], return_inverse=True)
    return index, [documents[i] for i in present]


def _check_arms(
    document: Indices, context: Indices, group: Indices, names: tuple[list[str], ...], table: str
) -> None:
    """Refuse documents that have some groups and not others in a context."""
    sizes = [len(part) for part in names]
    count = np.zeros(sizes, dtype=bool)
    count[document, context, group] = True
    torn: NDArray[np.bool_] = np.asarray(count.any(axis=2) & ~count.all(axis=2))
    if torn.any():
        t, c = (int(i) for i in np.argwhere(torn)[0])
        lacking = names[2][int(np.flatnonzero(~count[t, c])[0])]
        place = f" in the context {names[1][c]!r}" if sizes[1] > 1 else ""
        raise DataError(
            f"{table}: the document {names[0][t]!r} has no answer for {lacking!r}{place}; every document needs every "
            f"group. {int(torn.any(axis=1).sum()):,} documents lack one: ask about them, or leave them out"
        )


def adjusted(table: pa.Table, y: Array, group: Indices, columns: Sequence[str]) -> Array:
    """Return answers without the effects of columns (a place in a list, a candidate's text), by least squares.

    Fits y on dummies of the groups and of each column together, and subtracts each column's part, centred.

    Raises
    ------
    ParameterError
        The columns have too many values.
    """
    parts = [np.maximum(group, 0), *(_coded(table, column)[0] for column in columns)]
    sizes = [int(part.max()) + 1 for part in parts]
    if sum(sizes) > 500:
        raise ParameterError(f"the columns to adjust for have {sum(sizes):,} values; at most 500 are fitted")
    known = ~np.isnan(y) & (group >= 0)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    gram, right = np.zeros((starts[-1], starts[-1])), np.zeros(starts[-1])
    for i, one in enumerate(parts):
        right[starts[i] : starts[i + 1]] = np.bincount(one[known], y[known], minlength=sizes[i])
        for j, other in enumerate(parts):
            pair = np.bincount(one[known] * sizes[j] + other[known], minlength=sizes[i] * sizes[j])
            gram[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = pair.reshape(sizes[i], sizes[j])
    effect = np.linalg.lstsq(gram, right, rcond=None)[0]
    out = y.copy()
    for i, one in enumerate(parts[1:], 1):
        part = effect[starts[i] : starts[i + 1]][one]
        out -= part - np.nanmean(part[known])
    return out


def recorded_values(rows: AnswerRows) -> dict[str, list[str]]:
    """Return what the table says about who answered: the distinct values of each recorded column."""
    found: dict[str, set[str]] = {}
    for *_, batch in rows.parts:
        for column in RECORDED:
            if column in batch.schema.names:
                values = batch.column(column).dictionary_encode().dictionary.to_pylist()
                found.setdefault(column, set()).update(str(v) for v in values if v not in (None, ""))
    return {column: sorted(values)[:MOST_RECORDED] for column, values in found.items() if values}


def cost_of(rows: AnswerRows) -> float:
    """Return what the answers cost; 0 where the table does not say."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = [batch.column("cost") for *_, batch in rows.sorted_parts() if "cost" in batch.schema.names]
    numbers = (pc.sum(part).as_py() for part in parts if pa.types.is_floating(part.type))
    return float(sum(number or 0.0 for number in numbers))


def digest_of(texts: Sequence[str]) -> str:
    """Return the SHA-256 of sorted texts, one a line."""
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()
