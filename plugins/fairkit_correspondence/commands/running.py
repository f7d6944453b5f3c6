"""`fairkit ask PLAN.toml`: ask, within a budget, and say what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import exit_code, print_json, say, write
from fairkit_correspondence.commands.lines import bill_record, bill_text, outcome_text

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit_correspondence.asking import Asker, Outcome
    from fairkit_correspondence.plan import Plan


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="The plan: texts, names, question.")],
    *,
    endpoint: Annotated[
        str | None,
        opt.option(
            "--endpoint", "URL", "The server's address up to /v1; it speaks chat completions as OpenAI does."
        ),
    ] = None,
    model: Annotated[str | None, opt.option("--model", "NAME", "The model's name on the server.")] = None,
    budget: Annotated[
        float | None,
        opt.option(
            "--budget", "X", "The most money that may be spent, in the currency of the plan's [price]."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        opt.option("--output", "FILE", "The answers (.parquet); FILE.sqlite keeps them meanwhile."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print calls, tokens, price and what will be seen; send nothing."),
    ] = False,
    requests: Annotated[
        Path | None,
        opt.option(
            "--requests", "FILE", "Write the table of requests (.parquet), for `fairkit policy lock`."
        ),
    ] = None,
    lock: Annotated[
        Path | None, opt.option("--lock", "FILE", "Ask only what this policy lock has signed.")
    ] = None,
    looks: Annotated[
        int | None,
        opt.option("--looks", "N", "Planned looks, in place of the plan's number. Default: the plan's."),
    ] = None,
    ask_again: Annotated[
        int | None,
        opt.option("--ask-again", "N", "Put N answered questions again and compare; write nothing.", min=1),
    ] = None,
    concurrency: Annotated[
        int, opt.option("--concurrency", "N", "Requests in flight at once. Default: 4.", min=1, max=64)
    ] = 4,
    rate: Annotated[
        float | None, opt.option("--rate", "X", "The most requests a second. Default: no limit.")
    ] = None,
    timeout: Annotated[
        float, opt.option("--timeout", "SECONDS", "The longest that one reply may take.")
    ] = 60.0,
    save: opt.Copies = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Ask a language model the same questions under names of different groups, and judge the difference.

    The exit code is that of the plan's limit: 0 pass, 1 fail, 3 inconclusive. Ctrl-C keeps all answers; the same
    command goes on. The token is read from FAIRKIT_ENDPOINT_TOKEN.
    """
    from fairkit.support.files import check_writable
    from fairkit_cli.commands.audit import copy_format
    from fairkit_correspondence.plan import read_plan

    copies = {path: copy_format(path) for path in save or ()}
    for written in filter(None, (output, requests)):
        check_writable(written)
        if written.suffix != ".parquet":
            raise ParameterError(
                f"{written}: tables of answers and requests are Parquet; let the name end in .parquet"
            )
    if rate is not None and rate <= 0:
        raise ParameterError(f"--rate {rate:g} is not above 0")
    made = read_plan(plan, looks=looks)
    if dry_run or requests is not None:
        _dry(made, requests, output_format)
        return
    if endpoint is None or model is None or output is None:
        raise ParameterError(
            "say whom to ask and where answers go: --endpoint URL --model NAME --output FILE"
        )
    if lock is not None:
        check_lock(made, lock)
    outcome = _asked(
        made, endpoint, model, output, budget, (concurrency, rate, timeout), ask_again, output_format
    )
    if outcome is None:
        return
    _write_table(outcome.table, output)
    if outcome.report is not None:
        from fairkit_cli.commands.audit import write_copy

        for path, form in copies.items():
            write_copy(outcome.report, form, path)
    if output_format == "json":
        report = None if outcome.report is None else outcome.report.to_dict()
        print_json(
            {"spent": outcome.spent, "pending": outcome.pending, "stopped": outcome.stopped, "report": report}
        )
    else:
        write(lambda terminal: outcome_text(made, outcome, output))
    verdict = (
        None if made.asking.pilot else "inconclusive" if outcome.report is None else outcome.report.verdict
    )
    raise typer.Exit(exit_code(verdict))


def _dry(plan: Plan, requests: Path | None, output_format: str) -> None:
    from fairkit_correspondence.asking import bill
    from fairkit_correspondence.requests import requests_of
    from fairkit_correspondence.table import answers_table

    every = requests_of(plan)
    cost = bill(plan, every)
    if requests is not None:
        _write_table(answers_table(plan, every, {}, {}), requests)
        say(f"wrote {len(every):,} requests to {requests}")
    if output_format == "json":
        print_json(bill_record(plan, cost))
    else:
        write(lambda terminal: bill_text(plan, cost))


def _asked(
    plan: Plan,
    endpoint: str,
    model: str,
    output: Path,
    budget: float | None,
    pace: tuple[int, float | None, float],
    again: int | None,
    output_format: str,
) -> Outcome | None:
    from contextlib import closing

    from fairkit_cli.progress import progress_bar
    from fairkit_correspondence.asking import Asker
    from fairkit_correspondence.client import Client, Server
    from fairkit_correspondence.store import Store

    server = Server(url=endpoint, model=model, timeout=pace[2])
    kept = output.with_name(f"{output.name}.sqlite")
    for note in plan.notes:
        say(f"note: {note}")
    subject = {"address": server.at(""), "model": model}
    with (
        closing(Client(server)) as client,
        closing(Store(kept, plan.digest, subject)) as store,
        progress_bar() as progress,
    ):
        asker = Asker(
            plan, client, store, budget=budget, concurrency=pace[0], rate=pace[1], progress=progress
        )
        if again is None:
            return asker.run()
        _again(asker, again, output_format)
    return None


def _again(asker: Asker, count: int, output_format: str) -> None:
    import numpy as np

    from fairkit.intervals import clopper_pearson, two_sided
    from fairkit_correspondence.asking import ask_again

    asked, differ = ask_again(asker, count)
    if not asked:
        raise ParameterError(
            "there are no answers to compare with yet; ask first, with the same plan and output"
        )
    _, upper = clopper_pearson(np.array([differ / asked]), np.array([float(asked)]), two_sided(0.9))
    if output_format == "json":
        print_json({"asked": asked, "differ": differ, "at_most": float(upper[0]), "confidence": 0.95})
        return
    write(
        lambda terminal: (
            f"{differ} of {asked} answers differ from those before: at most {upper[0]:.1%} do, at 95 % "
            "confidence (draws differ by themselves unless the temperature is 0)\n"
        )
    )


def check_lock(plan: Plan, path: Path) -> None:
    """Refuse a plan that is not the one that a lock signed.

    Raises
    ------
    ParameterError
        The lock is about other requests.
    """
    from fairkit_correspondence.requests import requests_of
    from fairkit_correspondence.table import answers_table, requests_digest
    from fairkit_registry.evidence.locks import read_file, read_lock

    locked = read_lock(read_file(path)).data_sha256
    table = answers_table(plan, requests_of(plan), {}, {})
    found = requests_digest(table.to_batches(), table.column_names)
    if found != locked:
        raise ParameterError(
            f"{path} locks other requests ({locked[:16]}) than this plan's ({str(found)[:16]}): the plan, its texts or "
            "its names were changed after the lock"
        )


def _write_table(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    from fairkit.support.files import replacing

    with replacing(path) as file:
        pq.write_table(table, file, compression="zstd")
