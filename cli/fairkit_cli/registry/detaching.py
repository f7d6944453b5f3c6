"""`fairkit registry detach`: take off what was attached in error, with a line in the log."""

from __future__ import annotations

from typing import Annotated

import typer

from fairkit_cli import options as opt
from fairkit_cli.registry.common import RegistryOption, open_registry
from fairkit_cli.terminal.output import print_as


def detach(
    reference: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The version.")],
    certificate: Annotated[
        str,
        typer.Argument(help="The certificate's digest, or its first characters, as `fairkit registry show` has them."),
    ],
    *,
    reason: Annotated[str, opt.option("--reason", "TEXT", "Why, for those who read the log, as 'a stranger's copy'.")],
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Take a certificate off a version that it was attached to in error. The log says who did it, and why.

    What a key that an alias trusts has signed goes on counting at promotions: only its signer can revoke it.
    """
    with open_registry(registry) as store:
        version, digest = store.detach(reference, certificate, reason)
        event = store.log(version.name, limit=1)[0]
    print_as(
        output_format,
        {"version": version.to_dict(), "certificate": digest, "event": event.to_dict()},
        f"{version.reference}: certificate {digest[:12]} was taken off (event {event.seq}): {reason}",
    )
