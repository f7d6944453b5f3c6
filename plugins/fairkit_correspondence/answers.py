"""A table of answers as arrays: which document, context, group and name each answer is about, and what it was."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fairkit.errors import DataError, ParameterError
from fairkit.parameters import parameter
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_correspondence.planning import Cells, effective

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext

    Array = NDArray[np.float64]
    Indices = NDArray[np.int64]


OPTIONAL = ("context", "outcome", "unresolved", "order", "look")
RECORDED = ("stated_model", "fingerprint", "address", "model", "parameters", "plan", "asked_on")
"""Columns that say who answered: their values stand in the certificate."""
MOST_RECORDED, MOST_VALUES = 8, 500


class NothingCompleteError(DataError):
    """No document has all of its answers."""


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """Rows of a table, in parts that add up: first row, groups by sensitive column, answers, and columns."""

    parts: tuple[tuple[int, Mapping[str, Indices], Array, pa.RecordBatch], ...]

    def __add__(self, other: AnswerRows) -> AnswerRows:
        return AnswerRows(self.parts + other.parts)

    def joined(self) -> tuple[pa.Table, dict[str, Indices], Array]:
        """Return columns, groups and answers in the table's order."""
        import pyarrow as pa

        _, groups, y, batches = zip(*sorted(self.parts, key=lambda part: part[0]), strict=True)
        codes = {name: np.concatenate([part[name] for part in groups]) for name in groups[0]}
        return pa.Table.from_batches(batches), codes, np.concatenate(y)


def columns_of(parameters: Parameters, columns: Sequence[str], table: str) -> dict[str, str]:
    """Return the column of each role."""
    default, roles = Parameters(), {}
    for role in ("document", "name", *OPTIONAL):
        column = getattr(parameters, role)
        if column in columns:
            roles[role] = column
        elif role not in OPTIONAL or column != getattr(default, role):
            raise DataError(
                f"{table} has no column {column!r} for the {role}; name it with `correspondence.{role}=COLUMN`"
            )
    for column in parameters.adjust:
        if column not in columns:
            raise DataError(f"{table} has no column {column!r} to adjust for")
    return roles


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers of complete documents, in one way to split people."""

    documents: list[str]  # what the codes stand for
    contexts: list[str]
    names: list[tuple[str, str]]
    groups: list[str]
    document: Indices  # codes, shape [n]
    context: Indices
    name: Indices
    group: Indices
    low: Array  # the answer if everything open is 0, shape [n]
    high: Array  # if it is 1
    open: Array  # the probability that is open: 1 for a refusal, the unresolved part of a probability else, shape [n]
    outcome: Indices  # the outcome of each row, as its index in `OUTCOMES`
    order: Array | None
    tokens: Array | None  # of the prompt, as the server counts them; None where it does not say
    block: Indices
    look: int  # how many planned looks are complete; 1 without looks
    looks: int  # how many there are
    unfinished: int  # documents that are left out since not all of their questions were asked

    @property
    def middle(self) -> Array:
        """The answers with open ones half way, shape [n]."""
        return np.asarray((self.low + self.high) / 2)

    def names_of(self, group: int) -> int:
        """Return how many names a group has."""
        return len(np.unique(self.name[self.group == group]))

    def even_names(self, group: int) -> float:
        """Return as how many names with equally many answers a group's names count."""
        return effective(np.bincount(self.name[self.group == group]).astype(np.float64))

    def take(self, rows: NDArray[np.bool_]) -> Answers:
        """Return the answers of some rows, with the documents and names that these are about."""
        present, document = np.unique(self.document[rows], return_inverse=True)
        used, name = np.unique(self.name[rows], return_inverse=True)
        block = np.unique(self.block[rows], return_inverse=True)[1]
        others = ("context", "group", "low", "high", "open", "outcome", "order", "tokens")
        values_taken = {key: values[rows] for key in others if (values := getattr(self, key)) is not None}
        documents, names = [self.documents[i] for i in present], [self.names[i] for i in used]
        return replace(
            self, documents=documents, names=names, document=document, name=name, block=block, **values_taken
        )

    def cells(self, first: int, second: int, context: int | None = None, *, open_only: bool = False) -> Cells:
        """Return the mean answers of two groups: draws of one cell are one entry."""
        rows = (self.group == first) | (self.group == second)
        if context is not None:
            rows &= self.context == context
        bounds = (self.open, self.open) if open_only else (self.low, self.high)
        (document, context_of, name), (low, high) = self.means(rows, *bounds)
        side = np.zeros(len(self.names), dtype=bool)
        side[self.name[self.group == first]] = True
        present, number = np.unique(document, return_inverse=True)
        context_of = context_of if context is None else np.zeros_like(context_of)
        return Cells(number, context_of, name, side[name], low, high, len(present))

    def means(self, rows: NDArray[np.bool_], *values: Array) -> tuple[tuple[Indices, ...], list[Array]]:
        """Return document, context and name of the cells that some rows are of, and the mean of each value there."""
        shape = [len(self.documents), len(self.contexts), len(self.names)]
        flat = np.ravel_multi_index((self.document[rows], self.context[rows], self.name[rows]), shape)
        cell, index, count = np.unique(flat, return_inverse=True, return_counts=True)
        return np.unravel_index(cell, shape), [np.bincount(index, each[rows]) / count for each in values]


def answers_of(
    table: pa.Table, group: Indices, groups: list[str], y: Array, parameters: Parameters, context: AuditContext
) -> Answers:
    """Return the answers of complete documents."""
    label = context.dataset.name
    roles = columns_of(parameters, context.dataset.columns, label)
    document, documents = _coded(table, roles["document"])
    name, names = _coded(table, roles["name"])
    none = np.zeros(len(y), dtype=np.int64)
    where, contexts = _coded(table, roles["context"]) if "context" in roles else (none, ["all"])
    outcome = _outcomes(table, roles, y)
    unresolved = _numbers(table, roles["unresolved"]) if "unresolved" in roles else np.zeros(len(y))
    unresolved = np.clip(np.nan_to_num(unresolved), 0, 1)
    is_open = outcome != 0
    missing = int((~is_open & np.isnan(y)).sum())
    if missing:
        raise DataError(
            f"{label}: {missing:,} rows are {ANSWERED} and have no answer; name their outcome "
            f"({', '.join(OUTCOMES[1:-1])}) or leave the column of outcomes out"
        )
    if parameters.adjust:
        y = np.where(is_open, np.nan, adjusted(table, y, group, parameters.adjust))
    low, high = np.where(is_open, 0.0, y), np.where(is_open, 1.0, y + unresolved)
    if parameters.refused != "bounds":
        fixed = float(parameters.refused == "yes")
        low = high = np.where(is_open, fixed, y + fixed * unresolved)
    size = len(documents)
    left = np.bincount(document, outcome == len(OUTCOMES) - 1, minlength=size) > 0
    block: NDArray[Any] = none
    keep, stage, looks = ~left[document], 1, 1
    if "look" in roles:
        block = _numbers(table, roles["look"])
        looks = int(np.nanmax(block, initial=1))
        late = block[left[document]]
        stage = int(late.min()) - 1 if len(late) else looks
        keep = block <= stage
    unfinished = size - len(np.unique(document[keep]))
    keep &= group >= 0
    if not keep.any():
        raise NothingCompleteError(
            f"{label}: no document has all of its answers yet: ask more, with the same plan and output"
        )
    answers = Answers(
        documents=documents, contexts=contexts, groups=groups, names=[(n, g) for n in names for g in groups],
        document=document, context=where, name=name * len(groups) + group, group=group,
        low=low, high=np.maximum(high, low), open=np.where(is_open, 1.0, unresolved),
        outcome=outcome, order=_numbers(table, roles["order"]) if "order" in roles else None,
        tokens=_numbers(table, "prompt_tokens") if "prompt_tokens" in table.column_names else None,
        block=block, look=stage, looks=looks, unfinished=unfinished,
    ).take(keep)  # fmt: skip
    _check_arms(answers, label)
    return answers


def _coded(table: pa.Table, column: str) -> tuple[Indices, list[str]]:
    """Return a column as codes into its sorted texts."""
    from fairkit.data.roles import value_text

    coded = table.column(column).combine_chunks().dictionary_encode()
    if coded.null_count or coded.dictionary.null_count:
        raise DataError(f"the column {column!r} is missing in some rows; every answer needs one")
    texts, code = np.unique([value_text(v) for v in coded.dictionary.to_pylist()] or [""], return_inverse=True)
    return code[coded.indices.to_numpy(zero_copy_only=False)].astype(np.int64), texts.tolist()


def _numbers(table: pa.Table, column: str) -> Array:
    import pyarrow as pa

    kind = table.column(column).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        raise DataError(f"the column {column!r} holds text, and numbers are due")
    return np.asarray(table.column(column).cast(pa.float64()).to_numpy(), dtype=np.float64)


def _outcomes(table: pa.Table, roles: Mapping[str, str], y: Array) -> Indices:
    if "outcome" not in roles:
        return np.where(np.isnan(y), OUTCOMES.index("unreadable"), 0)
    codes, texts = _coded(table, roles["outcome"])
    odd = [text for text in texts if text not in OUTCOMES]
    if odd:
        raise DataError(f"the column {roles['outcome']!r} holds {odd[0]!r}; outcomes are {', '.join(OUTCOMES)}")
    return np.array([OUTCOMES.index(text) for text in texts], dtype=np.int64)[codes]


def _check_arms(answers: Answers, label: str) -> None:
    """Refuse documents that have some groups and not others in a context."""
    there = np.zeros([len(answers.documents), len(answers.contexts), len(answers.groups)], dtype=bool)
    there[answers.document, answers.context, answers.group] = True
    torn: NDArray[np.bool_] = np.asarray(there.any(axis=2) & ~there.all(axis=2))
    if torn.any():
        t, c = (int(i) for i in np.argwhere(torn)[0])
        lacking = answers.groups[int(np.flatnonzero(~there[t, c])[0])]
        where = f" in the context {answers.contexts[c]!r}" if len(answers.contexts) > 1 else ""
        raise DataError(
            f"{label}: the document {answers.documents[t]!r} has no answer for {lacking!r}{where}; every document "
            f"needs every group. {int(torn.any(axis=1).sum()):,} documents lack one: ask about them, or leave them out"
        )


def adjusted(table: pa.Table, y: Array, group: Indices, columns: Sequence[str]) -> Array:
    """Return answers without the effects of columns (a place in a list, a candidate's text), by least squares.

    Fits y on dummies of the groups and of each column together, and subtracts each column's part, centred.
    """
    codes = [np.maximum(group, 0), *(_coded(table, column)[0] for column in columns)]
    starts = np.cumsum([0, *(int(code.max()) + 1 for code in codes)])
    if starts[-1] > MOST_VALUES:
        raise ParameterError(f"the columns to adjust for have {starts[-1]:,} values; at most {MOST_VALUES} are fitted")
    usable = ~np.isnan(y) & (group >= 0)
    places = [code + start for code, start in zip(codes, starts, strict=False)]
    gram, right = np.zeros((starts[-1], starts[-1])), np.zeros(starts[-1])
    for place_codes in places:
        right += np.bincount(place_codes[usable], y[usable], minlength=starts[-1])
        for other_codes in places:
            pairs = np.bincount(place_codes[usable] * starts[-1] + other_codes[usable], minlength=gram.size)
            gram += pairs.reshape(gram.shape)
    effect = np.linalg.lstsq(gram, right, rcond=None)[0]
    return np.asarray(y - sum(effect[index] - effect[index[usable]].mean() for index in places[1:]))


def recorded_values(table: pa.Table) -> dict[str, list[str]]:
    """Return what the table says about who answered: the distinct values of each recorded column."""
    columns = [column for column in RECORDED if column in table.column_names]
    values = {c: {str(v) for v in table.column(c).unique().to_pylist() if v not in (None, "")} for c in columns}
    return {column: sorted(texts)[:MOST_RECORDED] for column, texts in values.items() if texts}


def cost_of(table: pa.Table) -> float:
    """Return what the answers cost; 0 where the table does not say."""
    return float(np.nansum(_numbers(table, "cost"))) if "cost" in table.column_names else 0.0


def digest_of(texts: Sequence[Any]) -> str:
    """Return the SHA-256 of sorted texts, one a line."""
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()


# What can be set about the auditor: the columns of the table, and what the statement is about.


ANSWERED, NOT_ASKED = "answered", "not asked"
OUTCOMES = (ANSWERED, "refused", "unreadable", "cut off", NOT_ASKED)
"""Outcomes of a question: an option; open ones, which could have been anything; and questions not put yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What can be set with --set correspondence.KEY=VALUE."""

    document: str = parameter("document", help="The column that says which text an answer is about.")
    name: str = parameter("name", help="The column with the name, or other wording, that stood in the text.")
    context: str = parameter("context", help="The column with the context of the question; optional.")
    outcome: str = parameter(
        "outcome",
        help="The column with answered, refused, unreadable, cut off or not asked; without it a missing answer is "
        "unreadable.",
    )
    unresolved: str = parameter(
        "unresolved", help="The column with the probability in [0, 1] that belongs to no option; optional."
    )
    order: str = parameter(
        "order", help="The column with the position in which questions were asked; optional, for drift."
    )
    look: str = parameter("look", help="The column with the look, from 1, that a document belongs to; optional.")
    names: Literal["sampled", "fixed"] = parameter(
        "sampled", help="Whether names stand for a group, or the statement is about these very names (fixed)."
    )
    documents: Literal["sampled", "fixed"] = parameter(
        "sampled", help="Whether documents stand for others like them; fixed keeps the same, wider interval."
    )
    worst: Literal["average", "context"] = parameter(
        "average", help="What the plain difference is: of the average over contexts, or of the worst context."
    )
    refused: Literal["bounds", "no", "yes"] = parameter(
        "bounds", help="What an open answer counts as: anything (bounds), 0 (no) or 1 (yes), as in the deployment."
    )
    placebo: str = parameter(
        "", help="The group that is a neutral edit of another, as PLACEBO=GROUP; it is compared with that group alone."
    )
    adjust: tuple[str, ...] = parameter(
        (), help="Columns whose effects are taken out of the answers by least squares, such as the place in a list."
    )
