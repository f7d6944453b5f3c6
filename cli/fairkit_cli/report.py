"""`fairkit report`: a page from certificates that are checked first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit_cli import options as opt
from fairkit_cli.output import FAILED, PASSED, say, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_cli.evidence import Shown


def report(
    certificates: Annotated[
        list[Path], typer.Argument(metavar="CERT...", help="Certificates, from `fairkit certify`.")
    ],
    keys: Annotated[
        list[Path] | None,
        opt.option(
            "--key", "PUB", "Public key that you trust (repeatable). Without one no signature is checked."
        ),
    ] = None,
    output: opt.Output = None,
) -> None:
    """Make a page from one or several certificates: versions over time, two models. Each is checked first.

    A page from evidence that does not hold says so in red, and the exit code is 1.
    """
    from fairkit.support.files import check_writable
    from fairkit_cli.evidence import read_evidence
    from fairkit_cli.html.certificates import evidence_page

    if output is not None:
        check_writable(output)
    shown = read_evidence(certificates, keys or ())
    text = evidence_page(shown)
    write(lambda _: text, output)
    raise typer.Exit(told(shown))


def told(shown: Sequence[Shown]) -> int:
    """Say on standard error what the checks said, and return the exit code."""
    for one in shown:
        if not one.signed:
            say(f"{one.name}: {one.state[0].lower()}{one.state[1:]}")
    return FAILED if any(one.failed for one in shown) else PASSED
