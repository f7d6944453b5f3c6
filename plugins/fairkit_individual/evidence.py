"""The pairs of a certificate, for people to look at: two rows that are alike, and how differently they fare."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.individual.plan import Plan
    from fairkit.individual.tree import Floats
    from fairkit_individual.collect import Rows


def pairs(plan: Plan, rows: Rows, count: int, own: Floats, scores: Floats | None) -> list[dict[str, Any]]:
    """Describe the moves of the largest gain, no row twice.

    Parameters
    ----------
    plan
        The optimal transport.
    rows
        All rows.
    count
        At most so many.
    own
        Shape (n,): R_jj, the reward of each row that stays.
    scores
        Shape (n,): the model's number for each row, where it has one.

    Returns
    -------
    list of dict
        ``from``, ``to`` (row numbers of the table), ``distance`` (squared fair distance), ``gain``, ``losses`` (before
        and after), ``scores``, ``differs`` and ``same`` (column to values).
    """
    found: list[dict[str, Any]] = []
    seen: set[int] = set()
    for entry in plan.top(len(plan.source)).tolist():
        source, target = int(plan.source[entry]), int(plan.target[entry])
        if len(found) == count:
            break
        if source in seen or target in seen:
            continue
        seen.update((source, target))
        gain = float(plan.gain[entry])
        record: dict[str, Any] = {
            "from": int(rows.numbers[source]),
            "to": int(rows.numbers[target]),
            "distance": float(plan.distance[entry]),
            "gain": gain,
            "losses": [float(own[source]), float(own[source]) + gain],
        }
        if scores is not None:
            record["scores"] = [float(scores[source]), float(scores[target])]
        found.append(record | _compare(rows, source, target))
    return found


def _compare(rows: Rows, first: int, second: int) -> dict[str, Any]:
    differs, same = {}, {}
    for name, values in rows.columns.items():
        one, two = plain(values[first]), plain(values[second])
        if one == two:
            same[name] = one
        else:
            differs[name] = [one, two]
    return {"differs": differs, "same": same}


def plain(value: Any) -> Any:
    """Give a cell as a JSON value; a missing one is None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def shared_columns(metric: Sequence[str], model: Sequence[str], sensitive: Sequence[str]) -> list[str]:
    """The columns to show, each once: the model's, the metric's, the sensitive ones."""
    return list(dict.fromkeys([*model, *metric, *sensitive]))
