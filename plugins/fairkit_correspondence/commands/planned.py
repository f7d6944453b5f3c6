"""`fairkit ask plan` sizes an audit from a pilot; a dry run says what a plan costs and what it will see."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.commands import console
from fairkit.support.escaping import visible
from fairkit_correspondence.commands.shared import (
    Answer,
    Assignments,
    Format,
    Sensitive,
    answers_data,
    option,
    parameters_of,
)

if TYPE_CHECKING:
    from fairkit_correspondence.plan import Plan


def plan(
    pilot: Annotated[str, typer.Argument(metavar="PILOT.parquet", help="A pilot's answers.")],
    *,
    sensitive: Sensitive = None,
    answer: Answer = "answer",
    assignments: Assignments = None,
    limit: Annotated[float, option("--limit", "X", "The difference that matters, in [0, 1].")] = 0.05,
    truth: Annotated[float, option("--truth", "X", "The true difference to plan for.")] = 0.0,
    power: Annotated[float, option("--power", "P", "The chance of a verdict.")] = 0.8,
    names: Annotated[int, option("--names", "N", "Names a group.", min=2)] = 40,
    output_format: Format = "table",
) -> None:
    """Say how many documents and calls decide a limit, from a pilot's answers."""
    import fairkit
    from fairkit_correspondence.planning import Size, Spread, documents_needed, names_needed

    data, settings = answers_data(pilot, sensitive, answer), parameters_of(assignments)
    report = fairkit.audit(None, data, auditors=["correspondence"], parameters={"correspondence": settings})
    finding = report.findings[0]
    spread, contexts = Spread(**finding.evidence["variances"]), finding.evidence["counts"]["contexts"]
    size, rows = Size(names=names, each=1, limit=limit, truth=truth), []
    for each in (1, 2, 4, 8):
        documents = documents_needed(spread, replace(size, each=each * contexts), power)
        calls = None if documents is None else documents * contexts * len(finding.groups) * each
        rows.append({"names_per_document": each, "documents": documents, "calls": calls})
    record = {
        "interaction": spread.interaction, "answer": spread.answer, "name": spread.name, "limit": limit, "truth": truth,
        "power": power, "names": names, "names_needed": names_needed(spread, limit), "sizes": rows,
    }  # fmt: skip
    if output_format == "json":
        console().json(record)
        return
    said = [f"{r['documents']:,} documents, {r['calls']:,} calls" if r["calls"] else "not decidable" for r in rows]
    lines = [
        f"variances: document x group {spread.interaction:.4f}, answer {spread.answer:.4f}, names {spread.name:.4f}",
        f"limit {limit:g}, true difference {truth:g}, {power:.0%} chance, {contexts} contexts, "
        f"{len(finding.groups)} groups, {names} names a group ({record['names_needed']} are needed)",
        *(f"  {r['names_per_document']} names on each document: {text}" for r, text in zip(rows, said, strict=True)),
    ]
    console().write("".join(f"{visible(line)}\n" for line in lines))


def bill_record(plan: Plan) -> dict[str, Any]:
    """Return what a plan costs and what it will be able to see."""
    from fairkit_correspondence.asking import bill
    from fairkit_correspondence.looks import confidence_at
    from fairkit_correspondence.planning import Size, Spread, documents_needed, forecast
    from fairkit_correspondence.requests import requests_of
    from fairkit_correspondence.stimuli import balance

    asking, together, groups = plan.asking, max(plan.question.list_size, 1), balance(plan.names)
    size = Size(
        names=int(next(iter(groups.values()))["names"]),
        each=(asking.names_per_document if together == 1 else together) * len(plan.contexts),
        limit=asking.limit,
        confidence=confidence_at(asking.looks, asking.looks, 0.95),
        fixed=asking.names == "fixed",
    )
    spread = Spread.of_rate(asking.base, probabilities=asking.logprobs)
    half_width, passes, _ = forecast(spread, len(plan.documents) // together, size)
    return {
        **bill(plan, requests_of(plan)),
        "documents": len(plan.documents),
        "contexts": len(plan.contexts),
        "looks": asking.looks,
        "limit": asking.limit,
        "half_width": half_width,
        "passes": passes,
        "documents_needed": documents_needed(spread, size),
        "balance": groups,
        "notes": list(plan.notes),
        "plan": plan.digest,
    }


def bill_text(plan: Plan) -> str:
    """Return the bill for people."""
    record, asking = bill_record(plan), plan.asking
    price = "unknown: the plan names no [price]" if record["price"] is None else f"about {record['price']:,.4g}"
    looks = "one look" if asking.looks == 1 else f"{asking.looks} looks"
    documents = record["documents_needed"]
    lines = [
        f"{record['calls']:,} calls, about {record['prompt_tokens']:,} prompt and {record['completion_tokens']:,} "
        f"completion tokens; price {price}",
        f"{len(plan.documents):,} documents in {len(plan.contexts)} contexts, "
        f"{plan.question.list_size or asking.names_per_document} names each time, {looks}; plan {plan.digest[:16]}",
        f"without a difference the interval will be about ±{100 * record['half_width']:.1f} of 100, and passes the "
        f"limit {100 * asking.limit:g} of 100 with {record['passes']:.0%} chance (drawn audits; assumed: mean answer "
        f"{asking.base:g}, names alike inside a group)",
        f"80 % chance needs {documents:,} documents"
        if documents
        else "no number of documents reaches 80 %: take more names",
        "These names differ in more than group. Means by group:",
    ]
    for group, numbers in record["balance"].items():
        lines.append(f"  {group}: {', '.join(f'{key} {value:.4g}' for key, value in numbers.items())}")
    lines += [*(f"note: {note}" for note in plan.notes), "Nothing was sent."]
    return "".join(f"{visible(line)}\n" for line in lines)
