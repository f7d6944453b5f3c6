"""Where learners come from besides fairkit: whoever finds plugins says so here, and nothing here knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairkit.learners import Learner

Source = Callable[[], Iterable[type["Learner"]]]
_sources: list[Source] = []


def add_source(source: Source) -> None:
    """Have a function asked for learners, too."""
    _sources.append(source)


def brought() -> list[type[Learner]]:
    """Return the learners of all sources."""
    return [learner for source in _sources for learner in source()]
