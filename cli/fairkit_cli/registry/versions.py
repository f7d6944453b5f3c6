"""`fairkit registry add`, `list`, `show`, `log` and `diff`: versions and what is known about them."""

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
    from collections.abc import Sequence


def add(
    name: Annotated[str, typer.Argument(help="The model's name; or NAME@VERSION to attach certificates to it.")],
    file: Annotated[Path | None, typer.Argument(help="The ONNX file. It is copied, and never run.")] = None,
    *,
    certificate: Annotated[list[Path] | None, typer.Option(help="Certificate of this file (repeatable).")] = None,
    parent: Annotated[str | None, typer.Option(help="The version it was made from, such as credit@1.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag (repeatable).")] = None,
    notes: Annotated[str, typer.Option(help="What to remember about it.")] = "",
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Add a file as the next version of a model, or attach certificates to a version."""
    from fairkit.errors import FairkitError
    from fairkit_cli.text.numbers import size

    if file is None:
        if not certificate or parent or tag or notes:
            raise FairkitError(
                "`fairkit registry add NAME MODEL.onnx` adds a version; "
                "`fairkit registry add NAME@VERSION --certificate CERT` attaches a certificate"
            )
        with open_registry(registry) as store:
            version = store.attach(name, certificate)
    else:
        from fairkit_registry.exchange.preflight import check_addition

        first = partial(check_addition, name, file, certificate or (), parent)
        with open_registry(registry, before=first) as store:
            version = store.add(name, file, certificates=certificate or (), parent=parent, tags=tag or (), notes=notes)
    count = len(version.certificates)
    print_as(
        output_format,
        version.to_dict(),
        f"{version.reference}  sha256 {version.model}  {size(version.size)}  {count} certificate{'s' * (count != 1)}",
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
    from fairkit_cli.text.numbers import size
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
        for model in models:
            for alias, why in model.get("ended", {}).items():
                echo(f"{model['name']}@{alias} means nothing {why}")
        return
    if output_format == "json":
        put(f'{{"versions": {json_lines(versions)}, "aliases": {json_lines(aliases)}}}\n')
        return
    aliases_at: dict[int | None, list[str]] = {}
    for one in aliases:
        aliases_at.setdefault(one.served, []).append(one.alias)
    echo(
        *columns(
            ("version", "aliases", "sha256", "size", "certificates", "parent", "added", "tags"),
            [
                (
                    *(v.reference, ", ".join(aliases_at.get(v.version, ())), v.model[:12], size(v.size)),
                    *(str(len(v.certificates)), v.parent or "", v.added_at[:16], ", ".join(v.tags)),
                )
                for v in versions
            ],
        )
    )
    for pointer in aliases:
        if pointer.ended is not None:
            echo(f"{pointer.name}@{pointer.alias} means nothing {pointer.ended}")


def show(
    reference: Annotated[str, typer.Argument(help="NAME (the newest), NAME@VERSION or NAME@ALIAS.")],
    registry: RegistryOption = None,
    output_format: opt.VersionFormat = "table",
) -> None:
    """Show a version with its certificates; or write its model card or bill of materials."""
    from fairkit_registry.exchange import describe

    with open_registry(registry) as store:
        version = store.version(reference, fallen=True)
        if output_format not in ("table", "json", "html"):
            put(describe.exported(store, version, output_format))
            return
        certificates = describe.certificates_of(store, version)
        pointers = [one for one in store.aliases(version.name) if one.version == version.version]
        aliases = [one.alias for one in pointers if one.ended is None]
        states = {one.alias: state for one in pointers if (state := store.probation(one)) is not None}
        file = store.blobs.path(version.model)
    if output_format == "html":
        from fairkit_cli.pages.certificates import certificate_page
        from fairkit_cli.render.html import html_page

        put(html_page(certificate_page(version.reference, certificates)))
        return
    if output_format == "json":
        record = {"aliases": aliases, "path": str(file), "evidence": [one.to_dict() for one in certificates]}
        probations = {"probation": {alias: state.to_dict() for alias, state in states.items()}} if states else {}
        print_json(version.to_dict() | record | probations)
        return
    from fairkit_cli.registry.probation import sentence
    from fairkit_cli.text.numbers import size
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
    for alias, state in states.items():
        echo(f"{alias}: {sentence(state)}")
    for one in certificates:
        echo(*certificate(one))
    if not certificates:
        echo("no certificate")


def log(
    name: Annotated[str | None, typer.Argument(help="A model; without it, everything.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the newest events.")] = None,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Only decisions about aliases: who promoted what, on which evidence.")
    ] = False,
    locks: Annotated[
        bool, typer.Option("--locks", help="Only policy locks, with the certificates that were made under each.")
    ] = False,
    certificate: Annotated[
        list[Path] | None,
        typer.Option(help="With --locks: a certificate that no version has, as of answers (repeatable)."),
    ] = None,
    registry: RegistryOption = None,
    output_format: Annotated[str, opt.formats("table", "json", "csv: with --decisions")] = "table",
) -> None:
    """Show what was done, the newest first. Each entry's digest covers the one before it."""
    from fairkit_cli.text.registry import columns

    if output_format == "csv" and not decisions:
        raise FairkitError("--format csv is for the decisions about aliases: add --decisions")
    if (certificate and not locks) or (locks and decisions):
        raise FairkitError("--certificate goes with --locks, and --locks without --decisions")
    if locks:
        _put_locks(registry, name, limit, certificate or (), output_format)
        return
    if decisions:
        _put_decisions(registry, name, limit, output_format)
        return
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
            "served": f"{event.body.get('alias')}: {event.body.get('kind')} {str(event.body.get('file'))[:12]}",
            "lock": f"lock {str(event.body.get('statement'))[:12]}",
            "revoke": f"list {event.body.get('sequence')} of key {str(event.body.get('issuer'))[:16]}",
        }
        more = details.get(event.action) or str(event.body.get("certificate") or event.body.get("model", ""))[:12]
        rows.append((str(event.seq), event.at[:19], event.action, what, more, str(event.body["by"]), event.digest[:12]))
    echo(*columns(("event", "at", "action", "what", "", "by", "digest"), rows))


def _put_locks(
    registry: Path | None, name: str | None, limit: int | None, certificates: Sequence[Path], output_format: str
) -> None:
    from dataclasses import asdict

    from fairkit_cli.text.registry import columns
    from fairkit_registry.evidence.certificate import read_file
    from fairkit_registry.exchange.inventory import lock_uses

    files = list(map(read_file, certificates))
    with open_registry(registry) as store:
        uses = lock_uses(store, name, files)[:limit]
    if output_format == "json":
        print_json([asdict(one) for one in uses])
        return
    rows = [
        (
            str(one.event), one.at[:19], one.by, one.model or "-", one.lock[:12], f"{one.table}, {one.rows:,} rows",
            one.purpose, "; ".join(one.certificates) or "none",
        )
        for one in uses
    ]  # fmt: skip
    echo(*columns(("event", "at", "by", "model", "lock", "table", "purpose", "certificates"), rows))


def _put_decisions(registry: Path | None, name: str | None, limit: int | None, output_format: str) -> None:
    from dataclasses import asdict, astuple, fields

    from fairkit_cli.text.registry import columns
    from fairkit_cli.text.spreadsheet import csv_text
    from fairkit_registry.exchange.inventory import AliasDecision, alias_decisions

    with open_registry(registry) as store:
        decisions = alias_decisions(store, name)[:limit]
    if output_format == "json":
        print_json([asdict(one) for one in decisions])
    elif output_format == "csv":
        put(csv_text([each.name for each in fields(AliasDecision)], [astuple(one) for one in decisions]))
    else:
        rows = [
            (
                str(decision.event), decision.at[:19], decision.by, decision.action,
                f"{decision.model}@{decision.alias}",
                f"{decision.before or '-'} -> {decision.version or '-'}", (decision.certificate or "-")[:12],
                decision.verdict or "-",
                (decision.audited_at or "-")[:10],
            )
            for decision in decisions
        ]  # fmt: skip
        header = ("event", "at", "by", "action", "alias", "version", "certificate", "verdict", "audited")
        echo(*columns(header, rows))


def diff(
    before: Annotated[str, typer.Argument(help="Such as credit@1.")],
    after: Annotated[str, typer.Argument(help="Such as credit@2.")],
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Set two versions side by side: findings with intervals, operators and sizes."""
    from fairkit_cli.text.numbers import size
    from fairkit_cli.text.registry import columns, comparisons
    from fairkit_registry.exchange.difference import diff as compare

    with open_registry(registry) as store:
        result = compare(store, before, after)
    if output_format == "json":
        print_json(result.to_dict())
        return
    left, right = result.before.reference, result.after.reference
    if result.findings:
        echo(*comparisons(result.findings, left, right), "")
    graphs = result.graphs
    rows = [
        ("file", size(result.before.size), size(result.after.size)),
        ("operators", *(str(sum(graph.operators.values())) for graph in graphs)),
        ("weights", *(str(graph.weights) for graph in graphs)),
        *((name, str(pair[0]), str(pair[1])) for name, pair in result.operators.items()),
    ]
    echo(*columns(("graph", left, right), rows))
    for note in result.notes:
        echo(f"note: {note}")
