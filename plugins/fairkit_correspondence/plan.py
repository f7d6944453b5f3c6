"""The plan of an audit, read from TOML and checked before it costs anything."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.parameters import parameter, parse_parameters
from fairkit.support.files import read_small
from fairkit.support.lazy_dataclass import dataclass
from fairkit_correspondence.lists import CONTEXTS, LISTS, NAME_COLUMNS, Name, NameList, matched, read_names, whole
from fairkit_correspondence.planning import ENOUGH_NAMES, PLANNED_NAMES

_SLOT = re.compile(r"\{([a-z_]+)\}")
_PRONOUNS = re.compile(r"\b(?:he|she|him|his|hers?|himself|herself|mr|mrs|ms)\b\.?", re.IGNORECASE)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.\w+")
_ORDERS = re.compile(
    r"(?:ignore|disregard|forget)\b.{0,40}\b(?:instructions|above|previous)|system prompt|you must (?:answer|say)",
    re.IGNORECASE | re.DOTALL,
)
_IDS = re.compile(r"\S*(?:\d[-_]|[-_]\d|\.(?:pdf|docx?|txt)\b)\S*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The documents."""

    path: str = parameter(help="A folder of .txt files, or a table.")
    column: str = parameter("text", help="The table's column of texts.")
    arms: Mapping[str, str] = parameter({}, help="Columns of texts by group, which must be the same text.")
    allow: tuple[str, ...] = parameter((), help="Words that look like names or pronouns and are none.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: one of closed options, a score, or the order of a list."""

    text: str = parameter(help="The question.")
    options: tuple[str, ...] = parameter((), help="The closed answers; a reply must be one of them.")
    favorable: tuple[str, ...] = parameter((), help="The options that count as 1; the others count as 0.")
    score: tuple[float, ...] = parameter((), help="The lowest and the highest score.")
    list_size: int = parameter(
        0, help="How many documents are ranked together; 0: documents stand alone.", minimum=0, maximum=26
    )
    outcome: str = parameter("first", help="Of a ranking: first, top-K, or place (1 for the first, 0 for the last).")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How often and how it is asked."""

    names_per_document: int = parameter(2, help="Names of each group on every document.", minimum=1)
    draws: int = parameter(1, help="Times that each request is put.", minimum=1, maximum=100)
    logprobs: bool = parameter(True, help="Ask for log-probabilities and use the probability of a favorable option.")
    temperature: float = parameter(1.0, help="Sampling temperature, as in the deployment.", minimum=0, maximum=2)
    max_tokens: int = parameter(5, help="The most tokens of an answer.", minimum=1, maximum=100_000)
    looks: int = parameter(5, help="Planned looks; the audit stops at the first that decides.", minimum=1, maximum=20)
    seed: int = parameter(0, help="Of every random draw of the plan.", minimum=0)
    names: Literal["sampled", "fixed"] = parameter("sampled", help="Whether names stand for a group.")
    limit: float = parameter(0.05, help="The difference that matters, in [0, 1].", above=0, maximum=1)
    base: float = parameter(0.5, help="The expected mean answer, for planning.", above=0, below=1)
    pilot: bool = parameter(False, help="A pilot may be small; no verdict is made from it.")
    system: str = parameter("", help="A system message; empty: none.")
    extra: Mapping[str, Any] = parameter({}, help="More parameters of the request, such as extra.top_p=0.9.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Prices of a million tokens."""

    prompt: float = parameter(help="Of the prompt; 0 if free.", minimum=0)
    completion: float = parameter(help="Of the completion; 0 if free.", minimum=0)


_TABLES: Mapping[str, Any] = {
    "documents": Texts, "names": NameList, "question": Question, "asking": Asking, "price": Price,
    "contexts": None, "details": None,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Document:
    """One text with slots, known by its digest; `source` says where it was, and is never sent."""

    id: str
    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A checked plan."""

    documents: tuple[Document, ...]  # the texts with slots
    contexts: Mapping[str, str]  # the prompts by name
    names: tuple[Name, ...]  # of every group
    column: str  # what the groups are called: the sensitive column of the answers
    question: Question
    asking: Asking
    price: Price | None  # of a million tokens
    digest: str  # SHA-256 of everything that decides what is asked
    placebo: str
    notes: tuple[str, ...]  # what a person should look at

    @property
    def groups(self) -> list[str]:
        """The groups, by alphabet."""
        return sorted({name.group for name in self.names})

    def cost(self, prompt: float, completion: float) -> float:
        """Return the price of tokens; 0 where none is named."""
        return 0.0 if self.price is None else (prompt * self.price.prompt + completion * self.price.completion) / 1e6


def read_plan(path: Path, looks: int | None = None) -> Plan:
    """Read and check a plan; `looks` takes the place of its number of looks."""
    try:
        record = tomllib.loads(read_small(path))
    except OSError as error:
        raise DataError(f"cannot read the plan {str(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"the plan {str(path)!r} is not TOML: {error}") from error
    for key in record:
        if key not in _TABLES:
            raise ParameterError(f"the plan has no table [{key}]. {did_you_mean(key, _TABLES, what='tables')}")
    for key in {"documents", "question", "names", *record}:
        if not isinstance(record.get(key), dict):
            raise ParameterError(f"the plan needs a table [{key}]")
    record["asking"] = dict(record.get("asking", {})) | ({} if looks is None else {"looks": looks})
    parsed = {
        key: parse_parameters(kind, record[key], owner=f"[{key}]")
        for key, kind in _TABLES.items()
        if kind and key in record
    }
    question: Question = parsed["question"]
    asking: Asking = parsed["asking"]
    texts: Texts = parsed["documents"]
    _check_question(question, asking)
    names = _names(parsed["names"], path.parent, asking)
    documents = tuple(_documents(texts, path.parent))
    for document in documents:
        fault = next(_faults(document, names, frozenset(texts.allow)), None)
        if fault is not None:
            raise DataError(f"the document {document.id} ({document.source}) {fault}")
    least = 2 * max(question.list_size, 1)
    if len(documents) < least:
        raise DataError(f"the plan has {len(documents)} documents; at least {least} are due")
    odd, notes = sum(bool(_ORDERS.search(document.text)) for document in documents), []
    if odd:
        notes.append(f"{odd} documents hold what reads like instructions to a model")
    if len(documents) < 50 and not asking.pilot:
        notes.append(f"{len(documents)} documents: 50 are planned, and below 30 there is no verdict")
    for source in sorted({parsed["names"].file, parsed["names"].surnames, parsed["names"].first_names} & set(LISTS)):
        notes.append(f"{source}: {LISTS[source][0]}; licence: {LISTS[source][1]}")
    contexts = _contexts(record, asking)
    decided = {
        "documents": [document.text for document in documents],
        "contexts": contexts,
        "names": [[name.group, dict(name.slots)] for name in names],
        "question": dataclasses.asdict(question),
        "asking": dataclasses.asdict(asking),
        "column": parsed["names"].column,
        "placebo": parsed["names"].placebo,
    }
    return Plan(
        documents=documents, contexts=contexts, names=tuple(names), column=decided["column"], question=question,
        asking=asking, price=parsed.get("price"), digest=_digest(decided),
        placebo=decided["placebo"], notes=tuple(notes),
    )  # fmt: skip


def _digest(decided: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(decided, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):
        raise ParameterError("[asking] extra has a value that JSON does not have; write dates as texts") from None
    return hashlib.sha256(text.encode()).hexdigest()


def _check_question(question: Question, asking: Asking) -> None:
    options, favorable = question.options, set(question.favorable)
    kinds = [bool(options), bool(question.score), question.list_size > 0]
    wrong = {
        "[question] needs exactly one of options, score and list_size": sum(kinds) != 1,
        "[question] needs two options or more, and `favorable` with some of them": bool(options)
        and (len({option.casefold() for option in options}) < 2 or not favorable or not favorable <= set(options)),
        "[question] calls every option favorable; nothing could differ": bool(options)
        and len(favorable) == len(options),
        "[question] score is the lowest and the highest number, such as [0, 10]": bool(question.score)
        and (len(question.score) != 2 or question.score[0] >= question.score[1]),
        "[question] list_size is 2 or more, and outcome is first, place or top-K": question.list_size == 1
        or not re.fullmatch(r"first|place|top-[1-9]\d*", question.outcome),
        "log-probabilities need closed options; write logprobs = false in [asking]": asking.logprobs and not options,
        "log-probabilities are those of temperature 1; write temperature = 1 or logprobs = false": asking.logprobs
        and asking.temperature != 1,
    }
    for message, holds in wrong.items():
        if holds:
            raise ParameterError(message)


def _names(wanted: NameList, folder: Path, asking: Asking) -> list[Name]:
    names = read_names(wanted, folder)
    names = [name for name in names if not wanted.groups or name.group in wanted.groups]
    groups = {name.group for name in names}
    if len(groups) < 2:
        raise DataError(f"the names are of {len(groups)} group; a comparison needs two")
    texts = [name.text for name in names]
    twice = next((text for text in texts if texts.count(text) > 1), None)
    if twice is not None and not wanted.placebo:
        raise DataError(f"the name {twice!r} stands twice in the list; a name belongs to one group, once")
    names = whole(matched(names, wanted.per_group, wanted.match, asking.seed), wanted, folder)
    fewest = len(names) // len(groups)
    if asking.names == "sampled" and fewest < ENOUGH_NAMES and not asking.pilot:
        raise ParameterError(
            f"inconclusive: {fewest} names cannot stand for a group; {ENOUGH_NAMES} do, {PLANNED_NAMES} are planned. "
            'Add names, or write names = "fixed" (a statement about these names) or pilot = true in [asking]'
        )
    titles = {frozenset(str(n.slots.get("title")) for n in names if n.group == group) for group in groups}
    if len(titles) > 1:
        raise DataError("the groups' names have different titles; arms may differ in the name alone")
    if asking.names_per_document > fewest:
        raise ParameterError(
            f"names_per_document = {asking.names_per_document}, and a group has {fewest} names; no name stands twice "
            "on a document"
        )
    return names


def _documents(wanted: Texts, folder: Path) -> Iterator[Document]:
    path = folder / wanted.path
    if path.is_dir():
        texts = [(file.name, _text(file)) for file in sorted(path.glob("*.txt"))]
        if not texts:
            raise DataError(f"the folder {path} has no .txt files")
    else:
        texts = _table_texts(path, wanted)
    seen: dict[str, str] = {}
    for where, text in texts:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        if digest in seen:
            raise DataError(f"the documents {seen[digest]} and {where} are the same text; a document counts once")
        seen[digest] = where
        yield Document(digest, text, where)


def _text(path: Path) -> str:
    try:
        return read_small(path)
    except (OSError, ValueError) as error:
        raise DataError(f"the document {path} cannot be read as UTF-8 text: {error}") from None


def _table_texts(path: Path, wanted: Texts) -> list[tuple[str, str]]:
    from fairkit.data.sources import open_source

    source, columns = open_source(path), list(wanted.arms.values()) or [wanted.column]
    for column in columns:
        if column not in source.columns:
            hint = did_you_mean(column, source.columns, what="columns")
            raise DataError(f"{path} has no column {column!r}. {hint}")
    batches = source.batches(columns, 1_000)
    rows = [row for batch in batches for row in zip(*(batch.column(c).to_pylist() for c in columns), strict=True)]
    for number, row in enumerate(rows):
        if len(set(row)) > 1:
            first, second = map(str, sorted(set(row), key=row.index)[:2])
            pairs = enumerate(zip(first, second, strict=False))
            start = next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
            raise DataError(
                f"{path}, row {number}: the texts of {' and '.join(wanted.arms)} differ outside the slots "
                f"({first[start:][:20]!r} against {second[start:][:20]!r}); arms may differ in names alone"
            )
    return [(f"row {number}", str(row[0])) for number, row in enumerate(rows)]


def _contexts(record: Mapping[str, Any], asking: Asking) -> dict[str, str]:
    wanted = record.get("contexts", {"use": list(CONTEXTS)})
    use = wanted.get("use", [])
    if not isinstance(use, list) or not all(isinstance(name, str) for name in use):
        raise ParameterError('[contexts] use is a list of names, such as ["company", "culture"]')
    unknown = next((name for name in use if name not in CONTEXTS), None)
    if unknown is not None:
        hint = did_you_mean(unknown, CONTEXTS, what="contexts")
        raise ParameterError(f"no context {unknown!r} is shipped. {hint}")
    contexts = {name: CONTEXTS[name] for name in use}
    contexts |= {name: str(text) for name, text in wanted.items() if name != "use"}
    if len(contexts) < 2 and not asking.pilot:
        raise ParameterError(
            "the plan has fewer than two contexts; bare questions hide gaps: use the shipped ones, or write your own"
        )
    details = {"company": "the company", "role": "team member", **record.get("details", {})}
    for name, text in contexts.items():
        for slot in ("document", "question"):
            if text.count(f"{{{slot}}}") != 1:
                raise ParameterError(f"the context {name!r} needs {{{slot}}} exactly once")
        contexts[name] = _SLOT.sub(lambda m: str(details.get(m[1], m[0])), text)
        left = [slot for slot in _SLOT.findall(contexts[name]) if slot not in ("document", "question")]
        if left:
            raise ParameterError(f"the context {name!r} has the slot {{{left[0]}}}; say what it is in [details]")
    return contexts


def _faults(document: Document, names: Sequence[Name], allowed: frozenset[str]) -> Iterator[str]:
    """Yield what a text has and must not have, or lacks."""
    text, slots = document.text, sorted(set(_SLOT.findall(document.text)))
    fills, write = ", ".join(NAME_COLUMNS), "write {pronoun}, {possessive} or {title}"
    unknown = (slot for slot in slots if slot not in NAME_COLUMNS)
    yield from (f"has the slot {{{slot}}}, which nothing fills; slots are {fills}" for slot in unknown)
    if not {"name", "first"} & set(slots):
        yield "has no slot {name} or {first}: every arm would be the same"
    silent = ((slot, name) for slot in slots for name in names if slot not in name.slots)
    yield from (f"has the slot {{{slot}}}, and the name {name.text!r} does not say it" for slot, name in silent)
    pronouns = (match[0] for match in _PRONOUNS.finditer(text) if match[0].strip(".") not in allowed)
    yield from (f"has the word {word!r} outside a slot; {write}, or allow the word in [documents]" for word in pronouns)
    text_words = set(re.findall(r"[^\W\d_]+", text)) - allowed
    parts = (part for name in names for part in (name.slots["first"], *name.text.split()))
    left = (part for part in parts if part in text_words and not part.islower())
    yield from (
        f"still has the name {part!r}; write {{name}} or {{first}}, or allow it in [documents]" for part in left
    )
    mails = (mail for mail in _MAIL.findall(text) if mail not in allowed)
    yield from (f"has the e-mail address {mail!r}, which may say whose text it is; leave it out" for mail in mails)
    ids = " ".join([document.source, *_IDS.findall(text)])
    for group in sorted({name.group for name in names}):
        if re.search(rf"(?:^|[\W_]){re.escape(group)}(?:[\W_]|\d|$)", ids, re.IGNORECASE):
            yield f"has the arm {group!r} in an id or a file's name; rename it"
