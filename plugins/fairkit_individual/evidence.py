"""The pairs of a certificate, for people to look at: two rows that are alike, and how differently they fare."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit_individual.rewards import shown_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit_individual.collect import AuditedRows
    from fairkit_individual.tables import Table
    from fairkit_similarity.plan import Plan
    from fairkit_similarity.search.problem import Problem


def pairs(plan: Plan, problem: Problem, table: Table, count: int, task: Task) -> list[dict[str, Any]]:
    """Describe the moves of the largest gain, no row twice."""
    entries = _top(plan, count)
    places = np.unique(np.concatenate([plan.source[entries], plan.target[entries]]))
    rows = table.take(places)
    scores = shown_scores(rows, task)
    sources, targets = (np.searchsorted(places, plan.source[entries]), np.searchsorted(places, plan.target[entries]))
    owns = problem.own[np.searchsorted(problem.asked, plan.source[entries])]
    records: list[dict[str, Any]] = []
    for entry, source, target, own_loss in zip(
        entries.tolist(), sources.tolist(), targets.tolist(), owns.tolist(), strict=True
    ):
        gain = float(plan.gain[entry])
        record: dict[str, Any] = {
            "from": int(rows.numbers[source]),
            "to": int(rows.numbers[target]),
            "distance": float(plan.distance[entry]),
            "gain": gain,
            "losses": [own_loss, own_loss + gain],
        }
        if scores is not None:
            record["scores"] = [float(scores[source]), float(scores[target])]
        records.append(record | _compare(rows, source, target))
    return records


def _top(plan: Plan, count: int) -> NDArray[np.int64]:
    """The entries of the largest gains in which no row stands twice."""
    entries: list[int] = []
    seen: set[int] = set()
    for entry in plan.top(len(plan.source)).tolist():
        if len(entries) == count:
            break
        source, target = int(plan.source[entry]), int(plan.target[entry])
        if source not in seen and target not in seen:
            seen.update((source, target))
            entries.append(entry)
    return np.array(entries, dtype=np.int64)


def _compare(rows: AuditedRows, first: int, second: int) -> dict[str, Any]:
    differs, same = {}, {}
    for name, values in rows.columns.items():
        one, two = plain(values[first]), plain(values[second])
        if one == two:
            same[name] = one
        else:
            differs[name] = [one, two]
    return {"differs": differs, "same": same}


def plain(value: Any) -> Any:
    """Return a cell as a JSON value; a missing one is None."""
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
