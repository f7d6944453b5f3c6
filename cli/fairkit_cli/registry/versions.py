"""`fairkit registry add`, `list` and `show`: versions, what is known about them, and what was done."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.registry.common import RegistryOption, open_registry
from fairkit_cli.terminal.output import echo, json_lines, print_as, print_json, put

if TYPE_CHECKING:
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
    from fairkit.support.numbers import size

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
        from fairkit_registry.exchange.importing import check_addition

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

    newest = store.versions(name, limit=1)[0] if any(one["name"] == name for one in store.models()) else None
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
    from fairkit_registry.evidence.statements import PolicyLock, named

    raw = named(PolicyLock, file)
    with open_registry(registry, before=lambda: None) as store:
        terms = store.lock(name, raw)
        event = next(one for one in store.log(name) if one.action == "lock")
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
    with open_registry(registry) as store:
        if name is None:
            models = store.models()
            aliases = None
        else:
            versions = store.versions(name, limit=limit)
            aliases = store.aliases(name)
    from fairkit.support.numbers import size
    from fairkit_cli.text.registry import columns

    if aliases is None:
        if output_format == "json":
            print_json(models)
            return
        rows = [
            (m["name"], str(m["versions"]), ", ".join(f"{a}={v or '-'}" for a, v in m["aliases"].items()))
            for m in models
        ]
        echo(*columns(("model", "versions", "aliases"), rows))
        return
    if output_format == "json":
        put(f'{{"versions": {json_lines(versions)}, "aliases": {json_lines(aliases)}}}\n')
        return
    aliases_at: dict[int | None, list[str]] = {}
    for one in aliases:
        aliases_at.setdefault(one.version, []).append(one.alias)
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
        pointers = [one for one in store.aliases(version.name) if one.version == version.version]
        aliases = [one.alias for one in pointers]
        file = store.blobs.path(version.model)
    if output_format == "html":
        from fairkit_cli.pages.certificates import certificate_page
        from fairkit_cli.render.html import html_page

        put(html_page(certificate_page(version.reference, certificates)))
        return
    if output_format == "json":
        record = {"aliases": aliases, "path": str(file), "evidence": [one.to_dict() for one in certificates]}
        print_json(version.to_dict() | record)
        return
    from fairkit.support.numbers import size
    from fairkit_cli.text.verified import certificate

    echo(f"{version.reference}  {', '.join(aliases)}".rstrip())
    echo(
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
    if output_format == "json":
        print_json([event.to_dict() for event in events])
        return
    rows = []
    for event in events:
        version = event.body.get("version")
        what = f"{event.name}@{version}" if version else event.name or "-"
        details = {
            "promote": f"-> {event.body.get('alias')}",
            "demote": f"{event.body.get('alias')}: taken from {event.name}@{event.body.get('taken_from')}",
            "alias": f"{event.body.get('alias')}: policy",
            "remove-alias": f"{event.body.get('alias')}: removed",
            "detach": f"{str(event.body.get('certificate'))[:12]}: {event.body.get('reason')}",
            "lock": f"lock {str(event.body.get('statement'))[:12]}",
            "revoke": f"{str(event.body.get('key') or event.body.get('certificate'))[:12]}: {event.body.get('reason')}",
        }
        more = details.get(event.action) or str(event.body.get("certificate") or event.body.get("model", ""))[:12]
        rows.append(
            (
                str(event.seq),
                event.at[:19].replace("T", " "),
                event.action,
                what,
                more,
                str(event.body["by"]),
                event.digest[:12],
            )
        )
    echo(*columns(("event", "at", "action", "what", "", "by", "digest"), rows))
