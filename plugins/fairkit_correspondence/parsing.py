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

_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_OPEN_THOUGHT = re.compile(r"<think(?:ing)?>.*\Z", re.DOTALL | re.IGNORECASE)
_REFUSED = re.compile(
    r"\W*(?:i.?m sorry|i am sorry|sorry,|i can(?:no|.)t|i(?:.m| am) (?:unable|not able)|as an ai)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,]\d+)?(?![\w])")
_EDGES = " \t\r\n\"'`*_#.,;:!()[]{}<>▁Ġ"
KEPT_TEXT = 4_000
"""Characters of a reply that are stored."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply says.

    Attributes
    ----------
    outcome
        answered, refused, unreadable or cut off.
    values
        The answer in [0, 1], or one for each entry of a list; None where there is none.
    unresolved
        The probability in [0, 1] that belongs to no option.
    text
        The reply, at most `KEPT_TEXT` characters.
    """

    outcome: str
    values: tuple[float | None, ...]
    unresolved: float = 0.0
    text: str = ""


def read_reply(reply: Mapping[str, Any], question: Question, size: int, *, logprobs: bool) -> Reading:
    """Read the first choice of a chat completion; `size` is the number of entries that were shown."""
    choices = reply.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = found if isinstance(found := choice.get("message"), dict) else {}
    content, refusal = message.get("content"), message.get("refusal")
    nothing: tuple[float | None, ...] = (None,) * size
    whole = content if isinstance(content, str) else ""
    if refusal or choice.get("finish_reason") == "content_filter":
        return Reading("refused", nothing, text=str(refusal or whole)[:KEPT_TEXT])
    text = _OPEN_THOUGHT.sub("", _THOUGHT.sub("", whole)).strip()
    cut = choice.get("finish_reason") == "length"
    kept = whole[:KEPT_TEXT]
    if question.options and logprobs:
        mass = option_masses(choice.get("logprobs"), question.options)
        if mass is not None:
            yes = sum(mass[option] for option in question.favorable)
            rest = max(0.0, 1 - sum(mass.values()))
            return Reading("answered", (min(yes, 1.0),), min(rest, 1 - min(yes, 1.0)), kept)
    values = _values(text, question, size)
    if values is not None:
        return Reading("answered", values, text=kept)
    if cut:
        return Reading("cut off", nothing, text=kept)
    return Reading("refused" if not text or _REFUSED.match(text) else "unreadable", nothing, text=kept)


def option_masses(record: Any, options: Sequence[str]) -> dict[str, float] | None:
    """Return the probability of each option from the log-probabilities of the answer's first token.

    A token counts for an option if it, stripped and case-folded, begins exactly that one. None without them.
    """
    tokens = record.get("content") if isinstance(record, dict) else None
    if not isinstance(tokens, list):
        return None
    tokens = [token for token in tokens if isinstance(token, dict)]
    closed = [i for i, token in enumerate(tokens) if "</think" in str(token.get("token")).lower()]
    for token in tokens[closed[-1] + 1 if closed else 0 :]:
        if not str(token.get("token", "")).strip(_EDGES):
            continue
        found = dict.fromkeys(options, 0.0)
        likely = token.get("top_logprobs")
        seen: set[str] = set()
        for one in [*(likely if isinstance(likely, list) else ()), token]:
            text, value = str(one.get("token", "")), one.get("logprob")
            # -9999 stands for no log-probability (vLLM); the sampled token may be listed twice
            if text in seen or not isinstance(value, int | float) or not -1000 < value <= 1e-3:
                continue
            seen.add(text)
            begun = text.strip(_EDGES).casefold()
            fits = [option for option in options if begun and option.casefold().startswith(begun)]
            if len(fits) == 1:
                found[fits[0]] += math.exp(min(value, 0.0))
        return found if seen else None
    return None


def _values(text: str, question: Question, size: int) -> tuple[float | None, ...] | None:
    if question.options:
        chosen = _option(text, question.options)
        return None if chosen is None else (float(chosen in question.favorable),)
    if question.score:
        low, high = question.score
        text = re.sub(rf"\s*(?:/|out of)\s*{high:g}\b", "", text)
        numbers = {float(one.replace(",", ".")) for one in _NUMBER.findall(text)}
        numbers = {n for n in numbers if low <= n <= high} if len(numbers) == 1 else set()
        return ((numbers.pop() - low) / (high - low),) if numbers else None
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
