"""`fairkit registry export`, `import`, `revoke` and `check`: archives, and looking after the folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.registry.common import KeysOption, RegistryOption, arrival_line, load_keys, open_registry
from fairkit_cli.terminal.output import FAILED, echo, print_as, print_json, say

if TYPE_CHECKING:
    from fairkit_registry.store.registry import Registry

TRACKED = "models:/"
"""The address of a model that MLflow keeps begins with this."""
_SHORTEST = 8
"""Characters of a digest that name a key or a certificate."""


def export(
    references: Annotated[list[str], typer.Argument(help="Models (all versions) or versions.")],
    output: Annotated[Path, typer.Option("--output", help="The archive: an OCI image layout in a tar file.")],
    key: Annotated[list[Path] | None, typer.Option("--key", help="Public key to put in (repeatable).")] = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Write models, certificates and public keys to one archive that any OCI registry can hold."""
    from fairkit.support.numbers import size
    from fairkit_registry.exchange.layout import export as write

    with open_registry(registry) as store:
        versions = write(store, references, output, keys=load_keys(key))
    names = ", ".join(version.reference for version in versions[:8]) + (", ..." if len(versions) > 8 else "")
    print_as(
        output_format,
        {"archive": str(output), "versions": [version.to_dict() for version in versions]},
        f"{output}  {size(output.stat().st_size)}  {names}",
    )


def import_archive(
    archive: Annotated[
        str,
        typer.Argument(
            metavar="ARCHIVE",
            help="An archive that `export` wrote; or a model of MLflow: models:/NAME@ALIAS, models:/NAME/VERSION.",
        ),
    ],
    *,
    name: Annotated[str | None, typer.Option(help="Another name for the model.")] = None,
    key: KeysOption = None,
    max_bytes: Annotated[int | None, typer.Option(min=1, help="The most that the archive may hold.")] = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Add every version of an archive, all or none. Keys in the archive are never trusted.

    With --key what none of these keys has signed is refused. A model from MLflow (of MLFLOW_TRACKING_URI) becomes one
    file: tensors that lie in others are merged into it. It has no certificate yet.
    """
    from fairkit_registry.exchange import importing
    from fairkit_registry.exchange.importing import check_archive

    if archive.startswith(TRACKED):
        if key or max_bytes:
            raise FairkitError(
                "--key and --max-bytes are about archives; a model from MLflow brings no certificates: certify it here"
            )
        _import_tracked(archive, name, registry, output_format)
        return
    trusted, most, path = load_keys(key), max_bytes or importing.MOST_BYTES, Path(archive)
    with open_registry(registry, before=lambda: check_archive(path, trusted, most)) as store:
        imported = importing.import_archive(store, path, name=name, trusted=trusted, most_bytes=most)
    if output_format == "json":
        print_json([one.to_dict() for one in imported])
        return
    for one in imported:
        echo(arrival_line(one, keyed=bool(key)))
    carried = sorted({keyid for one in imported for keyid in one.carried_keys})
    if carried:
        say(
            f"the archive carries the public keys {', '.join(keyid[:16] for keyid in carried)}; they are not "
            "trusted: get the signer's key from the signer"
        )


def _import_tracked(uri: str, name: str | None, registry: Path | None, output_format: str) -> None:
    """Add a model that MLflow keeps."""
    import tempfile

    from fairkit.plugins import model_source

    with tempfile.TemporaryDirectory(prefix="fairkit-") as scratch:
        tracked = model_source("mlflow").open({"uri": uri, "folder": scratch})
    tracked.check_name(name)
    with open_registry(registry, before=lambda: None) as store:
        done = tracked.add_to(store, name)
    if output_format == "json":
        print_json([done.to_dict()])
        return
    here = "" if done.version is None else done.version.reference
    merged = "  (tensors of other files merged)" if tracked.merged else ""
    echo(f"{uri} -> {here}{'' if done.new else '  (already here)'}{merged}  no certificate")


def revoke(
    what: Annotated[
        str,
        typer.Argument(
            metavar="KEY-OR-CERTIFICATE",
            help="A public key (a file, or the first characters of its id), or a certificate (a file, or the first "
            "characters of its digest, as `fairkit registry show` has them).",
        ),
    ],
    *,
    reason: Annotated[str, opt.option("--reason", "TEXT", "Why, for those who read the log.")],
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Write down that a key or a certificate counts no longer. Every promotion from here heeds it, and says so.

    Nothing is taken away: the certificates stay, and the log says who revoked what. What others have is not touched.
    """
    with open_registry(registry) as store:
        kind, digest = _revocable(store, what)
        store.revoke(kind, digest, reason)
        event = store.log(limit=1)[0]
    print_as(output_format, event.to_dict(), f"{kind} {digest[:16]} was revoked (event {event.seq}): {reason}")


def _revocable(store: Registry, what: str) -> tuple[str, str]:
    """Return whether a text means a key or a certificate, and its key id or its statement's digest."""
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.dsse import statement_sha256
    from fairkit_registry.evidence.keys import keyid_of, load_public

    path = Path(what)
    if path.is_file():
        if b"PUBLIC KEY" in Certificate.read_file(path)[:64]:
            return "key", load_public(path).keyid
        return "certificate", Certificate.read(Certificate.read_file(path)).statement_sha256
    if len(what) >= _SHORTEST:
        keys = {keyid_of(pem) for one in store.aliases() for pem in one.policy.keys}
        found = [("key", one) for one in sorted(keys) if one.startswith(what)]
        known = [one for one in store.certificates() if one.startswith(what)]
        found += [("certificate", statement_sha256(store.certificate(one))) for one in known]
        if len(found) == 1:
            return found[0]
    raise FairkitError(
        f"{what!r} is no file, and not the beginning (at least {_SHORTEST} characters) of exactly one certificate or "
        "trusted key of this registry; `fairkit registry show NAME@VERSION` lists certificates"
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
    gc: Annotated[
        bool, typer.Option("--gc", help="If all is well, remove what killed processes left: files of nothing.")
    ] = False,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Hash every blob again, follow every reference, walk the chain of events."""
    from fairkit.support.numbers import size
    from fairkit_registry.store.maintenance import check as look
    from fairkit_registry.store.maintenance import gc as collect

    with open_registry(registry, trusting=True) as store:
        result = look(store, head=head, remembered=not accept)
        if accept and not result.problems:
            store.folder.remember(force=True)
            for note in store.notes:
                say(note)
        removed = collect(store) if gc and not result.problems else None
    if output_format == "json":
        print_json(result.to_dict() | {"removed": None if removed is None else removed.to_dict()})
    else:
        for text in result.problems:
            echo(f"problem: {text}")
        for text in () if removed is not None else result.notes:
            echo(f"note: {text}")
        if removed is not None:
            echo(f"removed {len(removed.files)} files, {size(removed.size)}")
        state = "clean" if not result.problems else f"{len(result.problems)} problems"
        echo(
            f"{state}: {result.versions} versions, {result.blobs} blobs ({size(result.size)}), {result.events} events, "
            f"head {result.head}"
        )
    raise typer.Exit(FAILED if result.problems else 0)
