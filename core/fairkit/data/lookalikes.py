"""Values that look the same and are not: a space at the end, another case, a letter of another alphabet."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import combinations

_CONFUSABLE = str.maketrans(
    "аеорсухіјѕһԁԛԝѐёΑΒΕΖΗΙΚΜΝΟΡΤΥΧαορτυνιАВЕКМНОРСТУХІЅЈ", "aeopcyxijshdqweeABEZHIKMNOPTYXaoptuviABEKMHOPCTYXISJ"
)
"""Cyrillic and Greek letters that look like Latin ones."""
_MOST = 5


def lookalikes(column: str, names: Sequence[str]) -> list[str]:
    """Return a sentence for each pair of different values of a column that a reader takes for one."""
    seen: dict[str, list[str]] = {}
    for name in names:
        seen.setdefault(_as_seen(name), []).append(name)
    sentences = [
        f"{one!a} and {other!a} of the column {column!r} look the same and are counted apart: {_why(one, other)}. "
        "Are they one? Then write them alike in the table."
        for same in seen.values()
        for one, other in combinations(same, 2)
    ]
    rest = len(sentences) - _MOST
    return [*sentences[:_MOST], f"{rest} more pairs of values of {column!r} look the same."] if rest > 0 else sentences


def _as_seen(text: str) -> str:
    """Return the text as it looks: without case, spaces and invisible characters, in Latin letters."""
    shown = unicodedata.normalize("NFKC", text).translate(_CONFUSABLE)
    kept = "".join(letter for letter in shown if unicodedata.category(letter) not in ("Cf", "Cc"))
    return " ".join(kept.casefold().split())


def _why(one: str, other: str) -> str:
    if one.casefold() == other.casefold():
        return "they differ in upper and lower case"
    if " ".join(one.split()) == " ".join(other.split()):
        return "they differ in spaces"
    odd = [letter for text in (one, other) for letter in text if not letter.isascii()]
    if odd:
        named = unicodedata.name(odd[0], "a character without a name")
        return f"they differ in characters, such as U+{ord(odd[0]):04X} {named}"
    return "they differ in case and spaces"
