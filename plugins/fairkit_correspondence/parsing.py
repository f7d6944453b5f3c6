"""From a server's reply to an answer in [0, 1], or to the reason why there is none."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit_correspondence.requests import LETTERS

if TYPE_CHECKING:
    from fairkit_correspondence.plan import Question

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
    for one in [*(likely if isinstance(likely, list) else ()), token]:
        text, value = str(one.get("token", "")), one.get("logprob")
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
        numbers = {float(one.replace(",", ".")) for one in _NUMBER.findall(text)}
        inside = len(numbers) == 1 and low <= min(numbers) <= high
        return ((numbers.pop() - low) / (high - low),) if inside else None
    return _ranks(text, question.outcome, size)


def _option(text: str, options: Sequence[str]) -> str | None:
    """Return the option that a reply is, begins with, or alone holds."""
    plain = text.strip(_EDGES).casefold()
    for option in sorted(options, key=len, reverse=True):
        if plain == option.casefold() or re.match(rf"{re.escape(option.casefold())}\b(?! or\b)", plain):
            return option
    held = [o for o in options if re.search(rf"\b{re.escape(o.casefold())}\b", plain)]
    return held[0] if len(held) == 1 else None


def _ranks(text: str, outcome: str, size: int) -> tuple[float | None, ...] | None:
    """Return each shown entry's result; None for entries that the reply leaves out."""
    letters = [one for one in re.findall(r"\b[A-Z]\b", text) if one in LETTERS[:size]]
    if not letters or len(set(letters)) != len(letters):
        return None
    rank = {LETTERS.index(letter): place for place, letter in enumerate(letters)}
    if outcome == "place":
        worth = {entry: (size - 1 - place) / (size - 1) for entry, place in rank.items()}
    else:
        most = 1 if outcome == "first" else int(outcome.removeprefix("top-"))
        worth = {entry: float(place < most) for entry, place in rank.items()}
    return tuple(worth.get(entry) for entry in range(size))
