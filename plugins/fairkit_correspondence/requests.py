"""What is asked, in which order: names rotate over documents, options and places are balanced, the order is random."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.support.lazy_dataclass import dataclass
from fairkit_correspondence.answers import NOT_ASKED

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit_correspondence.lists import Name
    from fairkit_correspondence.plan import Asking, Plan, Question


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Entry:
    """One document under one name: what one row of the answers is about."""

    document: int
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question."""

    number: int  # its position in the plan
    order: int  # its position in the random order of asking
    unit: str  # the document, or the set of documents of a list, that it counts for
    context: str
    entries: tuple[Entry, ...]  # one document with its name, or those of a list in the order in which they are shown
    draw: int
    reversed: bool  # whether the options are shown in the other order
    look: int  # the planned look after which its unit counts, from 1

    def messages(self, plan: Plan) -> list[dict[str, str]]:
        """Return the chat messages."""
        texts = [_filled(plan.documents[entry.document].text, entry.name) for entry in self.entries]
        body = texts[0]
        if len(texts) > 1:
            body = "\n\n".join(f"{letter}.\n{text}" for letter, text in zip(LETTERS, texts, strict=False))
        question = f"{plan.question.text}\n{instruction(plan.question, len(texts), backward=self.reversed)}"
        prompt = plan.contexts[self.context].replace("{question}", question).replace("{document}", body)
        system = [{"role": "system", "content": plan.asking.system}] if plan.asking.system else []
        return [*system, {"role": "user", "content": prompt}]

    def digest(self, plan: Plan) -> str:
        """Return the SHA-256 of what is sent, without model and address, and of the draw."""
        record = [self.messages(plan), parameters_of(plan.asking), self.draw]
        return hashlib.sha256(json.dumps(record, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def instruction(question: Question, size: int, *, backward: bool) -> str:
    """Return the sentence that closes the answers."""
    if question.options:
        options = question.options[::-1] if backward else question.options
        return f"Reply with one of these and nothing else: {', '.join(options)}."
    if question.score:
        return f"Reply with a number from {question.score[0]:g} to {question.score[1]:g} and nothing else."
    letters = ", ".join(LETTERS[:size])
    return f"Reply with the letters {letters} from best to worst, separated by commas, and nothing else."


def parameters_of(asking: Asking) -> dict[str, Any]:
    """Return the parameters of every request; all are sent, since servers have defaults of their own."""
    sent = {"temperature": asking.temperature, "max_tokens": asking.max_tokens, **asking.extra}
    return sent | ({"logprobs": True, "top_logprobs": 20} if asking.logprobs else {})


def requests_of(plan: Plan) -> list[Request]:
    """Return all requests of a plan, by number."""
    rng = np.random.default_rng(int(plan.digest[:16], 16))
    groups: dict[str, list[Name]] = {group: [] for group in plan.groups}
    for name in plan.names:
        groups[name.group].append(name)
    turned = {group: [names[i] for i in rng.permutation(len(names))] for group, names in groups.items()}
    # documents come in random order: those of an early look meet all names already
    drafts = list(_of_lists(plan, turned, rng) if plan.question.list_size else _of_documents(plan, turned, rng))
    turn = {unit: index for index, unit in enumerate(dict.fromkeys(unit for unit, *_ in drafts))}
    looks = [turn[unit] * plan.asking.looks // len(turn) + 1 for unit, *_ in drafts]
    # random over all requests of a look: a model that changes meanwhile changes for every group alike
    position = np.lexsort((rng.random(len(drafts)), np.array(looks)))
    order = np.empty(len(drafts), dtype=np.int64)
    order[position] = np.arange(len(drafts))
    return [
        Request(
            number=number, order=int(order[number]), unit=unit, context=context, entries=entries, draw=draw,
            reversed=backward, look=looks[number],
        )
        for number, (unit, context, entries, draw, backward) in enumerate(drafts)
    ]  # fmt: skip


def _of_documents(plan: Plan, turned: Mapping[str, Sequence[Name]], rng: np.random.Generator) -> Any:
    each, draws = plan.asking.names_per_document, plan.asking.draws
    for turn, t in enumerate(rng.permutation(len(plan.documents)).tolist()):
        for c, context in enumerate(plan.contexts):
            for names in turned.values():
                for i in range(each):
                    name = names[(turn * each + i) % len(names)]
                    for draw in range(draws):
                        # the same orders of options for every group
                        backward = (turn + c + i + draw) % 2 == 1
                        yield plan.documents[t].id, context, (Entry(t, name),), draw, backward


def _of_lists(plan: Plan, turned: Mapping[str, Sequence[Name]], rng: np.random.Generator) -> Any:
    """Return lists: every set of documents is shown once for each group, so that groups meet all places alike."""
    size, groups = plan.question.list_size, list(turned)
    order = rng.permutation(len(plan.documents))
    used = dict.fromkeys(groups, 0)
    for start in range(0, len(order) - size + 1, size):
        members = order[start : start + size].tolist()
        unit = hashlib.sha256(" ".join(plan.documents[t].id for t in members).encode()).hexdigest()[:16]
        shift = int(rng.integers(size))
        lists = []
        for turn in range(len(groups)):
            entries = []
            for index in range(size):
                group = groups[(index + turn) % len(groups)]
                name = turned[group][used[group] % len(turned[group])]
                used[group] += 1
                entries.append(Entry(members[(index + turn * shift) % size], name))
            lists.append(tuple(entries))
        for context in plan.contexts:
            for shown in lists:
                for draw in range(plan.asking.draws):
                    yield unit, context, shown, draw, False


def _filled(text: str, name: Name) -> str:
    for slot, value in name.slots.items():
        text = text.replace(f"{{{slot}}}", value)
    return text


# From a server's reply to an answer in [0, 1], or to the reason why there is none.


_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_REFUSED = re.compile(
    r"\W*(?:i.?m sorry|i am sorry|sorry,|i can(?:no|.)t|i(?:.m| am) (?:unable|not able)|as an ai)", re.IGNORECASE
)
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,]\d+)?(?![\w])")
_EDGES = " \t\r\n\"'`*_#.,;:!()[]{}<>▁Ġ"
KEPT_TEXT = 4_000
"""Characters of a reply that are stored."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply says."""

    outcome: str  # answered, refused, unreadable or cut off
    values: tuple[float | None, ...]  # the answer in [0, 1], or one for each entry of a list; None where there is none
    unresolved: float = 0.0  # the probability in [0, 1] that belongs to no option
    text: str = ""  # the reply, at most `KEPT_TEXT` characters


def read_reply(reply: Mapping[str, Any], question: Question, size: int, *, logprobs: bool) -> Reading:
    """Read the first choice of a chat completion; `size` is the number of entries that were shown."""
    choices = reply.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = found if isinstance(found := choice.get("message"), dict) else {}
    content, refusal = message.get("content"), message.get("refusal")
    whole = content if isinstance(content, str) else ""
    text, nothing = whole[:KEPT_TEXT], (None,) * size
    if refusal or choice.get("finish_reason") == "content_filter":
        return Reading("refused", nothing, text=str(refusal or whole)[:KEPT_TEXT])
    mass = option_masses(choice.get("logprobs"), question.options) if question.options and logprobs else None
    if mass is not None:
        yes = min(sum(mass[option] for option in question.favorable), 1.0)
        return Reading("answered", (yes,), min(max(0.0, 1 - sum(mass.values())), 1 - yes), text)
    said = _THOUGHT.sub("", whole).strip()
    values = _values(said, question, size)
    if values is not None:
        return Reading("answered", values, text=text)
    if choice.get("finish_reason") == "length":
        return Reading("cut off", nothing, text=text)
    return Reading("refused" if not said or _REFUSED.match(said) else "unreadable", nothing, text=text)


def option_masses(record: Any, options: Sequence[str]) -> dict[str, float] | None:
    """Return the probability of each option from the log-probabilities of the answer's first token.

    A token counts for an option if it, stripped and case-folded, begins exactly that one. None without them.
    """
    tokens = record.get("content") if isinstance(record, dict) else None
    if not isinstance(tokens, list):
        return None
    tokens = [token for token in tokens if isinstance(token, dict)]
    closed = [i for i, token in enumerate(tokens) if "</think" in str(token.get("token")).lower()]
    after = tokens[closed[-1] + 1 if closed else 0 :]
    token = next((token for token in after if str(token.get("token", "")).strip(_EDGES)), None)
    if token is None:
        return None
    likely = token.get("top_logprobs")
    mass, seen = dict.fromkeys(options, 0.0), set()
    for token_record in [*(likely if isinstance(likely, list) else ()), token]:
        text, value = str(token_record.get("token", "")), token_record.get("logprob")
        # -9999 stands for no log-probability (vLLM); the sampled token may be listed twice
        if text in seen or not isinstance(value, int | float) or not -1000 < value <= 1e-3:
            continue
        seen.add(text)
        begun = text.strip(_EDGES).casefold()
        fits = [option for option in options if begun and option.casefold().startswith(begun)]
        if len(fits) == 1:
            mass[fits[0]] += math.exp(min(value, 0.0))
    return mass if seen else None


def _values(text: str, question: Question, size: int) -> tuple[float | None, ...] | None:
    if question.options:
        chosen = _option(text, question.options)
        return None if chosen is None else (float(chosen in question.favorable),)
    if question.score:
        low, high = question.score
        text = re.sub(rf"\s*(?:/|out of)\s*{high:g}\b", "", text)
        numbers = {float(number.replace(",", ".")) for number in _NUMBER.findall(text)}
        inside = len(numbers) == 1 and low <= min(numbers) <= high
        return ((numbers.pop() - low) / (high - low),) if inside else None
    return _ranks(text, question.outcome, size)


def _option(text: str, options: Sequence[str]) -> str | None:
    """Return the option that a reply is, begins with, or alone holds."""
    plain = text.strip(_EDGES).casefold()
    for option in sorted(options, key=len, reverse=True):
        if plain == option.casefold() or re.match(rf"{re.escape(option.casefold())}\b(?! or\b)", plain):
            return option
    matching = [o for o in options if re.search(rf"\b{re.escape(o.casefold())}\b", plain)]
    return matching[0] if len(matching) == 1 else None


def _ranks(text: str, outcome: str, size: int) -> tuple[float | None, ...] | None:
    """Return each shown entry's result; None for entries that the reply leaves out."""
    letters = [letter for letter in re.findall(r"\b[A-Z]\b", text) if letter in LETTERS[:size]]
    if not letters or len(set(letters)) != len(letters):
        return None
    rank = {LETTERS.index(letter): index for index, letter in enumerate(letters)}
    if outcome == "place":
        worth = {entry: (size - 1 - place) / (size - 1) for entry, place in rank.items()}
    else:
        most = 1 if outcome == "first" else int(outcome.removeprefix("top-"))
        worth = {entry: float(place < most) for entry, place in rank.items()}
    return tuple(worth.get(entry) for entry in range(size))


# The table of answers: its columns, and the digest of the requests that it answers.


REQUEST_COLUMNS = (
    "plan", "document", "text_digest", "context", "name", "draw", "reversed", "look", "order", "place", "request",
)  # fmt: skip
"""What is fixed before anybody is asked, beside the group's column, which is called as the plan calls it."""
ANSWER_COLUMNS = (
    "answer", "unresolved", "outcome", "text", "finish_reason", "prompt_tokens", "completion_tokens", "cost",
    "stated_model", "fingerprint", "address", "model", "parameters", "asked_on",
)  # fmt: skip
"""What comes back; empty in a table of requests."""
_KINDS = {
    **dict.fromkeys(("answer", "unresolved", "cost"), "float64"),
    **dict.fromkeys(("prompt_tokens", "completion_tokens", "draw", "look", "order", "place"), "int64"),
    "reversed": "bool_",
}


def is_ours(columns: Sequence[str]) -> bool:
    """Return whether a table was written by `fairkit ask`."""
    return {"plan", "request", *ANSWER_COLUMNS} <= set(columns)


def requests_digest(table: pa.Table) -> str | None:
    """Return the content digest of the requests behind a table of answers: the table without its answers.

    It is the digest of the table that `fairkit ask PLAN --dry-run --requests FILE` writes, which a policy lock signs
    before anybody is asked. None for tables that are not of `fairkit ask`.
    """
    import pyarrow as pa

    from fairkit.data.digest import TableDigest

    columns = table.column_names
    if not is_ours(columns):
        return None
    digest, empty = TableDigest(columns), pa.nulls(table.num_rows, pa.string())
    columns_digested = [empty if name in ANSWER_COLUMNS else table.column(name) for name in columns]
    for batch in pa.table(columns_digested, names=columns).to_batches():
        digest.update(batch)
    return digest.hexdigest()


def answers_table(
    plan: Plan, requests: Sequence[Request], records: Mapping[int, Mapping[str, Any]], served: Mapping[str, str]
) -> pa.Table:
    """Return the table of answers: a row for each request, or for each entry of a list; not asked ones included."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in (*REQUEST_COLUMNS, plan.column, *ANSWER_COLUMNS)}
    for request in requests:
        digest, record = request.digest(plan), records.get(request.number)
        for index, entry in enumerate(request.entries):
            row = {
                "plan": plan.digest, "document": request.unit, "text_digest": plan.documents[entry.document].id,
                "context": request.context, plan.column: entry.name.group, "name": entry.name.text,
                "draw": request.draw, "reversed": request.reversed, "look": request.look, "order": request.order,
                "place": index, "request": digest, **_answer(record, index, len(request.entries), served),
            }  # fmt: skip
            for name, values in columns.items():
                values.append(row.get(name))
    arrays = [pa.array(values, getattr(pa, _KINDS.get(name, "string"))()) for name, values in columns.items()]
    table = pa.table(arrays, names=list(columns))
    return table.replace_schema_metadata({"fairkit.data": json.dumps({"sensitive": [plan.column]})})


def _answer(record: Mapping[str, Any] | None, place: int, size: int, served: Mapping[str, str]) -> dict[str, Any]:
    if record is None:
        return {"outcome": NOT_ASKED} if served else {}
    value, outcome = record["values"][place], record["outcome"]
    row = {key: record[key] for key in ANSWER_COLUMNS if key in record} | dict(served)
    row |= {"answer": value, "cost": record["cost"] / size}
    if value is None and outcome == "answered":  # what a list's reply leaves out could have stood anywhere
        row["outcome"] = "unreadable"
    return row | (dict.fromkeys(("text", "prompt_tokens", "completion_tokens")) if place else {})
