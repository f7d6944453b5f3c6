"""`fairkit registry verify`: does the evidence of a version hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.registry.common import KeysOption, RegistryOption, load_keys, open_registry, remote_of
from fairkit_cli.terminal.output import print_as

if TYPE_CHECKING:
    from fairkit_registry.evidence.signers import Signer


def verify(
    reference: Annotated[
        str, typer.Argument(help="A version, NAME@ALIAS, an exported archive (a file), or oci://HOST/REPOSITORY:TAG.")
    ],
    key: KeysOption = None,
    *,
    summary: Annotated[
        Path | None,
        opt.option("--summary", "FILE", "Also sign the outcome as a verification summary (SLSA VSA), for other tools."),
    ] = None,
    summary_key: Annotated[
        list[str] | None,
        opt.option("--summary-key", "FILE", "The verifier's secret key to sign it with, or pkcs11:... (repeatable)."),
    ] = None,
    insecure_key: opt.InsecureKey = False,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Check a version's file and certificates against keys that you trust.

    Without --key the keys count that the model's aliases trust. NAME@ALIAS is also held against the
    alias's policy again.
    """
    from fairkit.support.files import write_atomic
    from fairkit_cli.registry import verify as registry_verify
    from fairkit_cli.registry.remote import address_of
    from fairkit_registry.oci.address import is_address

    where = None if is_address(reference) else remote_of(registry)
    local = where is None and not is_address(reference) and not Path(reference).is_file()
    signers = _summary_signers(summary, summary_key, insecure=insecure_key, local=local)
    if where is not None or is_address(reference):
        address = reference if where is None else address_of(where, reference)
        outcome = registry_verify.remote(address, load_keys(key))
    elif Path(reference).is_file():
        outcome = registry_verify.archive(Path(reference), load_keys(key))
    else:
        with open_registry(registry) as store:
            outcome = registry_verify.version(store, reference, load_keys(key))
            if summary is not None:
                write_atomic(summary, registry_verify.summarised(store, reference, outcome, signers))
    print_as(output_format, outcome.to_dict(), *outcome.lines())
    raise typer.Exit(outcome.code)


def _summary_signers(summary: Path | None, keys: list[str] | None, *, insecure: bool, local: bool) -> list[Signer]:
    """Open the verifier's keys, and refuse options that would say nothing."""
    from fairkit.support.files import check_writable
    from fairkit_cli.terminal.passphrases import load_signers

    if (summary is None) != (not keys):
        raise FairkitError("--summary FILE and --summary-key KEY go together: the verifier signs what it found")
    if insecure and summary is None:
        raise FairkitError("--insecure-key is about --summary-key KEY; give that, or leave it out")
    if summary is None:
        return []
    if not local:
        raise FairkitError("--summary is about a version in a registry's folder: pull or import it first")
    check_writable(summary)
    return load_signers(keys or (), insecure=insecure)
