"""From divided gaps to findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.results.findings import Finding
from fairkit_watch.rate_parts import NAMES, parts_of
from fairkit_why.comparison import FEWEST
from fairkit_why.gaps import Why, finding_of, group_values, parameters_of
from fairkit_why.parameters import allowed_columns, metrics_of
from fairkit_why.parts import cells_of, design_effects, label_error
from fairkit_why.people import People
from fairkit_why.removal import refitted
from fairkit_why.unexplained import Comparison, Left, unexplained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairkit.auditors import AuditContext
    from fairkit_why.comparison import Divided, Pair
    from fairkit_why.gaps import Interval
    from fairkit_why.parameters import Parameters
    from fairkit_why.people import Collected

    Array = NDArray[np.float64]

MOST_ROWS = 200_000
"""Rows on which nuisances are fitted: of more, so many drawn by the hash of what they hold."""

ABOUT = "About this model on these rows. Retraining without a column may not close the gap."
EXACT = "Exact: means over all pairs of a row of either group, of the log-odds of a favorable decision."
_RATES = {"true_positive_rate": 1.0, "false_positive_rate": 0.0}


def findings(chosen: Parameters, total: Collected, context: AuditContext) -> list[Finding]:
    """Divide the gaps of every sensitive column."""
    why = Why(chosen, context, People(total))
    results: list[Finding] = []
    for pair in why.pairs():
        gaps = [one for of in metrics_of(chosen, context) if (one := divided(why, pair, of)) is not None]
        results += [_attribution(why, pair, one) for one in gaps]
        results += _parts(why, pair)
        if chosen.allowed:
            results += _unexplained(why, pair)
        if chosen.refit is not None:
            results += refitted(why, pair, gaps)
    return results


def divided(why: Why, pair: Pair, of: str) -> Divided | Finding | None:
    """Divide one gap; None where it was not asked for and cannot be."""
    explicit = bool(why.chosen.metric)
    if why.recorded:
        return None
    rows = pair.only(_RATES[of]) if of in _RATES else pair
    if min(map(len, rows.rows)) < FEWEST:
        return _too_few(why, rows, of)
    if of in ("score", "prediction", "residual") and not isinstance(why.exact, str):
        score, codes = why.exact
        found = rows.exactly(score, codes, of, why.names)
        if of == "score" or _same_gap(rows, found, of):
            return found
    if of == "score" and not explicit:
        return None
    if of != "decision" and of not in _RATES and rows.each("score") is None:
        return None
    return rows.by_walks(why.context, of, why.columns, why.players, why.chosen.calls)


def _same_gap(pair: Pair, division: Divided, of: str) -> bool:
    """Tell whether the sum before the link is what is predicted: then predictions divide as it does."""
    f, y = pair.each("score"), pair.each("outcome")
    if f is None:
        return False
    values = f if of == "prediction" or y is None else (y[0] - f[0], y[1] - f[1])
    gap, _, _ = pair.gap(values, None)
    return abs(gap - division.gap) <= 1e-4 * max(float(np.ptp(np.concatenate(values))), 1e-12)


def _too_few(why: Why, pair: Pair, of: str) -> Finding:
    sizes = ", ".join(
        f"{name} has {len(rows)}" for name, rows in zip((pair.group, pair.reference), pair.rows, strict=True)
    )
    reason = f"a gap is divided between groups of at least {FEWEST} rows: {sizes}"
    return finding_of(
        why, pair, "attribution", None, parameters=parameters_of(pair, of=of), groups=group_values(pair, None),
        notes=(f"Not divided: {reason}.",), inconclusive=reason,
    )  # fmt: skip


def _attribution(why: Why, pair: Pair, division: Divided | Finding) -> Finding:
    """Return a divided gap as a finding: the columns by the size of their part."""
    if isinstance(division, Finding):
        return division
    confidence = why.context.confidence
    each = 1 - (1 - confidence) / len(division.values)
    halves = division.sure.half_width(each)
    order = np.lexsort((np.arange(len(division.values)), -np.abs(division.values)))
    columns = []
    for place in order.tolist():
        value, half = float(division.values[place]), float(halves[place])
        unseen = division.sure.reach[place] == 0 and division.sampled is None
        interval = None if unseen else [value - half, value + half]
        columns.append({"column": division.players[place], "value": value, "interval": interval})
    evidence: dict[str, Any] = {"columns": columns}
    if division.sampled is None:
        evidence["method"] = "exact"
        notes = [EXACT]
    else:
        evidence |= {"method": "sampled", **division.sampled}
        notes = [
            f"Sampled: {division.sampled['walks']:,} walks, {division.sampled['calls']:,} rows asked; sampling is "
            f"{division.sampled['sampling_share']:.0%} of the intervals' variance."
        ]
    unread = [one["column"] for one in columns if one["interval"] is None]
    if unread:
        notes.append(f"Not seen to change the score of any row: {', '.join(unread)}.")
    notes.append(f"The columns' intervals hold at once, each at {each:.2%}.")
    rows = pair.only(_RATES[division.of]) if division.of in _RATES else pair
    return finding_of(
        why, pair, "attribution", division.gap, parameters=parameters_of(pair, of=division.of), evidence=evidence,
        groups=group_values(rows, division.means), notes=(*notes, ABOUT),
        interval_at=division.noise.around(division.gap),
    )  # fmt: skip


def _parts(why: Why, pair: Pair) -> list[Finding]:
    """Return the parts of the rates: of decisions with known outcomes."""
    decision, outcome = pair.each("decision"), pair.each("outcome")
    if decision is None or outcome is None or why.context.scorer.task == "regression":
        return []
    cells = tuple(cells_of(y, d, w) for y, d, w in zip(outcome, decision, pair.weights, strict=True))
    both = cells[0], cells[1]
    clusters = pair.each("clusters")
    design = [1.0] * 3 if clusters is None else design_effects(outcome, decision, pair.weights, clusters, both)
    parts = parts_of(both, design)
    if not np.isfinite(parts.values).all():
        return []
    evidence: dict[str, Any] = {
        "counts_group": both[0].counts.tolist(),
        "counts_reference": both[1].counts.tolist(),
        "design_effects": list(design),
        "gap": float(parts.values.sum()),
    }
    error = label_error(both, why.context.confidence)
    made = []
    for index, name in enumerate(NAMES):
        record = dict(evidence)
        notes = ["From the totals of both groups alone; the three parts add up to the gap."]
        if index == 0 and error is not None:
            record["label_error"] = error
            whose = pair.group if error["of"] == "group" else pair.reference
            notes.append(
                f"If {error['share']:.0%} of the positives of group {whose} were recorded as negative, base rates "
                "would be equal, and this part 0."
            )

        def at(level: float, place: int = index) -> Interval:
            return parts.interval(place, level)

        made.append(
            finding_of(
                why,
                pair,
                name,
                float(parts.values[index]),
                parameters=parameters_of(pair),
                evidence=record,
                groups=group_values(pair, None),
                notes=tuple(notes),
                interval_at=at,
            )
        )
    return made


def _unexplained(why: Why, pair: Pair) -> list[Finding]:
    """Return the finding on the gap in decisions or numbers that allowed columns leave unexplained."""
    outcome = pair.each("score" if why.context.scorer.task == "regression" else "decision")
    if outcome is None or min(map(len, pair.rows)) < FEWEST:
        return []
    names = allowed_columns(why.chosen, why.context)
    rows = np.concatenate(pair.rows)
    drawn = np.sort(np.argsort(why.people.hashes[rows], kind="stable")[:MOST_ROWS])
    mine, every = np.arange(len(rows)) < len(pair.rows[0]), np.concatenate(outcome)
    comparison = Comparison.of(
        [(why.people, rows[drawn], every[drawn])], mine[drawn], names, (pair.group, pair.reference)
    )
    gap = pair.gap(outcome, 1.0)[0]
    return [_left_finding(why, pair, names, unexplained(comparison), gap, len(drawn) < len(rows))]


def _left_finding(why: Why, pair: Pair, names: Sequence[str], remainder: Any, gap: float, drawn: bool) -> Finding:
    confidence, mine = why.context.confidence, remainder.toward_group
    column, area = remainder.separating
    evidence: dict[str, Any] = {
        "gap": gap,
        "learners": remainder.learners,
        "separating": {"column": column, "area_under_curve": area},
        "without_counterpart": mine.far,
        "effective_rows": mine.effective,
        "refused": mine.refused,
    }
    notes = [f"That differences in {', '.join(names)} are allowed is the claim of whoever asked, and is not checked."]
    if drawn:
        notes.append(f"On {MOST_ROWS:,} rows, drawn by the hash of what they hold.")
    if mine.refused is not None:
        notes.append(f"Not printed: {mine.refused}. {column} separates the groups best.")
        return finding_of(
            why, pair, "unexplained_difference", None, parameters=parameters_of(pair), within=tuple(names),
            evidence=evidence, notes=tuple(notes), inconclusive=mine.refused, better="lower",
        )  # fmt: skip
    evidence["explained"] = gap - mine.value
    evidence["left"] = {
        **_version("group", mine, confidence),
        **_version("reference", remainder.toward_reference, confidence),
        **_version("overlap", remainder.overlap, confidence),
    }
    notes.append(
        f"Of the gap {gap:.3f} between group {pair.group} and {pair.reference} {mine.value:.3f} is left between "
        f"people who are alike in {', '.join(names)}. The value is its size, whichever group is ahead."
    )
    return finding_of(
        why, pair, "unexplained_difference", abs(mine.value), parameters=parameters_of(pair), within=tuple(names),
        evidence=evidence, notes=tuple(notes), better="lower", interval_at=lambda level: folded(mine.interval(level)),
    )  # fmt: skip


def folded(interval: Interval) -> Interval:
    """Return the interval of a number's size."""
    low, high = interval
    return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _version(name: str, left: Left, confidence: float) -> dict[str, Any]:
    """Return one version of what is left; without numbers where it is refused."""
    if left.refused is not None:
        return {name: None, f"{name}_low": None, f"{name}_high": None, f"{name}_refused": left.refused}
    low, high = left.interval(confidence)
    return {name: left.value, f"{name}_low": low, f"{name}_high": high, f"{name}_refused": None}
