"""`fairkit registry add`, `list` and `show`: versions, what is known about them, and what was done."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.config import refuse_remote
from fairkit_cli.terminal.output import FAILED, echo, json_lines, print_as, print_json, put, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairkit_registry.evidence.signers import PublicKey
    from fairkit_registry.exchange.describe import Imported
    from fairkit_registry.store.registry import Registry


def add(
    name: Annotated[str, typer.Argument(help="The model's name; or NAME@VERSION to attach certificates to it.")],
    file: Annotated[
        Path | None,
        typer.Argument(help="The ONNX file, which is copied and never run; or a policy lock for a model to come."),
    ] = None,
    *,
    certificate: Annotated[list[Path] | None, typer.Option(help="Certificate of this file (repeatable).")] = None,
    parent: Annotated[str | None, typer.Option(help="The version it was made from, such as credit@1.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag (repeatable).")] = None,
    notes: Annotated[str, typer.Option(help="What to remember about it.")] = "",
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Add a file as the next version of a model, attach certificates to a version, or register a policy lock.

    A lock goes into the log before the model does, and the log shows it: an alias that asks for one (`locked`) takes no
    other. Of several locks the newest before the model counts.
    """
    from fairkit.support.escaping import size

    if file is None or (_is_lock(file) and (certificate or parent or tag or notes)):
        if file is not None or not certificate or parent or tag or notes:
            raise FairkitError(
                "`fairkit registry add NAME MODEL.onnx` adds a version, `fairkit registry add NAME LOCK` registers a "
                "policy lock; `fairkit registry add NAME@VERSION --certificate CERT` attaches a certificate"
            )
        with open_registry(registry) as store:
            version = store.attach(name, certificate)
    elif _is_lock(file):
        _add_lock(name, file, registry, output_format)
        return
    else:
        from fairkit_registry.exchange.describe import check_addition

        first = partial(check_addition, name, file, certificate or (), parent)
        with open_registry(registry, before=first) as store:
            if not (parent or tag or notes):
                _check_new(store, name, file)
            version = store.add(name, file, certificates=certificate or (), parent=parent, tags=tag or (), notes=notes)
    count = len(version.certificates)
    print_as(
        output_format,
        version.to_dict(),
        f"{version.reference}  sha256 {version.model}  {size(version.size)}  {count} certificate{'s' * (count != 1)}",
    )


def _check_new(store: Registry, name: str, file: Path) -> None:
    """Refuse the very file of the newest version, unless the registry's own copy of it is damaged."""
    from fairkit_registry.blobs import hash_file

    newest = store.versions(name, limit=1)[0] if any(model["name"] == name for model in store.models()) else None
    if newest is not None and newest.model == hash_file(file) == hash_file(store.blobs.path(newest.model)):
        raise FairkitError(
            f"{newest.reference} is this very file, and nothing was added; `fairkit registry add {newest.reference} "
            "--certificate CERT` attaches a certificate to it"
        )


def _is_lock(file: Path) -> bool:
    """Tell whether a file is JSON, as a lock is; an ONNX file never begins so."""
    try:
        with file.open("rb") as handle:
            return handle.read(64).lstrip().startswith(b"{")
    except OSError:
        return False


def _add_lock(name: str, file: Path, registry: Path | None, output_format: str) -> None:
    from fairkit_registry.evidence.signed import PolicyLock, named

    raw = named(PolicyLock, file)
    with open_registry(registry, before=lambda: None) as store:
        terms = store.lock(name, raw)
        event = next(entry for entry in store.log(name) if entry.action == "lock")
    print_as(
        output_format,
        terms.to_dict() | {"event": event.to_dict()},
        f"{name}: policy lock {terms.statement_sha256[:12]} about {terms.name}, {terms.rows:,} rows, registered as "
        f"event {event.seq} at {event.at[:19]}",
    )


def list_models(
    name: Annotated[str | None, typer.Argument(help="A model; without it, all models.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the newest versions.")] = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """List the models, or the versions of one, the newest first."""
    from fairkit.support.escaping import size
    from fairkit_cli.text.registry import columns

    with open_registry(registry) as store:
        models = store.models() if name is None else []
        versions = [] if name is None else store.versions(name, limit=limit)
        aliases = [] if name is None else store.aliases(name)
    if name is None:
        rows = [
            (m["name"], str(m["versions"]), ", ".join(f"{a}={v or '-'}" for a, v in m["aliases"].items()))
            for m in models
        ]
        print_as(output_format, models, *columns(("model", "versions", "aliases"), rows))
        return
    if output_format == "json":
        put(f'{{"versions": {json_lines(versions)}, "aliases": {json_lines(aliases)}}}\n')
        return
    aliases_at: dict[int | None, list[str]] = {}
    for alias in aliases:
        aliases_at.setdefault(alias.version, []).append(alias.alias)
    echo(
        *columns(
            ("version", "aliases", "sha256", "size", "certificates", "parent", "added", "tags"),
            [
                (
                    *(v.reference, ", ".join(aliases_at.get(v.version, ())), v.model[:12], size(v.size)),
                    *(str(len(v.certificates)), v.parent or "", v.added_at[:10], ", ".join(v.tags)),
                )
                for v in versions
            ],
        )
    )


def show(
    reference: Annotated[str | None, typer.Argument(help="NAME (the newest), NAME@VERSION or NAME@ALIAS.")] = None,
    *,
    log: Annotated[
        bool, typer.Option("--log", help="Show what was done to the model, or to all without one, the newest first.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="With --log: only the newest events.")] = None,
    registry: RegistryOption = None,
    output_format: opt.VersionFormat = "table",
) -> None:
    """Show a version with its certificates, or write its model card or bill of materials; or show the log.

    Each entry's digest of the log covers the one before it.
    """
    if log:
        _show_log(reference, limit, registry, output_format)
        return
    if reference is None or limit is not None:
        raise FairkitError("name a version, as credit@3, or --log: --limit is about the log")
    from fairkit_registry.exchange import describe

    with open_registry(registry) as store:
        version = store.version(reference)
        if output_format not in ("table", "json", "html"):
            put(describe.exported(store, version, output_format))
            return
        certificates = describe.certificates_of(store, version)
        aliases = [alias.alias for alias in store.aliases(version.name) if alias.version == version.version]
        file = store.blobs.path(version.model)
    if output_format == "html":
        from fairkit_cli.pages.certificates import certificate_page
        from fairkit_cli.render.html import html_page

        put(html_page(certificate_page(version.reference, certificates)))
        return
    if output_format == "json":
        record = {
            "aliases": aliases,
            "path": str(file),
            "evidence": [certificate.to_dict() for certificate in certificates],
        }
        print_json(version.to_dict() | record)
        return
    from fairkit.support.escaping import size
    from fairkit_cli.text.registry import certificate

    echo(
        f"{version.reference}  {', '.join(aliases)}".rstrip(),
        f"sha256   {version.model}",
        f"size     {size(version.size)}",
        f"added    {version.added_at}",
        f"file     {file}",
    )
    for label, text in (
        ("made of ", version.parent),
        ("origin  ", version.origin),
        ("tags    ", ", ".join(version.tags)),
        ("notes   ", version.notes),
    ):
        if text:
            echo(f"{label} {text}")
    for one in certificates:
        echo(*certificate(one))
    if not certificates:
        echo("no certificate")


def _show_log(name: str | None, limit: int | None, registry: Path | None, output_format: str) -> None:
    from fairkit_cli.text.registry import columns

    if output_format not in ("table", "json"):
        raise FairkitError(f"--log is written as table or json, not as {output_format}")
    with open_registry(registry) as store:
        events = store.log(name, limit=limit)
    rows = []
    for event in events:
        version = event.body.get("version")
        what = f"{event.name}@{version}" if version else event.name or "-"
        alias = event.body.get("alias")
        details = {
            "promote": f"-> {alias}",
            "demote": f"{alias}: taken from {event.name}@{event.body.get('taken_from')}",
            "alias": f"{alias}: policy",
            "remove-alias": f"{alias}: removed",
            "detach": f"{str(event.body.get('certificate'))[:12]}: {event.body.get('reason')}",
            "lock": f"lock {str(event.body.get('statement'))[:12]}",
            "revoke": f"{str(event.body.get('key') or event.body.get('certificate'))[:12]}: {event.body.get('reason')}",
        }
        more = details.get(event.action) or str(event.body.get("certificate") or event.body.get("model", ""))[:12]
        at = event.at[:19].replace("T", " ")
        rows.append((str(event.seq), at, event.action, what, more, str(event.body["by"]), event.digest[:12]))
    table = columns(("event", "at", "action", "what", "", "by", "digest"), rows)
    print_as(output_format, [event.to_dict() for event in events], *table)


# What the registry's commands share: options, opening.


RegistryOption = Annotated[
    Path | None,
    typer.Option(
        "--registry",
        help="The registry's folder; else FAIRKIT_REGISTRY, else [registry] path, else ./fairkit-registry.",
    ),
]
KeysOption = Annotated[
    list[Path] | None, typer.Option("--key", help="Public key to trust (repeatable).", show_default=False)
]


def registry_path(option: Path | None) -> Path:
    """Return the registry's folder from the option, the environment or the configuration."""
    from fairkit_cli.config import load_config

    return load_config().registry_folder(option)


def open_registry(option: Path | None, *, before: Callable[[], None] | None = None, trusting: bool = False) -> Registry:
    """Open the registry. With `before` it is made where there is none, after a look at what will be added.

    `trusting` opens one that is older than what is remembered of it, or was changed, for a check that says so.
    """
    from fairkit_cli.config import load_config
    from fairkit_registry.store.folder import INDEX_FILE
    from fairkit_registry.store.registry import Registry

    refuse_remote(str(registry_path(option)))
    path = registry_path(option)
    if before is not None and not (path / INDEX_FILE).exists():
        before()  # what it refuses leaves no empty registry behind
        say(f"new registry: {path}")
    result = Registry(path, create=before is not None, witnesses=load_config().witnesses(), trusting=trusting)
    for note in result.notes:
        say(note)
    return result


@contextmanager
def refusing() -> Iterator[None]:
    """End the command with code 1, and say why, where evidence does not hold."""
    from fairkit_registry.errors import VerificationError

    try:
        yield
    except VerificationError as error:
        echo(f"refused: {error}")
        raise typer.Exit(FAILED) from None


def arrival_line(arrived: Imported, *, keyed: bool) -> str:
    """Say what became of a version that came from elsewhere, and whether a key vouches for it."""
    here = "" if arrived.version is None else arrived.version.reference
    state = "" if arrived.new else "  (already here)"
    vouched = "signed by a trusted key" if keyed else "signatures not checked (no --key)"
    return f"{arrived.origin} -> {here}{state}  {vouched if arrived.certificates else 'no certificate'}"


def load_keys(paths: Sequence[Path] | None) -> list[PublicKey]:
    """Read the public keys that the user named."""
    from fairkit_registry.evidence.signers import load_public

    return [load_public(path) for path in paths or ()]


# `fairkit registry export`, `import`, `revoke` and `check`: archives, and looking after the folder.


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
    from fairkit.support.escaping import size
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
    from fairkit_registry.exchange import describe

    if archive.startswith(TRACKED):
        if key or max_bytes:
            raise FairkitError(
                "--key and --max-bytes are about archives; a model from MLflow brings no certificates: certify it here"
            )
        _import_tracked(archive, name, registry, output_format)
        return
    trusted, most, path = load_keys(key), max_bytes or describe.MOST_BYTES, Path(archive)
    with open_registry(registry, before=lambda: describe.check_archive(path, trusted, most)) as store:
        imported = describe.import_archive(store, path, name=name, trusted=trusted, most_bytes=most)
    if output_format == "json":
        print_json([arrival.to_dict() for arrival in imported])
        return
    for one in imported:
        echo(arrival_line(one, keyed=bool(key)))
    carried = sorted({keyid for arrival in imported for keyid in arrival.carried_keys})
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
    here = "" if done.version is None else done.version.reference
    merged = "  (tensors of other files merged)" if tracked.merged else ""
    line = f"{uri} -> {here}{'' if done.new else '  (already here)'}{merged}  no certificate"
    print_as(output_format, [done.to_dict()], line)


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
    from fairkit_registry.evidence.signed import statement_sha256
    from fairkit_registry.evidence.signers import keyid_of, load_public

    path = Path(what)
    if path.is_file():
        if b"PUBLIC KEY" in Certificate.read_file(path)[:64]:
            return "key", load_public(path).keyid
        return "certificate", Certificate.read(Certificate.read_file(path)).statement_sha256
    if len(what) >= _SHORTEST:
        keys = {keyid_of(pem) for alias in store.aliases() for pem in alias.policy.keys}
        matches = [("key", key) for key in sorted(keys) if key.startswith(what)]
        certificates = [certificate for certificate in store.certificates() if certificate.startswith(what)]
        matches += [("certificate", statement_sha256(store.certificate(certificate))) for certificate in certificates]
        if len(matches) == 1:
            return matches[0]
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
    from fairkit.support.escaping import size
    from fairkit_registry.store.registry import check as look
    from fairkit_registry.store.registry import gc as collect

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
