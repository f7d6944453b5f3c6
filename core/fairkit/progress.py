"""How long work says how far it is: one type, from the command's bar to a method's rounds."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What long work calls as it goes on; shown as a bar on a terminal."""

    def __call__(self, doing: str, done: int, total: int, **values: float) -> None:
        """Say how far the work is.

        `doing`: what is being done, such as ``"scoring rows"``: the same words for the same bar; `done`, `total`: how
        much is done, and how much there is; 0 where that is not known; `**values`: numbers to show, such as
        ``loss=0.31``.
        """


def no_progress(doing: str, done: int, total: int, **values: float) -> None:
    """Show nothing."""
