"""`fairkit registry ...`: versions of models with their certificates."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairkit_registry.keys import PublicKey
    from fairkit_registry.policies import AliasPolicy
    from fairkit_registry.promotion import Decision
    from fairkit_registry.store import Registry

app = typer.Typer(no_args_is_help=True, help="Versions of ONNX models with their certificates.")

VERDICT_CODES = {None: 0, "pass": 0, "fail": 1, "inconclusive": 3}


class Format(StrEnum):
    """How a result is printed."""

    table = "table"
    json = "json"


class ShowFormat(StrEnum):
    """How a version is shown."""

    table = "table"
    json = "json"
    markdown = "markdown"
    cyclonedx = "cyclonedx"


RegistryOption = Annotated[
    Path | None,
    typer.Option(
        "--registry",
        help="The registry's folder; else FAIRKIT_REGISTRY, else [registry] path, else ./fairkit-registry.",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="For people or for programs.")]
KeysOption = Annotated[
    list[Path] | None, typer.Option("--key", help="Public key to trust (repeatable).", show_default=False)
]


def registry_path(option: Path | None) -> Path:
    """Give the registry's folder from the option, the environment or the configuration."""
    from fairkit.config import load_config
    from fairkit_registry.location import locate

    config = load_config()
    path = config.registry.get("path")
    return locate(option, configured=None if path is None else config.file(path))


def _open(option: Path | None, *, create: bool = False) -> Registry:
    from fairkit_registry.store import Registry

    path = registry_path(option)
    if create and not path.exists():
        typer.echo(f"new registry: {path}", err=True)
    return Registry(path, create=create)


def _keys(paths: list[Path] | None) -> list[PublicKey]:
    from fairkit_registry.keys import load_public

    return [load_public(path) for path in paths or ()]


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def _json_lines(records: Iterable[Any]) -> str:
    """Write records as a JSON list with a line for each: an indented one takes long for thousands."""
    return "[" + ",\n".join(json.dumps(one.to_dict(), ensure_ascii=False) for one in records) + "]"


@app.command()
def add(
    name: Annotated[
        str, typer.Argument(help="The model's name; or NAME@VERSION to attach certificates to it.")
    ],
    file: Annotated[Path | None, typer.Argument(help="The ONNX file. It is copied, and never run.")] = None,
    *,
    certificate: Annotated[
        list[Path] | None, typer.Option(help="Certificate of this file (repeatable).")
    ] = None,
    parent: Annotated[
        str | None, typer.Option(help="The version it was made from, such as credit@1.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag (repeatable).")] = None,
    notes: Annotated[str, typer.Option(help="What to remember about it.")] = "",
    registry: RegistryOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Add a file as the next version of a model, or attach certificates to a version."""
    from fairkit.errors import FairkitError
    from fairkit_cli.registry_text import size

    if file is None:
        if not certificate or parent or tag or notes:
            raise FairkitError(
                "`fairkit registry add NAME MODEL.onnx` adds a version; "
                "`fairkit registry add NAME@VERSION --certificate CERT` attaches a certificate"
            )
        with _open(registry) as store:
            version = store.attach(name, certificate)
    else:
        with _open(registry, create=True) as store:
            version = store.add(
                name, file, certificates=certificate or (), parent=parent, tags=tag or (), notes=notes
            )
    if format is Format.json:
        _print_json(version.to_dict())
        return
    count = len(version.certificates)
    typer.echo(
        f"{version.reference}  sha256 {version.model}  {size(version.size)}  {count} "
        f"certificate{'s' * (count != 1)}"
    )


@app.command("list")
def list_models(
    name: Annotated[str | None, typer.Argument(help="A model; without it, all models.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the newest versions.")] = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.table,
) -> None:
    """List the models, or the versions of one, the newest first."""
    with _open(registry) as store:
        if name is None:
            models = store.models()
            aliases = None
        else:
            versions = store.versions(name, limit=limit)
            aliases = store.aliases(name)
    from fairkit_cli.registry_text import columns, size

    if aliases is None:
        if format is Format.json:
            _print_json(models)
            return
        rows = [
            (m["name"], str(m["versions"]), ", ".join(f"{a}={v or '-'}" for a, v in m["aliases"].items()))
            for m in models
        ]
        typer.echo(columns(("model", "versions", "aliases"), rows))
        return
    if format is Format.json:
        typer.echo(f'{{"versions": {_json_lines(versions)}, "aliases": {_json_lines(aliases)}}}')
        return
    held: dict[int | None, list[str]] = {}
    for one in aliases:
        held.setdefault(one.version, []).append(one.alias)
    typer.echo(
        columns(
            ("version", "aliases", "sha256", "size", "certificates", "parent", "added", "tags"),
            [
                (
                    *(v.reference, ", ".join(held.get(v.version, ())), v.model[:12], size(v.size)),
                    *(str(len(v.certificates)), v.parent or "", v.added_at[:16], ", ".join(v.tags)),
                )
                for v in versions
            ],
        )
    )


@app.command()
def show(
    reference: Annotated[str, typer.Argument(help="NAME (the newest), NAME@VERSION or NAME@ALIAS.")],
    registry: RegistryOption = None,
    format: Annotated[
        ShowFormat,
        typer.Option("--format", help="markdown: a model card; cyclonedx: an ML bill of materials."),
    ] = ShowFormat.table,
) -> None:
    """Show a version with its certificates; or write its model card or bill of materials."""
    from fairkit_registry import describe

    with _open(registry) as store:
        version = store.version(reference)
        if format is ShowFormat.markdown:
            from fairkit_registry.cards import markdown

            typer.echo(markdown(describe.card(store, version)), nl=False)
            return
        if format is ShowFormat.cyclonedx:
            from fairkit_registry.bom import cyclonedx

            typer.echo(cyclonedx(describe.card(store, version)), nl=False)
            return
        found = describe.certificates_of(store, version)
        aliases = [one.alias for one in store.aliases(version.name) if one.version == version.version]
        file = store.blobs.path(version.model)
    if format is ShowFormat.json:
        record = {"aliases": aliases, "path": str(file), "evidence": [one.to_dict() for one in found]}
        _print_json(version.to_dict() | record)
        return
    from fairkit_cli.registry_text import certificate, clean, size

    typer.echo(f"{version.reference}  {', '.join(aliases)}".rstrip())
    typer.echo(
        f"sha256   {version.model}\nsize     {size(version.size)}\nadded    {version.added_at}\nfile   "
        f"  {file}"
    )
    for label, text in (
        ("made of ", version.parent),
        ("origin  ", version.origin),
        ("tags    ", ", ".join(version.tags)),
        ("notes   ", version.notes),
    ):
        if text:
            typer.echo(f"{label} {clean(text)}")
    for one in found:
        typer.echo("\n".join(certificate(one)))
    if not found:
        typer.echo("no certificate")


@app.command()
def log(
    name: Annotated[str | None, typer.Argument(help="A model; without it, everything.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the newest events.")] = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Show what was done, the newest first. Each entry's digest covers the one before it."""
    from fairkit_cli.registry_text import columns

    with _open(registry) as store:
        events = store.log(name, limit=limit)
    if format is Format.json:
        _print_json([event.to_dict() for event in events])
        return
    rows = []
    for event in events:
        version = event.body.get("version")
        what = f"{event.name}@{version}" if version else str(event.name)
        told = {"promote": f"-> {event.body.get('alias')}", "alias": f"{event.body.get('alias')}: policy"}
        more = (
            told.get(event.action) or str(event.body.get("certificate") or event.body.get("model", ""))[:12]
        )
        rows.append(
            (
                str(event.seq),
                event.at[:19],
                event.action,
                what,
                more,
                str(event.body["by"]),
                event.digest[:12],
            )
        )
    typer.echo(columns(("event", "at", "action", "what", "", "by", "digest"), rows))


@app.command()
def diff(
    before: Annotated[str, typer.Argument(help="Such as credit@1.")],
    after: Annotated[str, typer.Argument(help="Such as credit@2.")],
    registry: RegistryOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Set two versions side by side: findings with intervals, operators and sizes."""
    from fairkit_cli.registry_text import columns, comparisons, size
    from fairkit_registry.difference import diff as compare

    with _open(registry) as store:
        result = compare(store, before, after)
    if format is Format.json:
        _print_json(result.to_dict())
        return
    one, other = result.before.reference, result.after.reference
    if result.findings:
        typer.echo(comparisons(result.findings, one, other) + "\n")
    graphs = result.graphs
    rows = [
        ("file", size(result.before.size), size(result.after.size)),
        ("operators", *(str(sum(graph.operators.values())) for graph in graphs)),
        ("weights", *(str(graph.weights) for graph in graphs)),
        *((name, str(pair[0]), str(pair[1])) for name, pair in result.operators.items()),
    ]
    typer.echo(columns(("graph", one, other), rows))
    for note in result.notes:
        typer.echo(f"note: {note}")


@app.command()
def alias(
    name: Annotated[str | None, typer.Argument(help="The model.")] = None,
    alias: Annotated[
        str | None, typer.Argument(help="The alias; without it, all aliases of the model.")
    ] = None,
    *,
    key: KeysOption = None,
    maximum: Annotated[
        list[str] | None, typer.Option("--max", help="Rule METRIC:COLUMN=X (repeatable).")
    ] = None,
    minimum: Annotated[
        list[str] | None, typer.Option("--min", help="Rule METRIC:COLUMN=X (repeatable).")
    ] = None,
    max_age_days: Annotated[float | None, typer.Option(min=0, help="Oldest audit that counts.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="The table the audit must be on: a file, or its content's SHA-256."),
    ] = None,
    no_worse: Annotated[
        list[str] | None,
        typer.Option(
            help="A metric (METRIC, METRIC:COLUMN or all) not worse than the holder's beyond noise."
        ),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Least confidence of the audit's intervals.")
    ] = None,
    check: Annotated[
        list[str] | None, typer.Option(help="A plugin's promotion check that must agree.")
    ] = None,
    open_: Annotated[
        bool | None, typer.Option("--open/--closed", help="Open: no certificate needed.")
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Forget the policy before applying the options.")
    ] = False,
    registry: RegistryOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Show aliases, or make one and set what it asks for. Options replace the parts that they name."""
    changes: dict[str, Any] = {
        "keys": None if key is None else tuple(one.pem for one in _keys(key)),
        "rules": _rules(maximum, minimum),
        "max_age_days": max_age_days,
        "data": None if data is None else tuple(_data_digest(one) for one in data),
        "no_worse": None if no_worse is None else tuple(no_worse),
        "confidence": confidence,
        "checks": None if check is None else tuple(check),
        "open": open_,
    }
    given = {part: value for part, value in changes.items() if value is not None}
    with _open(registry) as store:
        if name is not None and alias is not None and (given or clear or store.alias(name, alias) is None):
            shown = [store.set_alias(name, alias, _changed(store, name, alias, given, clear=clear))]
        else:
            if given or clear:
                from fairkit.errors import FairkitError

                raise FairkitError("a policy belongs to one alias: fairkit registry alias NAME ALIAS ...")
            if name is not None:
                store.version(name)
            shown = [one for one in store.aliases(name) if alias in (None, one.alias)]
    if format is Format.json:
        _print_json([one.to_dict() for one in shown])
        return
    from fairkit_cli.registry_text import columns, policy

    rows = [
        (
            f"{one.name}@{one.alias}",
            "-" if one.version is None else f"{one.name}@{one.version}",
            policy(one.policy),
        )
        for one in shown
    ]
    typer.echo(columns(("alias", "points to", "asks for"), rows))


def _rules(maximum: list[str] | None, minimum: list[str] | None) -> tuple[dict[str, Any], ...] | None:
    from fairkit.policy import Rule

    if maximum is None and minimum is None:
        return None
    rules = [Rule.parse(text, "max") for text in maximum or ()] + [
        Rule.parse(text, "min") for text in minimum or ()
    ]
    return tuple(rule.to_dict() for rule in rules)


def _data_digest(text: str) -> str:
    from fairkit_registry.blobs import is_digest

    if is_digest(text):
        return text
    from fairkit.data import load_data

    return load_data(text).sha256


def _changed(store: Registry, name: str, alias: str, given: dict[str, Any], *, clear: bool) -> AliasPolicy:
    from dataclasses import replace

    from fairkit.errors import ParameterError
    from fairkit_registry.policies import AliasPolicy

    if not 0 < given.get("confidence", 0.95) < 1:
        raise ParameterError(f"--confidence {given['confidence']} is not between 0 and 1; 0.95 is usual")
    held = store.alias(name, alias)
    return replace(AliasPolicy() if held is None or clear else held.policy, **given)


@app.command()
def promote(
    reference: Annotated[str, typer.Argument(help="The version, such as credit@7.")],
    alias: Annotated[str, typer.Argument(help="Such as production.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say whether it would be promoted.")
    ] = False,
    registry: RegistryOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Point an alias to a version, if the alias's policy allows it. A refusal gives all reasons at once."""
    from fairkit_registry.promotion import evaluate
    from fairkit_registry.promotion import promote as decide

    with _open(registry) as store:
        decision = (evaluate if dry_run else decide)(store, reference, alias)
    if format is Format.json:
        _print_json(decision.to_dict() | {"promoted": decision.verdict == "pass" and not dry_run})
    else:
        _print_decision(decision, dry_run=dry_run)
    raise typer.Exit(VERDICT_CODES[decision.verdict])


def _print_decision(decision: Decision, *, dry_run: bool) -> None:
    from fairkit_cli.registry_text import clean

    target = f"{decision.version.name}@{decision.alias.alias}"
    if decision.verdict == "pass":
        was = (
            "nothing"
            if decision.alias.version is None
            else f"{decision.version.name}@{decision.alias.version}"
        )
        verb = "would point" if dry_run else "points"
        typer.echo(f"{target} {verb} to {decision.version.reference} (before: {was})")
    else:
        word = "refused" if decision.verdict == "fail" else "not decided"
        typer.echo(f"{word}: {decision.version.reference} was not promoted to {decision.alias.alias}")
    for reason in decision.reasons:
        typer.echo(f"  {reason.kind}: {clean(reason.text)}")


@app.command()
def verify(
    reference: Annotated[str, typer.Argument(help="A version, NAME@ALIAS, or an exported archive (a file).")],
    key: KeysOption = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Check a version's file and certificates against keys that you trust.

    Without --key the keys count that the model's aliases trust. NAME@ALIAS is also held against the
    alias's policy again.
    """
    from fairkit_cli import registry_verify

    if Path(reference).is_file():
        outcome = registry_verify.archive(Path(reference), _keys(key))
    else:
        with _open(registry) as store:
            outcome = registry_verify.version(store, reference, _keys(key))
    if format is Format.json:
        _print_json(outcome.to_dict())
    else:
        typer.echo(outcome.text())
    raise typer.Exit(outcome.code)


@app.command()
def export(
    references: Annotated[list[str], typer.Argument(help="Models (all versions) or versions.")],
    output: Annotated[Path, typer.Option("--output", help="The archive: an OCI image layout in a tar file.")],
    key: Annotated[
        list[Path] | None, typer.Option("--key", help="Public key to put in (repeatable).")
    ] = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Write models, certificates and public keys to one archive that any OCI registry can hold."""
    from fairkit_cli.registry_text import size
    from fairkit_registry.archive import export as write

    with _open(registry) as store:
        versions = write(store, references, output, keys=_keys(key))
    if format is Format.json:
        _print_json({"archive": str(output), "versions": [version.to_dict() for version in versions]})
        return
    names = ", ".join(version.reference for version in versions[:8]) + (", ..." if len(versions) > 8 else "")
    typer.echo(f"{output}  {size(output.stat().st_size)}  {names}")


@app.command("import")
def import_archive(
    archive: Annotated[Path, typer.Argument(help="An archive that `export` wrote.")],
    *,
    name: Annotated[str | None, typer.Option(help="Another name for the model.")] = None,
    key: Annotated[
        list[Path] | None, typer.Option("--key", help="Refuse what is not signed with this key (repeatable).")
    ] = None,
    max_bytes: Annotated[int | None, typer.Option(min=1, help="The most that the archive may hold.")] = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Add every version of an archive, all or none. Keys in the archive are never trusted."""
    from fairkit_registry import importing

    with _open(registry, create=True) as store:
        found = importing.import_archive(
            store, archive, name=name, trusted=_keys(key), most_bytes=max_bytes or importing.MOST_BYTES
        )
    if format is Format.json:
        _print_json([one.to_dict() for one in found])
        return
    for one in found:
        here = "" if one.version is None else one.version.reference
        state = "" if one.new else "  (already here)"
        vouched = "signed by a trusted key" if key else "signatures not checked (no --key)"
        typer.echo(f"{one.origin} -> {here}{state}  {vouched if one.certificates else 'no certificate'}")
    carried = sorted({keyid for one in found for keyid in one.carried_keys})
    if carried:
        typer.echo(
            f"the archive carries the public keys {', '.join(keyid[:16] for keyid in carried)}; they "
            "are not trusted: "
            "get the signer's key from the signer",
            err=True,
        )


@app.command()
def check(
    head: Annotated[
        str | None, typer.Option(help="Digest of an event noted down before; it must still be in the log.")
    ] = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Hash every blob again, follow every reference, walk the chain of events."""
    from fairkit_cli.registry_text import size
    from fairkit_registry.maintenance import check as look

    with _open(registry) as store:
        result = look(store, head=head)
    if format is Format.json:
        _print_json(result.to_dict())
    else:
        for text in result.problems:
            typer.echo(f"problem: {text}")
        for text in result.notes:
            typer.echo(f"note: {text}")
        state = "clean" if not result.problems else f"{len(result.problems)} problems"
        typer.echo(
            f"{state}: {result.versions} versions, {result.blobs} blobs ({size(result.size)}), "
            f"{result.events} events, "
            f"head {result.head}"
        )
    raise typer.Exit(1 if result.problems else 0)


@app.command()
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    registry: RegistryOption = None,
    format: FormatOption = Format.table,
) -> None:
    """Remove files that nothing refers to: what processes left that were killed."""
    from fairkit_cli.registry_text import size
    from fairkit_registry.maintenance import gc as collect

    with _open(registry) as store:
        removed = collect(store, dry_run=dry_run)
    if format is Format.json:
        _print_json(removed.to_dict() | {"dry_run": dry_run})
        return
    verb = "would remove" if dry_run else "removed"
    typer.echo(f"{verb} {len(removed.files)} files, {size(removed.size)}")
