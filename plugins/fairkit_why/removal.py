"""After a removal: training again with and without a column, compared on the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.results.findings import Finding
    from fairkit_why.comparison import Divided, Pair
    from fairkit_why.findings import Why


def refitted(why: Why, pair: Pair, divided: Sequence[Divided | Finding]) -> list[Finding]:
    """Train again."""
    return []
