"""Counterfactual sentences: words that should not matter are swapped for each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwappedSentences:
    """Other versions of sentences."""

    sentences: tuple[str, ...]  # the versions that differ from the sentence they were made from
    source: NDArray[np.int64]  # shape (p,): the sentence that each was made from
    count: int  # how many sentences were given

    def groups(self) -> NDArray[np.int64]:
        """Group the given sentences followed by `sentences`: versions of one sentence bear its number (FACE)."""
        return np.concatenate([np.arange(self.count), self.source])


def swap_words(sentences: Sequence[str], words: Sequence[Sequence[str]]) -> SwappedSentences:
    """Make the counterfactual versions of sentences (Garg et al. 2019; SenSeI, appendix B).

    Version k of a sentence has every listed word replaced by the k-th next of its list, all at once: with
    ``[("he", "she"), ("his", "her")]`` "He lost his key" becomes "She lost her key". Whole words are replaced,
    whatever their case, which is kept. A sentence without a listed word has no other version.

    Examples
    --------
    >>> swap_words(["Some people are gay", "Tea?"], [("gay", "straight")]).sentences
    ('Some people are straight',)
    """
    lists = [[word.casefold() for word in one] for one in words]
    listed = [word for one in lists for word in one]
    lengths = {len(one) for one in lists}
    if len(lengths) != 1 or min(lengths) < 2:
        raise ParameterError(
            "words must be lists of at least two words, all of one length, as in [('he', 'she'), ('his', 'her')]"
        )
    twice = {word for word in listed if listed.count(word) > 1}
    if twice or "" in listed:
        raise ParameterError(
            f"the word {min(twice | {''} & set(listed))!r} is listed twice or empty: what should it become?"
        )
    places = {word: (one, place) for one in lists for place, word in enumerate(one)}
    pattern = re.compile(
        r"(?<!\w)(?:" + "|".join(map(re.escape, sorted(listed, key=len, reverse=True))) + r")(?!\w)", re.IGNORECASE
    )
    made: list[str] = []
    source: list[int] = []
    for number, sentence in enumerate(sentences):
        for shift in range(1, len(lists[0])):

            def other(match: re.Match[str], shift: int = shift) -> str:
                one, place = places[match.group().casefold()]
                return _cased(one[(place + shift) % len(one)], match.group())

            version = pattern.sub(other, sentence)
            if version != sentence:
                made.append(version)
                source.append(number)
    return SwappedSentences(sentences=tuple(made), source=np.array(source, dtype=np.int64), count=len(sentences))


def _cased(word: str, like: str) -> str:
    """Write a word as another is written: lower, Capitalised, or UPPER (one letter counts as capitalised)."""
    if like.isupper() and len(like) > 1:
        return word.upper()
    return word[:1].upper() + word[1:] if like[:1].isupper() else word
