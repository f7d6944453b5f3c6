"""Which points of a frontier are on the front, and which one is picked."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from fairkit.errors import ParameterError
from fairkit.intervals import two_sided

if TYPE_CHECKING:
    from fairkit_repair.frontiers.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How to pick a point on the validation rows.

    Attributes
    ----------
    limit
        The best performance among points that will surely keep this limit on the test rows: at most this, or at least
        this where more of the disparity's metric is better, as of a ratio.
    sure
        With a limit: the chance that the audit of the test rows passes, in (0, 1).
    alpha
        Without a limit: the largest α · performance + (1 - α) · (1 - disparity), in [0, 1].
    """

    limit: float | None = None
    alpha: float = 0.75
    sure: float = 0.95

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ParameterError(f"alpha={self.alpha} is not between 0 and 1")
        if not 0 < self.sure < 1:
            raise ParameterError(f"`sure` is a chance above 0 and below 1, not {self.sure}")

    def told(self) -> str:
        """Say it in words."""
        if self.limit is not None:
            return (
                f"best performance among points that keep the limit {self.limit:g} on the test rows with a predicted "
                f"chance of at least {self.sure:g}"
            )
        return f"largest {self.alpha:g} · performance + {1 - self.alpha:g} · (1 - disparity) on the validation rows"


def pareto(points: Sequence[Point], axes: tuple[str, str]) -> list[int]:
    """Return the places of the points that no other one beats on both axes, by the first axis.

    `points`: those without both measures are passed over; `axes`: names of the disparity (smaller is better) and of the
    performance (as its metric says).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How many rows points are measured on, and how many the pick will be judged on; at which confidence."""

    validation: int
    test: int
    confidence: float = 0.95


def chance(point: Point, axis: str, choice: Choice, rows: Judged) -> float | None:
    """Return the chance that the whole interval on the test rows keeps the limit; None without a limit or a number.

    The validation interval says how far the number may be off there, and by the root of the rows how wide its interval
    will be on the test rows: with the reach r on the limit's side, s = r / z, t² = validation / test rows,
    P(limit kept) = P(|x| + t r ≤ limit) for x ~ N(value, s² (1 + t²)). A point without an interval keeps no limit.
    """
    measure = point.measures.get(axis)
    if choice.limit is None or measure is None:
        return None
    if measure.interval is None:
        return 0.0
    low, high = measure.interval
    upward = measure.better == "higher"
    reach = max(measure.value - low if upward else high - measure.value, 1e-12)
    wide = math.sqrt(rows.validation / rows.test)
    spread = reach / two_sided(rows.confidence) * math.sqrt(1 + wide**2)
    normal = NormalDist(measure.value, spread)
    if upward:
        return 1 - normal.cdf(choice.limit + wide * reach)
    room = choice.limit - wide * reach
    return max(normal.cdf(room) - normal.cdf(-room), 0.0)


def pick(
    points: Sequence[Point], axes: tuple[str, str], choice: Choice, rows: Judged, moved: Collection[int] = ()
) -> tuple[int | None, str]:
    """Pick a point by rule.

    Returns
    -------
    int or None, str
        Its place, and a remark where the rule could not be kept ("" where it could). A model that decides all people
        alike, or that is among the `moved` ones, is picked only where there is no other.
    """
    scored = {i: scores for i, point in enumerate(points) if (scores := _scores(point, axes))}
    if not scored:
        return None, "No point is done: nothing to pick."
    scored = {i: scores for i, scores in scored.items() if i not in moved} or scored
    scored = {i: scores for i, scores in scored.items() if not points[i].is_constant} or scored
    if choice.limit is None:
        a = choice.alpha
        return max(scored, key=lambda i: (a * scored[i][1] + (1 - a) * (1 - scored[i][0]), -i)), ""
    chances = {i: chance(points[i], axes[0], choice, rows) or 0.0 for i in scored}
    kept = [i for i in scored if chances[i] >= choice.sure]
    if kept:
        return max(kept, key=lambda i: (scored[i][1], -scored[i][0], -i)), ""
    surest = max(scored, key=lambda i: (round(chances[i], 6), -scored[i][0], scored[i][1], -i))
    return (
        surest,
        f"No point keeps the limit {choice.limit:g} with a chance of {choice.sure:g}: this is the surest one, with a "
        f"chance of {chances[surest]:.2f}.",
    )
