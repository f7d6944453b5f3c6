"""Two models on the same rows: what became of each gap, and of each column's part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.results.comparisons import Change, outcome_of
from fairkit_why.comparison import Divided
from fairkit_why.findings import divided
from fairkit_why.gaps import parameters_of
from fairkit_why.limits import Noise, two_samples
from fairkit_why.parameters import NUMBERS, metrics_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit_why.comparison import Pair
    from fairkit_why.gaps import Why


def changes(first: Why, second: Why) -> Iterator[Change]:
    """Yield the change of every gap, paired by rows, and of its columns' parts.

    A part's change is the difference of both parts. Exact parts are paired by rows; the half width of sampled ones is
    the sum of both: whatever the correlation of two numbers on the same rows is, the interval is not too short.
    """
    others = {(pair.sensitive, pair.group, pair.reference): pair for pair in second.pairs(first.pairs())}
    for pair in first.pairs():
        other = others[pair.sensitive, pair.group, pair.reference]
        for of in metrics_of(first.chosen, first.context):
            before, after = divided(first, pair, of), divided(second, other, of)
            if isinstance(before, Divided) and isinstance(after, Divided):
                yield from _of_gap(first, (pair, other), before, after)


def _of_gap(first: Why, pairs: tuple[Pair, Pair], before: Divided, after: Divided) -> Iterator[Change]:
    pair, confidence = pairs[0], first.context.confidence
    names = sorted({*before.players, *after.players})
    paired = _paired_parts(pairs, (before, after), names)
    half = _paired(pairs, before.of, confidence)
    if half is None and paired is not None:
        half = float(paired.half_width(confidence)[-1])
    elif half is None:
        half = float(before.noise.half_width(confidence)[0] + after.noise.half_width(confidence)[0])
    yield change_of(pair, before.gap, after.gap, half, of=before.of)
    level = 1 - (1 - confidence) / len(names)
    parts = [_parts(one, level) for one in (before, after)]
    halves = None if paired is None else paired.half_width(level)
    for place, name in enumerate(names):
        old, new = (one.get(name, (0.0, 0.0)) for one in parts)
        both = old[1] + new[1] if halves is None else min(float(halves[place]), old[1] + new[1])
        yield change_of(pair, old[0], new[0], both, of=before.of, column=name)


def _parts(one: Divided, level: float) -> dict[str, tuple[float, float]]:
    halves = one.sure.half_width(level)
    return {name: (float(v), float(h)) for name, v, h in zip(one.players, one.values, halves, strict=True)}


def _paired_parts(pairs: tuple[Pair, Pair], divided: tuple[Divided, Divided], names: Sequence[str]) -> Noise | None:
    """Return how sure the changes of exact parts, and of their sum, are, from each row's own change.

    None where rows are not known.
    """
    first, moved = pairs[0], []
    for side in (0, 1):
        places = []
        for pair, one in zip(pairs, divided, strict=True):
            if one.rows is None or len(one.rows[side]) != len(pair.rows[side]):
                return None
            rows = np.zeros((len(pair.rows[side]), len(names)))
            rows[:, [names.index(name) for name in one.players]] = one.rows[side]
            # the two models read other columns, whose hash orders the rows: both in the table's order
            places.append(rows[np.argsort(pair.people.order[pair.rows[side]])])
        back = np.argsort(np.argsort(first.people.order[first.rows[side]]))
        change = (places[1] - places[0])[back]
        moved.append(np.column_stack([change, change.sum(axis=1)]))
    variance, degrees = two_samples((moved[0], moved[1]), first.weights, first.sizes, first.each("clusters"))
    reach = np.maximum(*(np.abs(rows).max(axis=0) for rows in moved))
    return Noise(variance, degrees, reach, first.units)


def _paired(pairs: tuple[Pair, Pair], of: str, confidence: float) -> float | None:
    """Return the half width of a gap's change from the rows' own changes; None for scores before the link."""
    if of in NUMBERS.values() and of != "prediction":
        return None
    name = "score" if of == "prediction" else "decision"
    values = [pair.people.number(name) for pair in pairs]
    if values[0] is None or values[1] is None:
        return None
    before, after = (p.people.in_table_order(v) for p, v in zip(pairs, values, strict=True) if v is not None)
    pair = pairs[0]
    moved = (after - before)[pair.people.order]
    rows = pair.only(1.0 if of == "true_positive_rate" else 0.0) if of.endswith("positive_rate") else pair
    noise = rows.gap((moved[rows.rows[0]], moved[rows.rows[1]]), 1.0)[2]
    return float(noise.half_width(confidence)[0])


def change_of(pair: Pair, before: float, after: float, half: float, **facts: Any) -> Change:
    """Return how a gap, or a part of it, changed; `facts` says which."""
    ends = after - before - half, after - before + half
    return Change(
        metric="attribution",
        sensitive=pair.sensitive,
        reference=pair.reference,
        parameters=parameters_of(pair, **facts),
        before=before,
        after=after,
        interval=ends,
        better="none",
        outcome=outcome_of(*ends, "none"),
    )
