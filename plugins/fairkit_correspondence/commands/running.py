"""`fairkit ask PLAN.toml`: ask, within a budget, and say what came out."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit.commands import console, end
from fairkit.errors import ParameterError
from fairkit.support.escaping import visible
from fairkit_correspondence.commands.shared import Format, option, people

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from fairkit.results.findings import Finding
    from fairkit_correspondence.asking import Asker, Outcome
    from fairkit_correspondence.plan import Plan


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
    from fairkit_correspondence.client import Client, Server
    from fairkit_correspondence.plan import read_plan
    from fairkit_correspondence.store import Store

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
        told = {"spent": outcome.spent, "pending": outcome.pending, "stopped": outcome.stopped}
        console().json(told | {"report": None if report is None else report.to_dict()})
    else:
        console().write(outcome_text(plan, outcome, output))


def _requests(plan: Plan) -> pa.Table:
    from fairkit_correspondence.requests import requests_of
    from fairkit_correspondence.table import answers_table

    return answers_table(plan, requests_of(plan), {}, {})


def _dry(plan: Plan, requests: Path | None, output_format: str) -> None:
    from fairkit_correspondence.commands.planned import bill_record, bill_text

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
    from fairkit_correspondence.table import requests_digest
    from fairkit_registry.evidence.statements import PolicyLock, named

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
        found = {(f.metric, bool(f.within)): f for f in outcome.report.findings}
        main, worst = (found["correspondence_difference", False], found.get(("correspondence_difference", True)))
        changed, refused = found["changed_documents", False], found["refusal_rate_difference", False]
        lines += [f"{rule.verdict.upper()}: {rule.reason}" for rule in outcome.report.policy]
        lines += _pairs(main)
        if worst is not None:
            lines.append(f"worst context: {people(worst.value, worst.interval)}")
        rates = ", ".join(f"{one.group} {one.value or 0:.1%}" for one in refused.groups)
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
    from fairkit_correspondence.charts import by_name

    rows = by_name(finding.evidence["correspondence_pairs"]).items()
    pairs = [(name.removesuffix(", all contexts"), row) for name, row in rows if name.endswith(", all contexts")]
    pairs.sort(key=lambda pair: -abs(pair[1]["value"]))
    return [f"{name}: {people(row['value'], (row['low'], row['high']))}" for name, row in pairs]
