"""How the number depends on how many people may be replacements: the same audit on a quarter and half of the people.

The optimum is over replacements from the data, so that it grows with their number n: its distance to the population's
value falls like n^(-1/2d) where there is such a value, in d dimensions that nobody knows. An extrapolated limit would
have no honest error. What can be said is the value at n/4, n/2 and n, and whether it still climbs beyond its interval.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.support.lazy_dataclass import dataclass
from fairkit_individual.tables import MemoryTable, shown_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairkit.data.task import Task
    from fairkit_individual.tables import AuditedRows, Rewards, Table
    from fairkit_similarity.learn import Plan
    from fairkit_similarity.metric import FairMetric
    from fairkit_similarity.search.problem import Problem

    Ints = NDArray[np.int64]


ALL_PARTS = 5_000
"""Up to so many people all four quarters and both halves are solved and averaged; beyond, one of each."""
ROUNDING = 1e-12
"""Growth up to this, in units of the reward, is none: the solver's bounds meet no closer."""
FEWEST = 30
"""Below so many people there is no interval, and nothing to compare a quarter with."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A number at several support sizes."""

    sizes: tuple[int, ...]  # how many people may be replacements, increasing; the last is the audit's
    values: tuple[float, ...]  # the number at each

    @property
    def climb(self) -> float:
        """How much the number grew for each doubling of the people."""
        return (self.values[-1] - self.values[0]) / (len(self.sizes) - 1)

    def climbs(self, interval: tuple[float, float] | None) -> bool:
        """Tell whether the growth from a quarter of the people exceeds the reach of the interval, and rounding."""
        if interval is None:
            return False
        reach = interval[1] - self.values[-1]
        return self.values[-1] - self.values[0] > max(reach, ROUNDING)

    def note(self, name: str) -> str:
        """Return the sentence of a report."""
        shown = ", ".join(f"{value:.3g} among {size:,}" for size, value in zip(self.sizes, self.values, strict=True))
        return f"{name} depends on how many people may be replacements: {shown}."


@dataclass(frozen=True, slots=True)
class Parts:
    """Quarters and halves of the people with their transport problems."""

    problems: tuple[tuple[int, tuple[Problem, ...]], ...]

    @classmethod
    def of(
        cls,
        rows: Table,
        metric: FairMetric,
        rewards: Callable[[AuditedRows], Rewards],
        queries: Ints | None,
        *,
        weighted: bool,
        rng: np.random.Generator,
    ) -> Parts:
        """Cut the people at random; of each part those are asked that the audit asks."""
        n = len(rows)
        if n < FEWEST:
            return cls(())
        order = rng.permutation(n)
        parts = []
        for share in (4, 2):
            pieces = np.array_split(order, share)
            chosen = pieces if n <= ALL_PARTS else pieces[:1]
            made = [_problem(rows, np.sort(piece), metric, rewards, queries, weighted) for piece in chosen]
            parts.append((len(pieces[0]), tuple(problem for problem in made if problem is not None)))
        return cls(tuple(parts) if all(problems for _, problems in parts) else ())

    def trend(self, epsilon: float, value: float, rows: int, eta: float, tolerance: float) -> Trend | None:
        """Solve every part at one ε; None where there are too few people."""
        if not self.problems:
            return None
        values = [
            float(np.mean([_gap(problem, epsilon, eta, tolerance) for problem in problems]))
            for _, problems in self.problems
        ]
        return Trend((*(size for size, _ in self.problems), rows), (*values, value))


def _gap(problem: Problem, epsilon: float, eta: float, tolerance: float) -> float:
    solution = problem.solve(epsilon, eta=eta or None, tolerance=tolerance)
    return max(solution.value - float(problem.mass @ problem.own), 0.0)


def _problem(
    rows: Table,
    places: Ints,
    metric: FairMetric,
    rewards: Callable[[AuditedRows], Rewards],
    queries: Ints | None,
    weighted: bool,
) -> Problem | None:
    here = None if queries is None else np.flatnonzero(np.isin(places, queries, assume_unique=True))
    if here is not None and not len(here):
        return None
    part = rows.part(places)
    weights = part.rows.get("weights") if weighted else None
    if weights is not None:
        weights = weights if here is None else weights[here]
        if not weights.sum() > 0:
            return None
    problem, _ = part.problem(metric, rewards, here, weights)
    return problem


def restricted(rows: Table, size: int, rng: np.random.Generator) -> Table:
    """Return a random sample of the people, who alone are asked and may be replacements."""
    return MemoryTable(rows.take(np.sort(rng.choice(len(rows), size, replace=False))))


def described(
    trend: Trend | None, interval: tuple[float, float] | None, rows: int, *, unmeasured: bool = False
) -> dict[str, Any]:
    """Return the evidence about the support; growth that was not measured counts as growth."""
    description: dict[str, Any] = {"support": rows}
    if trend is None:
        return description | ({"climbs": True} if unmeasured else {})
    sizes: Sequence[int] = trend.sizes
    return description | {
        "support_sizes": list(sizes),
        "support_values": list(trend.values),
        "climb_per_doubling": trend.climb,
        "climbs": trend.climbs(interval),
    }


# The pairs of a certificate, for people to look at: two rows that are alike, and how differently they fare.


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
