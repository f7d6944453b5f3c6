"""`fairkit registry import`: versions from archives, and models that MLflow keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.registry.common import RegistryOption, arrival_line, load_keys, open_registry
from fairkit_cli.terminal.output import echo, print_json, say

TRACKED = "models:/"
"""The address of a model that MLflow keeps begins with this."""


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
    key: Annotated[
        list[Path] | None, typer.Option("--key", help="Refuse what is not signed with this key (repeatable).")
    ] = None,
    tracking_uri: Annotated[
        str | None,
        opt.option("--tracking-uri", "URI", "MLflow's server, for models:/...; default: MLFLOW_TRACKING_URI."),
    ] = None,
    max_bytes: Annotated[int | None, typer.Option(min=1, help="The most that the archive may hold.")] = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Add every version of an archive, all or none. Keys in the archive are never trusted.

    A model from MLflow becomes one file: tensors that lie in others are merged into it. It has no certificate yet.
    """
    if archive.startswith(TRACKED):
        if key or max_bytes:
            raise FairkitError(
                "--key and --max-bytes are about archives; a model from MLflow brings no certificates: certify it here"
            )
        _import_tracked(archive, name, tracking_uri, registry, output_format)
        return
    if tracking_uri is not None:
        raise FairkitError(f"--tracking-uri is about models:/...; {archive} is an archive")
    _import(Path(archive), name, key, max_bytes, registry, output_format)


def _import(
    archive: Path,
    name: str | None,
    key: list[Path] | None,
    max_bytes: int | None,
    registry: Path | None,
    output_format: str,
) -> None:
    from fairkit_registry.exchange import importing
    from fairkit_registry.exchange.preflight import check_archive

    trusted, most = load_keys(key), max_bytes or importing.MOST_BYTES
    with open_registry(registry, before=lambda: check_archive(archive, trusted, most)) as store:
        imported = importing.import_archive(store, archive, name=name, trusted=trusted, most_bytes=most)
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


def _import_tracked(uri: str, name: str | None, server: str | None, registry: Path | None, output_format: str) -> None:
    """Add a model that MLflow keeps."""
    import tempfile

    from fairkit.plugins import model_source

    with tempfile.TemporaryDirectory(prefix="fairkit-") as scratch:
        tracked = model_source("mlflow").open({"uri": uri, "folder": scratch, "server": server})
    tracked.check_name(name)
    with open_registry(registry, before=lambda: None) as store:
        done = tracked.add_to(store, name)
    if output_format == "json":
        print_json([done.to_dict()])
        return
    here = "" if done.version is None else done.version.reference
    merged = "  (tensors of other files merged)" if tracked.merged else ""
    echo(f"{uri} -> {here}{'' if done.new else '  (already here)'}{merged}  no certificate")
