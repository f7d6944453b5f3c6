"""Values that look the same and are not: a space at the end, another case, a letter of another alphabet."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from fairkit.data.roles import value_text

_CONFUSABLE = str.maketrans(
    "аеорсухіјѕһԁԛԝѐёΑΒΕΖΗΙΚΜΝΟΡΤΥΧαορτυνιАВЕКМНОРСТУХІЅЈ", "aeopcyxijshdqweeABEZHIKMNOPTYXaoptuviABEKMHOPCTYXISJ"
)
"""Cyrillic and Greek letters that look like Latin ones."""
_MOST = 5
_MARKS = ".,;:!?'\"`"


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


def beyond_two(column: str, counts: Mapping[Any, int], favorable: Sequence[Any]) -> list[str]:
    """Return a sentence where a column of two kinds of outcomes, good and other ones, has more than two values."""
    if len(counts) < 3 or len(counts) == len(favorable):
        return []
    shown = ", ".join(f"{value_text(value)!a} in {count:,} rows" for value, count in list(counts.items())[:8])
    good = " and ".join(ascii(value_text(value)) for value in favorable[:4])
    return [
        f"{column!r} has {len(counts)} values ({shown}{', ...' if len(counts) > 8 else ''}): {good} counts as "
        f"favorable and the {len(counts) - len(favorable)} others as unfavorable. Leave out rows without an outcome."
    ]


def _as_seen(text: str) -> str:
    """Return the text as it looks: without case, spaces and invisible characters, in Latin letters."""
    shown = unicodedata.normalize("NFKC", text).translate(_CONFUSABLE)
    kept = "".join(letter for letter in shown if unicodedata.category(letter) not in ("Cf", "Cc"))
    words = " ".join(kept.casefold().split())
    return re.sub(r"^0+(?=\d+$)", "", words.rstrip(_MARKS).rstrip() or words)


def _why(one: str, other: str) -> str:
    if one.casefold() == other.casefold():
        return "they differ in upper and lower case"
    if " ".join(one.split()) == " ".join(other.split()):
        return "they differ in spaces"
    if one.casefold().rstrip(_MARKS) == other.casefold().rstrip(_MARKS):
        return "they differ in a mark at the end"
    if one.lstrip("0") == other.lstrip("0"):
        return "they differ in leading zeros"
    odd = [letter for text in (one, other) for letter in text if not letter.isascii()]
    if odd:
        named = unicodedata.name(odd[0], "a character without a name")
        return f"they differ in characters, such as U+{ord(odd[0]):04X} {named}"
    return "they differ in case and spaces"
