"""What `fairkit ask` prints: the bill before, and at most twelve lines after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.support.escaping import visible

if TYPE_CHECKING:
    from pathlib import Path

    from fairkit.results.findings import Finding
    from fairkit_correspondence.asking import Bill, Outcome
    from fairkit_correspondence.plan import Plan


def bill_record(plan: Plan, cost: Bill) -> dict[str, Any]:
    """Return what a plan costs and what it will be able to see."""
    from dataclasses import asdict

    from fairkit_correspondence.looks import confidence_at
    from fairkit_correspondence.planning import Spread, documents_needed, forecast
    from fairkit_correspondence.stimuli import balance

    asking, size = plan.asking, max(plan.question.list_size, 1)
    units = len(plan.documents) // size
    names = min(int(one["names"]) for one in balance(plan.names).values())
    spread = Spread.of_rate(asking.base, probabilities=asking.logprobs)
    each = (asking.names_per_document if size == 1 else size) * len(plan.contexts)
    confidence = confidence_at(asking.looks, asking.looks, 0.95)
    fixed = asking.names == "fixed"
    seen = forecast(spread, units, names, each, limit=asking.limit, confidence=confidence, fixed=fixed)
    needed = documents_needed(spread, names, each, limit=asking.limit, confidence=confidence, fixed=fixed)
    return {
        **asdict(cost),
        "documents": len(plan.documents),
        "contexts": len(plan.contexts),
        "looks": asking.looks,
        "limit": asking.limit,
        "half_width": seen.half_width,
        "passes": seen.passes,
        "documents_needed": needed,
        "balance": balance(plan.names),
        "notes": list(plan.notes),
        "plan": plan.digest,
    }


def bill_text(plan: Plan, cost: Bill) -> str:
    """Return the bill for people."""
    record = bill_record(plan, cost)
    price = "unknown: the plan names no [price]" if cost.price is None else f"about {cost.price:,.4g}"
    needed = record["documents_needed"]
    lines = [
        f"{cost.calls:,} calls, about {cost.prompt_tokens:,} prompt and {cost.completion_tokens:,} completion tokens; "
        f"price {price}",
        f"{len(plan.documents):,} documents in {len(plan.contexts)} contexts, "
        f"{plan.question.list_size or plan.asking.names_per_document} names each time, {_counted(plan.asking.looks)}; "
        f"plan {plan.digest[:16]}",
        f"without a difference the interval will be about ±{100 * record['half_width']:.1f} of 100, and passes the "
        f"limit {100 * plan.asking.limit:g} of 100 with {record['passes']:.0%} chance (assumed: mean answer "
        f"{plan.asking.base:g}, names alike inside a group)",
        f"80 % chance needs {needed:,} documents"
        if needed
        else "no number of documents reaches 80 %: take more names",
        "These names differ in more than group. Means by group:",
        *balance_lines(record["balance"]),
        *(f"note: {note}" for note in plan.notes),
        "Nothing was sent.",
    ]
    return "".join(f"{visible(line)}\n" for line in lines)


def _counted(looks: int) -> str:
    return "one look" if looks == 1 else f"{looks} looks"


def balance_lines(found: dict[str, dict[str, float]]) -> list[str]:
    """Return one line a group."""
    return [
        f"  {group}: " + ", ".join(f"{key.replace('_', ' ')} {value:.4g}" for key, value in values.items())
        for group, values in found.items()
    ]


def outcome_text(plan: Plan, outcome: Outcome, output: Path) -> str:
    """Return at most twelve lines about a run."""
    from fairkit_correspondence.asking import audit_parameters

    lines: list[str] = []
    if outcome.report is not None:
        findings = {(f.metric, bool(f.within)): f for f in outcome.report.findings}
        main = findings["correspondence_difference", False]
        lines += [f"{rule.verdict.upper()}: {rule.reason}" for rule in outcome.report.policy]
        lines += _pairs(main)
        if ("correspondence_difference", True) in findings:
            worst = findings["correspondence_difference", True]
            lines.append(f"worst context: {_people(worst.value, worst.interval)}")
        changed, refused = findings["changed_documents", False], findings["refusal_rate_difference", False]
        rates = ", ".join(f"{one.group} {one.value or 0:.1%}" for one in refused.groups)
        lines.append(
            f"documents whose answers differ: {changed.value or 0:.0%} (largest difference "
            f"{changed.evidence['largest']:.2f}, equal everywhere {changed.evidence['equal_everywhere']})"
        )
        lines.append(f"refused, unreadable, cut off or no option: {rates}")
        splits = main.evidence["placebo_splits"]
        if splits:
            lines.append(f"two halves of one group's names differ by {100 * max(splits.values()):.1f} of 100")
    lines.append(f"cost {outcome.spent:.4g}; {outcome.pending:,} requests without an answer")
    if outcome.stopped:
        lines.append(f"stopped: {outcome.stopped}")
    settings = "".join(
        f" --set correspondence.{key}={value}" for key, value in audit_parameters(plan).items()
    )
    lines.append(f"answers: {output}; `fairkit audit {output}{settings}` shows everything")
    if len(lines) > 12:
        lines = [*lines[:4], f"... {len(lines) - 11} more pairs in the report", *lines[-7:]]
    return "".join(f"{visible(line)}\n" for line in lines)


def _pairs(finding: Finding) -> list[str]:
    from fairkit_correspondence.charts import by_name

    pairs = by_name(finding.evidence["correspondence_pairs"])
    return [
        f"{name.removesuffix(', all contexts')}: {_people(one['value'], (one['low'], one['high']))}"
        for name, one in sorted(pairs.items(), key=lambda pair: -abs(pair[1]["value"]))
        if name.endswith(", all contexts")
    ]


def _people(value: float | None, interval: tuple[float, float] | None) -> str:
    """Write a difference in people of 100."""
    low, high = interval or (-1.0, 1.0)
    return f"{100 * (value or 0):.1f} of 100 [{100 * low:.1f}, {100 * high:.1f}]"
