"""Was written for a later fairkit."""

from __future__ import annotations

import fairkit

FAIRKIT_INTERFACE = 99


class Share(fairkit.Mean):
    """The mean score."""

    name = "share_g"
    range = (0.0, 1.0)
    meaning = "0: nobody has a chance; 1: everybody has."
    needs = frozenset({"score"})

    def per_row(self, rows):
        return rows.score


@fairkit.hookimpl
def fairkit_metrics():
    return [Share]
