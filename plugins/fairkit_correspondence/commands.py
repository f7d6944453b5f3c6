"""`fairkit ask ...`: paired questions to a language model, at a price that is known before."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from fairkit.commands import console, end
from fairkit.errors import ParameterError
from fairkit.support.escaping import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from fairkit.data.dataset import Dataset
    from fairkit.results.findings import Finding
    from fairkit_correspondence.asking import Asker, Outcome
    from fairkit_correspondence.plan import Plan


# `fairkit ask plan` sizes an audit from a pilot; a dry run says what a plan costs and what it will see.


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
    from fairkit_correspondence.client import confidence_at
    from fairkit_correspondence.lists import balance
    from fairkit_correspondence.planning import Size, Spread, documents_needed, forecast
    from fairkit_correspondence.requests import requests_of

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


# `fairkit ask PLAN.toml`: ask, within a budget, and say what came out.


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="The plan: texts, names, question.")],
    *,
    endpoint: Annotated[
        str | None,
        option("--endpoint", "URL", "The server's address up to /v1; it speaks chat completions as OpenAI does."),
    ] = None,
    model: Annotated[str | None, option("--model", "NAME", "The model's name on the server.")] = None,
    budget: Annotated[
        float | None,
        option("--budget", "X", "The most money that may be spent, in the currency of the plan's [price]."),
    ] = None,
    output: Annotated[
        Path | None, option("--output", "FILE", "The answers (.parquet); FILE.sqlite keeps them meanwhile.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print calls, tokens, price and what will be seen; send nothing.")
    ] = False,
    requests: Annotated[
        Path | None, option("--requests", "FILE", "Write the table of requests (.parquet), for `fairkit policy lock`.")
    ] = None,
    lock: Annotated[Path | None, option("--lock", "FILE", "Ask only what this policy lock has signed.")] = None,
    looks: Annotated[
        int | None, option("--looks", "N", "Planned looks, in place of the plan's number. Default: the plan's.")
    ] = None,
    ask_again: Annotated[
        int | None, option("--ask-again", "N", "Put N answered questions again and compare; write nothing.", min=1)
    ] = None,
    concurrency: Annotated[
        int, option("--concurrency", "N", "Requests in flight at once. Default: 4.", min=1, max=64)
    ] = 4,
    rate: Annotated[float | None, option("--rate", "X", "The most requests a second. Default: no limit.")] = None,
    timeout: Annotated[float, option("--timeout", "SECONDS", "The longest that one reply may take.")] = 60.0,
    save: Annotated[
        list[Path] | None,
        option(
            "--save", "FILE", "Write the report to this file too: .html, .md, .json or .xml for JUnit (repeatable)."
        ),
    ] = None,
    output_format: Format = "table",
) -> None:
    """Ask a language model the same questions under names of different groups, and judge the difference.

    The exit code is that of the plan's limit: 0 pass, 1 fail, 3 inconclusive. Ctrl-C keeps all answers; the same
    command goes on. The token is read from FAIRKIT_ENDPOINT_TOKEN.
    """
    from fairkit.results.rendering import format_of
    from fairkit.support.files import check_writable
    from fairkit_correspondence.asking import Asker
    from fairkit_correspondence.client import Client, Server, Store
    from fairkit_correspondence.plan import read_plan

    for copy in save or ():
        format_of(copy)
        check_writable(copy)
    for written in filter(None, (output, requests)):
        check_writable(written)
        if written.suffix != ".parquet":
            raise ParameterError(f"{written}: tables of answers and requests are Parquet; let the name end in .parquet")
    if rate is not None and rate <= 0:
        raise ParameterError(f"--rate {rate:g} is not above 0")
    read = read_plan(plan, looks=looks)
    if dry_run or requests is not None:
        _dry(read, requests, output_format)
        return
    if endpoint is None or model is None or output is None:
        raise ParameterError("say whom to ask and where answers go: --endpoint URL --model NAME --output FILE")
    if lock is not None:
        check_lock(read, lock)
    server = Server(url=endpoint, model=model, timeout=timeout)
    for note in read.notes:
        console().say(f"note: {note}")
    with (
        closing(Client(server)) as client,
        closing(Store(output.with_name(f"{output.name}.sqlite"), read.digest, model)) as store,
        console().progress() as progress,
    ):
        asker = Asker(read, client, store, budget, concurrency, rate, progress)
        if ask_again is not None:
            _again(asker, ask_again, output_format)
            return
        outcome = asker.run()
    _write_table(outcome.table, output)
    report = outcome.report
    _show(read, outcome, output, save or (), output_format)
    verdict = "inconclusive" if report is None else report.verdict
    raise end(None if read.asking.pilot else verdict)


def _show(plan: Plan, outcome: Outcome, output: Path, copies: Sequence[Path], output_format: str) -> None:
    report = outcome.report
    if report is not None:
        for copy in copies:
            report.save(copy)
            console().say(f"wrote {copy}")
    if output_format == "json":
        record = {"spent": outcome.spent, "pending": outcome.pending, "stopped": outcome.stopped}
        console().json(record | {"report": None if report is None else report.to_dict()})
    else:
        console().write(outcome_text(plan, outcome, output))


def _requests(plan: Plan) -> pa.Table:
    from fairkit_correspondence.requests import answers_table, requests_of

    return answers_table(plan, requests_of(plan), {}, {})


def _dry(plan: Plan, requests: Path | None, output_format: str) -> None:

    if requests is not None:
        table = _requests(plan)
        _write_table(table, requests)
        console().say(f"wrote {table.num_rows:,} requests to {requests}")
    if output_format == "json":
        console().json(bill_record(plan))
    else:
        console().write(bill_text(plan))


def _again(asker: Asker, count: int, output_format: str) -> None:
    import numpy as np

    from fairkit.intervals import clopper_pearson, two_sided
    from fairkit_correspondence.asking import ask_again

    repeated, differ = ask_again(asker, count)
    if not repeated:
        raise ParameterError("there are no answers to compare with yet; ask first, with the same plan and output")
    _, upper = clopper_pearson(np.array([differ / repeated]), np.array([float(repeated)]), two_sided(0.9))
    if output_format == "json":
        console().json({"asked": repeated, "differ": differ, "at_most": float(upper[0]), "confidence": 0.95})
        return
    text = (
        f"{differ} of {repeated} answers differ from those before: at most {upper[0]:.1%} do, at 95 % "
        "confidence (draws differ by themselves unless the temperature is 0)\n"
    )
    console().write(text)


def check_lock(plan: Plan, path: Path) -> None:
    """Refuse a plan that is not the one that a lock signed."""
    from fairkit_correspondence.requests import requests_digest
    from fairkit_registry.evidence.signed import PolicyLock, named

    locked, planned = PolicyLock.read(named(PolicyLock, path)).data_sha256, str(requests_digest(_requests(plan)))
    if planned != locked:
        raise ParameterError(
            f"{path} locks other requests ({locked[:16]}) than this plan's ({planned[:16]}): the plan, its texts or "
            "its names were changed after the lock"
        )


def _write_table(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    from fairkit.support.files import replacing

    with replacing(path) as file:
        pq.write_table(table, file, compression="zstd")


def outcome_text(plan: Plan, outcome: Outcome, output: Path) -> str:
    """Return at most twelve lines about a run."""
    from fairkit_correspondence.asking import audit_parameters

    lines: list[str] = []
    if outcome.report is not None:
        findings = {(f.metric, bool(f.within)): f for f in outcome.report.findings}
        main, worst = (findings["correspondence_difference", False], findings.get(("correspondence_difference", True)))
        changed, refused = findings["changed_documents", False], findings["refusal_rate_difference", False]
        lines += [f"{rule.verdict.upper()}: {rule.reason}" for rule in outcome.report.policy]
        lines += _pairs(main)
        if worst is not None:
            lines.append(f"worst context: {people(worst.value, worst.interval)}")
        rates = ", ".join(f"{group.group} {group.value or 0:.1%}" for group in refused.groups)
        lines += [
            f"documents whose answers differ: {changed.value or 0:.0%} (largest difference "
            f"{changed.evidence['largest']:.2f}, equal everywhere {changed.evidence['equal_everywhere']})",
            f"refused, unreadable, cut off or no option: {rates}",
        ]
        splits = main.evidence["placebo_splits"].values()
        if splits:
            lines.append(f"two halves of one group's names differ by {100 * max(splits):.1f} of 100")
        tokens = main.evidence.get("prompt_tokens", {})
        if tokens and max(tokens.values()) - min(tokens.values()) > 1:
            means = ", ".join(f"{group} {mean:.1f}" for group, mean in tokens.items())
            lines.append(f"the names differ in length, too: prompt tokens {means}")
    lines.append(f"cost {outcome.spent:.4g}; {outcome.pending:,} requests without an answer")
    if outcome.stopped:
        lines.append(f"stopped: {outcome.stopped}")
    settings = "".join(f" --set correspondence.{k}={v}" for k, v in audit_parameters(plan).items())
    lines.append(f"answers: {output}; `fairkit audit {output}{settings}` shows everything")
    if len(lines) > 12:
        lines = [*lines[:4], f"... {len(lines) - 11} more pairs in the report", *lines[-7:]]
    return "".join(f"{visible(line)}\n" for line in lines)


def _pairs(finding: Finding) -> list[str]:
    from fairkit_correspondence.auditor import by_name

    rows = by_name(finding.evidence["correspondence_pairs"]).items()
    pairs = [(name.removesuffix(", all contexts"), row) for name, row in rows if name.endswith(", all contexts")]
    pairs.sort(key=lambda pair: -abs(pair[1]["value"]))
    return [f"{name}: {people(row['value'], (row['low'], row['high']))}" for name, row in pairs]


class AskGroup(TyperGroup):
    """Takes a plan's file where a subcommand would stand: `fairkit ask PLAN.toml` is `fairkit ask run PLAN.toml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the arguments."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=AskGroup,
    no_args_is_help=True,
    help="Ask a language model the same questions under different names: `fairkit ask PLAN.toml --endpoint URL ...`.",
    add_completion=False,
    rich_markup_mode=None,
)
app.callback()(lambda: None)
for name, command in (("run", run), ("plan", plan)):
    app.command(name)(command)


# What the commands of `fairkit ask` share: options, tables of answers, numbers in people of 100.


def option(name: str, metavar: str, text: str, **more: Any) -> Any:
    """Declare an option that takes a value."""
    return typer.Option(name, metavar=metavar, help=text, **more)


Format = Annotated[Literal["table", "json"], option("--format", "NAME", "How the result is written: table or json.")]
Assignments = Annotated[
    list[str] | None, option("--set", "KEY=VALUE", "A parameter of the auditor `correspondence`; repeatable.")
]
Sensitive = Annotated[
    str | None, option("--sensitive", "COL", "The column of groups. Default: the one that the file names.")
]
Answer = Annotated[str, option("--answer", "COL", "The column of answers in [0, 1].")]


def answers_data(path: str, sensitive: str | None, answer: str) -> Dataset:
    """Load a table of answers."""
    import fairkit
    from fairkit.data.task import carried_by

    column = sensitive or next(iter(carried_by(path).get("sensitive", ())), None)
    if column is None:
        raise ParameterError("which column holds the groups? Name it with --sensitive COL")
    return fairkit.load_data(path, sensitive=[column], predictions={"answer": answer})


def parameters_of(assignments: list[str] | None) -> dict[str, Any]:
    """Return the auditor's parameters that were set, with the auditor's name before them or without."""
    from fairkit.parameters import split_assignment

    settings = dict(split_assignment(text) for text in assignments or ())
    return {key.removeprefix("correspondence."): value for key, value in settings.items()}


def people(value: float | None, interval: tuple[float, float] | None = None) -> str:
    """Write a difference in people of 100, with its interval if there is one."""
    ends = "" if interval is None else f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    return f"{100 * (value or 0):.1f} of 100{ends}"
