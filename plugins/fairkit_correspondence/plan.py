"""The plan of an audit, read from TOML and checked before it costs anything."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.parameters.declare import parameter, parse_parameters
from fairkit_correspondence.planning import ENOUGH_NAMES, PLANNED_NAMES
from fairkit_correspondence.stimuli import CONTEXTS, NAME_COLUMNS, Name, matched, read_names

_SLOT = re.compile(r"\{([a-z_]+)\}")
_PRONOUNS = re.compile(r"\b(?:he|she|him|his|hers?|himself|herself|mr|mrs|ms)\b\.?", re.IGNORECASE)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.\w+")
_ORDERS = re.compile(
    r"(?:ignore|disregard|forget)\b.{0,40}\b(?:instructions|above|previous)|system prompt|you must (?:answer|say)",
    re.IGNORECASE | re.DOTALL,
)
_IDS = re.compile(r"\S*(?:\d[-_]|[-_]\d|\.(?:pdf|docx?|txt)\b)\S*")
_TABLES = ("documents", "contexts", "question", "names", "asking", "price", "details")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: one of closed options, a score, or the order of a list."""

    text: str = parameter(help="The question.")
    options: tuple[str, ...] = parameter((), help="The closed answers; a reply must be one of them.")
    favorable: tuple[str, ...] = parameter((), help="The options that count as 1; the others count as 0.")
    score: tuple[float, ...] = parameter((), help="The lowest and the highest score.")
    list_size: int = parameter(
        0, help="How many documents are ranked together; 0: documents stand alone.", minimum=0
    )
    outcome: str = parameter(
        "first", help="Of a ranking: first, top-K, or place (1 for the first, 0 for the last)."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How often and how it is asked."""

    names_per_document: int = parameter(2, help="Names of each group on every document.", minimum=1)
    draws: int = parameter(1, help="Times that each request is put.", minimum=1, maximum=100)
    logprobs: bool = parameter(
        True, help="Ask for log-probabilities and use the probability of a favorable option."
    )
    temperature: float = parameter(
        1.0, help="Sampling temperature, as in the deployment.", minimum=0, maximum=2
    )
    max_tokens: int = parameter(5, help="The most tokens of an answer.", minimum=1, maximum=100_000)
    looks: int = parameter(
        5, help="Planned looks; the audit stops at the first that decides.", minimum=1, maximum=20
    )
    seed: int = parameter(0, help="Of every random draw of the plan.", minimum=0)
    names: Literal["sampled", "fixed"] = parameter("sampled", help="Whether names stand for a group.")
    limit: float = parameter(0.05, help="The difference that matters, in [0, 1].", above=0, maximum=1)
    base: float = parameter(0.5, help="The expected mean answer, for planning.", above=0, below=1)
    pilot: bool = parameter(False, help="A pilot may be small; no verdict is made from it.")
    system: str = parameter("", help="A system message; empty: none.")
    extra: Mapping[str, Any] = parameter({}, help="More parameters of the request, such as extra.top_p=0.9.")


@dataclass(frozen=True, slots=True)
class Document:
    """One text with slots, known by its digest; `source` says where it was, and is never sent."""

    id: str
    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A checked plan.

    Attributes
    ----------
    documents, contexts, names
        The texts with slots, the prompts by name, and the names of every group.
    column
        What the groups are called: the sensitive column of the answers.
    price
        Of a million prompt tokens and of a million completion tokens.
    digest
        SHA-256 of everything that decides what is asked.
    notes
        What a person should look at.
    """

    documents: tuple[Document, ...]
    contexts: Mapping[str, str]
    names: tuple[Name, ...]
    column: str
    question: Question
    asking: Asking
    price: tuple[float, float] | None
    digest: str
    placebo: str = ""
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def groups(self) -> list[str]:
        """The groups, by alphabet."""
        return sorted({name.group for name in self.names})


def read_plan(path: Path, looks: int | None = None) -> Plan:
    """Read and check a plan; `looks` takes the place of its number of looks.

    Raises
    ------
    FairkitError
        One sentence about what is wrong in the plan or its texts.
    """
    try:
        record = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read the plan {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"the plan {str(path)!r} is not TOML: {error}") from error
    for key in record:
        if key not in _TABLES:
            raise ParameterError(
                f"the plan has no table [{key}]. {did_you_mean(key, _TABLES, what='tables')}"
            )
    for key in {"documents", "question", "names", *record}:
        if not isinstance(record.get(key), dict):
            raise ParameterError(f"the plan needs a table [{key}]")
    question: Question = parse_parameters(Question, record["question"], owner="question")
    wished = dict(record.get("asking", {})) | ({} if looks is None else {"looks": looks})
    asking: Asking = parse_parameters(Asking, wished, owner="asking")
    _check_question(question, asking)
    names, column, placebo = _names(record["names"], path.parent, asking)
    allowed = frozenset(record["documents"].get("allow", ()))
    documents = tuple(_documents(record["documents"], path.parent))
    contexts = _contexts(record, asking)
    for document in documents:
        _check_text(document, names, allowed)
    odd = sum(bool(_ORDERS.search(one.text)) for one in documents)
    notes = [f"{odd} documents hold what reads like instructions to a model"] if odd else []
    if len(documents) < 2 * max(question.list_size, 1):
        raise DataError(
            f"the plan has {len(documents)} documents; at least {2 * max(question.list_size, 1)} are due"
        )
    if len(documents) < 50 and not asking.pilot:
        notes.append(f"{len(documents)} documents: 50 are planned, and below 30 there is no verdict")
    price = _price(record.get("price"))
    decided = {
        "documents": [one.text for one in documents],
        "contexts": dict(contexts),
        "names": [[one.group, dict(one.slots)] for one in names],
        "question": dataclasses.asdict(question),
        "asking": dataclasses.asdict(asking),
        "column": column,
        "placebo": placebo,
    }
    text = json.dumps(decided, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return Plan(
        documents=documents, contexts=contexts, names=tuple(names), column=column, question=question, asking=asking,
        price=price, digest=hashlib.sha256(text.encode()).hexdigest(), placebo=placebo, notes=tuple(notes),
    )  # fmt: skip


def _check_question(question: Question, asking: Asking) -> None:
    kinds = [bool(question.options), bool(question.score), question.list_size > 0]
    if sum(kinds) != 1:
        raise ParameterError("[question] needs exactly one of options, score and list_size")
    if question.options:
        lowered = [one.casefold() for one in question.options]
        if (
            len(set(lowered)) < 2
            or not set(question.favorable) <= set(question.options)
            or not question.favorable
        ):
            raise ParameterError("[question] needs two options or more, and `favorable` with some of them")
        if len(question.favorable) == len(question.options):
            raise ParameterError("[question] calls every option favorable; nothing could differ")
    if question.score and (len(question.score) != 2 or question.score[0] >= question.score[1]):
        raise ParameterError("[question] score is the lowest and the highest number, such as [0, 10]")
    if question.list_size == 1 or not re.fullmatch(r"first|place|top-[1-9]\d*", question.outcome):
        raise ParameterError("[question] list_size is 2 or more, and outcome is first, place or top-K")
    if asking.logprobs and not question.options:
        raise ParameterError("log-probabilities need closed options; write logprobs = false in [asking]")
    if asking.logprobs and asking.temperature != 1:
        raise ParameterError(
            "log-probabilities are those of temperature 1; write temperature = 1 or logprobs = false"
        )


def _names(record: Mapping[str, Any], folder: Path, asking: Asking) -> tuple[list[Name], str, str]:
    odd = set(record) - {"file", "sha256", "column", "per_group", "match", "placebo", "groups"}
    if odd or "file" not in record:
        raise ParameterError(
            f"[names] has {'no file' if not odd else 'the unknown key ' + repr(sorted(odd)[0])}; it takes file, "
            "sha256, column, groups, per_group, match and placebo"
        )
    count = record.get("per_group")
    if count is not None and (not isinstance(count, int) or count < 2):
        raise ParameterError(f"[names] per_group = {count!r} is not a whole number of at least 2")
    column = str(record.get("column", "group"))
    names = read_names(str(record["file"]), folder, record.get("sha256"), column)
    kept = record.get("groups")
    names = [one for one in names if kept is None or one.group in kept]
    if len({one.group for one in names}) < 2:
        raise DataError(f"the names are of {len({one.group for one in names})} group; a comparison needs two")
    texts = [one.text for one in names]
    twice = next((text for text in texts if texts.count(text) > 1), None)
    if twice is not None and not record.get("placebo"):
        raise DataError(f"the name {twice!r} stands twice in the list; a name belongs to one group, once")
    names = matched(names, count, list(record.get("match", ())), asking.seed)
    fewest = min(sum(one.group == group for one in names) for group in {one.group for one in names})
    if asking.names == "sampled" and fewest < ENOUGH_NAMES and not asking.pilot:
        raise ParameterError(
            f"inconclusive: {fewest} names cannot stand for a group; {ENOUGH_NAMES} do, {PLANNED_NAMES} are planned. "
            'Add names, or write names = "fixed" (a statement about these names) or pilot = true in [asking]'
        )
    titles = {
        group: {one.slots.get("title") for one in names if one.group == group}
        for group in {n.group for n in names}
    }
    if len({frozenset(map(str, t)) for t in titles.values()}) > 1:
        raise DataError("the groups' names have different titles; arms may differ in the name alone")
    if asking.names_per_document > fewest:
        raise ParameterError(
            f"names_per_document = {asking.names_per_document}, and a group has {fewest} names; no name stands twice "
            "on a document"
        )
    return names, column, str(record.get("placebo", ""))


def _documents(record: Mapping[str, Any], folder: Path) -> Iterator[Document]:
    odd = set(record) - {"path", "column", "arms", "allow"}
    if odd or "path" not in record:
        raise ParameterError("[documents] takes path, column, arms (columns by group) and allow (words)")
    path = folder / str(record["path"])
    if path.is_dir():
        texts = [(file.name, _text(file)) for file in sorted(path.glob("*.txt"))]
        if not texts:
            raise DataError(f"the folder {path} has no .txt files")
    else:
        texts = _table_texts(path, record)
    seen: dict[str, str] = {}
    for where, text in texts:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        if digest in seen:
            raise DataError(
                f"the documents {seen[digest]} and {where} are the same text; a document counts once"
            )
        seen[digest] = where
        yield Document(digest, text, where)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the document {path} cannot be read as UTF-8 text: {error}") from None


def _table_texts(path: Path, record: Mapping[str, Any]) -> list[tuple[str, str]]:
    from fairkit.data.sources import open_source

    source = open_source(path)
    arms = dict(record.get("arms", {}))
    columns = list(arms.values()) or [str(record.get("column", "text"))]
    for column in columns:
        if column not in source.columns:
            raise DataError(
                f"{path} has no column {column!r}. {did_you_mean(column, source.columns, what='columns')}"
            )
    rows = [
        row
        for batch in source.batches(columns, 1_000)
        for row in zip(*(batch.column(c).to_pylist() for c in columns), strict=True)
    ]
    for number, row in enumerate(rows):
        if len(set(row)) > 1:
            raise DataError(
                f"{path}, row {number}: the texts of {' and '.join(arms)} differ outside the slots ({_gap(*row[:2])}); "
                "arms may differ in the name alone"
            )
    return [(f"row {number}", str(row[0])) for number, row in enumerate(rows)]


def _gap(one: str, other: str) -> str:
    start = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return f"{one[start : start + 20]!r} against {other[start : start + 20]!r}"


def _contexts(record: Mapping[str, Any], asking: Asking) -> dict[str, str]:
    wished = record.get("contexts", {"use": list(CONTEXTS)})
    found = {name: CONTEXTS[name] for name in wished.get("use", ()) if name in CONTEXTS}
    unknown = [name for name in wished.get("use", ()) if name not in CONTEXTS]
    if unknown:
        raise ParameterError(
            f"no context {unknown[0]!r} is shipped. {did_you_mean(unknown[0], CONTEXTS, what='contexts')}"
        )
    found |= {name: str(text) for name, text in wished.items() if name != "use"}
    if len(found) < 2 and not asking.pilot:
        raise ParameterError(
            "the plan has fewer than two contexts; bare questions hide gaps: use the shipped ones, or write your own"
        )
    details = {"company": "the company", "role": "team member", **record.get("details", {})}
    for name, text in found.items():
        for slot in ("document", "question"):
            if text.count(f"{{{slot}}}") != 1:
                raise ParameterError(f"the context {name!r} needs {{{slot}}} exactly once")
        filled = _SLOT.sub(lambda m: str(details.get(m[1], m[0])), text)
        left = [slot for slot in _SLOT.findall(filled) if slot not in ("document", "question")]
        if left:
            raise ParameterError(
                f"the context {name!r} has the slot {{{left[0]}}}; say what it is in [details]"
            )
        found[name] = filled
    return found


def _check_text(document: Document, names: Sequence[Name], allowed: frozenset[str]) -> None:
    text, where = document.text, f"the document {document.id}"
    slots = set(_SLOT.findall(text))
    odd = slots - set(NAME_COLUMNS)
    if odd:
        raise DataError(
            f"{where} has the slot {{{sorted(odd)[0]}}}, which nothing fills; slots are {', '.join(NAME_COLUMNS)}"
        )
    if not slots & {"name", "first"}:
        raise DataError(
            f"{where} ({document.source}) has no slot {{name}} or {{first}}: every arm would be the same"
        )
    for slot in slots:
        lacking = next((one for one in names if slot not in one.slots), None)
        if lacking is not None:
            raise DataError(
                f"{where} has the slot {{{slot}}}, and the name {lacking.text!r} does not say its {slot}"
            )
    left = next((m[0] for m in _PRONOUNS.finditer(text) if m[0].strip(".") not in allowed), None)
    if left is not None:
        raise DataError(
            f"{where} has the word {left!r} outside a slot; write {{pronoun}}, {{possessive}} or {{title}}, or allow "
            "the word in [documents]"
        )
    words = set(re.findall(r"[^\W\d_]+", text))
    for one in names:
        for part in {one.slots["first"], *one.text.split()}:
            if part in words and part not in allowed:
                raise DataError(
                    f"{where} still has the name {part!r}; write {{name}} or {{first}}, or allow it in [documents]"
                )
    mail = next((m for m in _MAIL.findall(text) if m not in allowed), None)
    groups = {one.group for one in names}
    if mail is not None:
        raise DataError(
            f"{where} has the e-mail address {mail!r}, which may say whose text it is; leave it out"
        )
    arm = next(
        (g for g in groups if _names_arm(g, document.source) or _names_arm(g, " ".join(_IDS.findall(text)))),
        None,
    )
    if arm is not None:
        raise DataError(
            f"{where} ({document.source}) has the arm {arm!r} in an id or a file's name; rename it"
        )


def _names_arm(group: str, text: str) -> bool:
    return bool(re.search(rf"(?:^|[\W_]){re.escape(group)}(?:[\W_]|\d|$)", text, re.IGNORECASE))


def _price(record: Any) -> tuple[float, float] | None:
    if record is None:
        return None
    try:
        found = float(record["prompt"]), float(record["completion"])
    except (KeyError, TypeError, ValueError):
        found = (-1.0, -1.0)
    if min(found) < 0:
        raise ParameterError(
            "[price] needs prompt and completion: the price of a million tokens of each; 0 if free"
        )
    return found
