"""`fairkit registry export`, `check`, `gc` and `revocations`: archives, and looking after the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairkit_cli import options as opt
from fairkit_cli.registry.common import RegistryOption, load_keys, open_registry, refusing
from fairkit_cli.terminal.output import FAILED, echo, print_as, print_json, say


def export(
    references: Annotated[list[str], typer.Argument(help="Models (all versions) or versions.")],
    output: Annotated[Path, typer.Option("--output", help="The archive: an OCI image layout in a tar file.")],
    key: Annotated[list[Path] | None, typer.Option("--key", help="Public key to put in (repeatable).")] = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Write models, certificates and public keys to one archive that any OCI registry can hold."""
    from fairkit_cli.text.numbers import size
    from fairkit_registry.exchange.archive import export as write

    with open_registry(registry) as store:
        versions = write(store, references, output, keys=load_keys(key))
    names = ", ".join(version.reference for version in versions[:8]) + (", ..." if len(versions) > 8 else "")
    print_as(
        output_format,
        {"archive": str(output), "versions": [version.to_dict() for version in versions]},
        f"{output}  {size(output.stat().st_size)}  {names}",
    )


def check(
    head: Annotated[
        str | None, typer.Option(help="Digest of an event noted down before; it must still be in the log.")
    ] = None,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept",
            help="Remember the present state as the newest if the rest holds, also after an older index was restored.",
        ),
    ] = False,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Hash every blob again, follow every reference, walk the chain of events."""
    from fairkit_cli.text.numbers import size
    from fairkit_registry.store.maintenance import check as look

    with open_registry(registry, trusting=True) as store:
        result = look(store, head=head, remembered=not accept)
        if accept and not result.problems:
            store.folder.remember(force=True)
            for note in store.notes:
                say(note)
    if output_format == "json":
        print_json(result.to_dict())
    else:
        for text in result.problems:
            echo(f"problem: {text}")
        for text in result.notes:
            echo(f"note: {text}")
        state = "clean" if not result.problems else f"{len(result.problems)} problems"
        echo(
            f"{state}: {result.versions} versions, {result.blobs} blobs ({size(result.size)}), {result.events} events, "
            f"head {result.head}"
        )
    raise typer.Exit(FAILED if result.problems else 0)


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Remove files that nothing refers to: what processes left that were killed."""
    from fairkit_cli.text.numbers import size
    from fairkit_registry.store.maintenance import gc as collect

    with open_registry(registry) as store:
        removed = collect(store, dry_run=dry_run)
    shown = f"{'would remove' if dry_run else 'removed'} {len(removed.files)} files, {size(removed.size)}"
    print_as(output_format, removed.to_dict() | {"dry_run": dry_run}, shown)


def revocations(
    lists: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Revocation lists to take in, or folders of them.")
    ] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option("--key", help="Public key that signed them (repeatable); default: those that the aliases name."),
    ] = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Take revocation lists into a registry, and show those that it has. Every later promotion heeds them."""
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.keys import parse_public
    from fairkit_registry.evidence.revocations import read, read_files

    raws = read_files(lists or ())
    with open_registry(registry) as store:
        policies = [one.policy for one in store.aliases()]
        pems = sorted({pem for policy in policies for pem in (*policy.keys, *policy.revokers)})
        keys = [*load_keys(key), *(parse_public(pem) for pem in pems)]
        with refusing():
            store.revoke(raws, keys)
        shown = []
        for issuer, raw in sorted(store.revocations().items()):
            try:
                shown.append(read(raw, keys))
            except CertificateError:
                say(f"note: the list of key {issuer[:16]} cannot be checked: name its public key with --key")
    if output_format == "json":
        print_json([one.to_dict() for one in shown])
        return
    for one in shown:
        echo(
            f"key {one.issuer[:16]}  number {one.sequence}  next update by {one.next_update:%Y-%m-%d %H:%M} UTC  "
            f"{len(one.entries)} revoked"
        )
        echo(*(f"  {entry.kind} {entry.sha256[:16]}  {entry.reason}" for entry in one.entries))
