"""Which points of a frontier are on the front, and which one is picked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairkit.errors import ParameterError

if TYPE_CHECKING:
    from fairkit.frontiers.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How to pick a point on the validation rows.

    Attributes
    ----------
    limit
        The best performance among points whose disparity is at most this.
    alpha
        Without a limit: the largest α · performance + (1 - α) · (1 - disparity), in [0, 1].
    """

    limit: float | None = None
    alpha: float = 0.75

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ParameterError(f"alpha={self.alpha} is not between 0 and 1")

    def told(self) -> str:
        """Say it in words."""
        if self.limit is not None:
            return f"best performance with a disparity of at most {self.limit:g} on the validation rows"
        return f"largest {self.alpha:g} · performance + {1 - self.alpha:g} · (1 - disparity) on the validation rows"


def pareto(points: Sequence[Point], axes: tuple[str, str]) -> list[int]:
    """Return the places of the points that no other one beats on both axes, by the first axis.

    Parameters
    ----------
    points
        Those without both measures are passed over.
    axes
        Names of the disparity (smaller is better) and of the performance (as its metric says).
    """
    known = [(i, *_scores(point, axes)) for i, point in enumerate(points) if _scores(point, axes)]
    known.sort(key=lambda one: (one[1], -one[2], one[0]))
    front: list[int] = []
    best = float("-inf")
    for place, _, performance in known:
        if performance > best:
            front.append(place)
            best = performance
    return front


def _scores(point: Point, axes: tuple[str, str]) -> tuple[float, float] | tuple[()]:
    """The disparity, and the performance with its sign such that more is better."""
    x, y = (point.measures.get(name) for name in axes)
    if x is None or y is None:
        return ()
    return (-x.value if x.better == "higher" else x.value), (-y.value if y.better == "lower" else y.value)


def pick(points: Sequence[Point], axes: tuple[str, str], choice: Choice) -> tuple[int | None, str]:
    """Pick a point by rule.

    Returns
    -------
    int or None, str
        Its place, and a remark where the rule could not be kept ("" where it could).
    """
    known = {i: scores for i, point in enumerate(points) if (scores := _scores(point, axes))}
    if not known:
        return None, "No point is done: nothing to pick."
    if choice.limit is None:
        a = choice.alpha
        return max(known, key=lambda i: (a * known[i][1] + (1 - a) * (1 - known[i][0]), -i)), ""
    kept = [i for i in known if known[i][0] <= choice.limit]
    if kept:
        return max(kept, key=lambda i: (known[i][1], -known[i][0], -i)), ""
    least = min(known, key=lambda i: (known[i][0], -known[i][1], i))
    return (
        least,
        f"No point keeps the limit {choice.limit:g}: the one with the smallest disparity was picked.",
    )
