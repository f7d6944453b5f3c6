"""`fairkit conformance`: the cases of the conformance suite through a verifier."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import FAILED, print_as, put

_OURSELVES = shlex.join([sys.executable, "-c", "from fairkit_cli.main import run; run()", "conformance", "--answer"])


def conformance(
    runner: Annotated[
        str | None,
        typer.Argument(
            metavar="RUNNER",
            help="The program that answers cases, as one word: 'fairkit-verify --cases'. Default: fairkit itself.",
        ),
    ] = None,
    *,
    only: Annotated[
        list[str] | None, opt.option("--only", "NAME", "Cases whose names begin so, such as `envelope` (repeatable).")
    ] = None,
    answer: Annotated[
        bool, typer.Option("--answer", help="Be a runner: read cases from standard input, print answers.")
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Print the cases and what each protects from, and run nothing.")
    ] = False,
    output_format: opt.TableFormat = "table",
) -> None:
    """Put the cases of the conformance suite to a verifier of certificates, through one door for every program.

    A runner reads one case a line from standard input, as JSON, and prints one answer a line. Exit code 1: an answer
    is wrong. What a runner calls unsupported is counted and named.
    """
    from fairkit_registry import conformance as suite

    if answer and (runner is not None or only or listed):
        raise FairkitError("--answer reads its cases from standard input; leave RUNNER, --only and --list out")
    if answer:
        from fairkit_registry.evidence.answering import answers

        for line in answers(sys.stdin):
            put(line + "\n")
        return
    chosen = suite.cases(only or ())
    if listed:
        print_as(
            output_format,
            [{"case": one.name, "kind": one.kind, "protects": one.protects} for one in chosen],
            *(f"{one.name}: {one.protects}" for one in chosen),
        )
        return
    outcomes = list(suite.run(runner or _OURSELVES, chosen))
    wrong = [one for one in outcomes if one.mistake is not None]
    untried = [one for one in outcomes if not one.supported]
    print_as(
        output_format,
        {
            "suite": suite.VERSION,
            "cases": len(outcomes),
            "wrong": len(wrong),
            "unsupported": len(untried),
            "outcomes": [one.to_dict() for one in outcomes],
        },
        *(f"wrong: {one.case.name}: {one.mistake}. {one.case.protects}" for one in wrong),
        *(f"unsupported: {one.case.name}" for one in untried),
        f"suite {suite.VERSION}: {len(outcomes) - len(wrong) - len(untried)} of {len(outcomes)} cases are answered "
        f"right, {len(wrong)} wrong, {len(untried)} not supported; {sum(o.seconds for o in outcomes):.1f} s",
    )
    raise typer.Exit(FAILED if wrong else 0)
