"""Takes the name of a plugin that ships with fairkit."""

from __future__ import annotations

import fairkit


class Share(fairkit.Mean):
    """The mean score."""

    name = "share_e"
    range = (0.0, 1.0)
    meaning = "0: nobody has a chance; 1: everybody has."
    needs = frozenset({"score"})

    def per_row(self, rows):
        return rows.score


@fairkit.hookimpl
def fairkit_metrics():
    return [Share]
