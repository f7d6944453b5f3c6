"""`fairkit registry probation`: what the served decisions say about the version that an alias points to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.fields import as_options
from fairkit_cli.registry.common import RegistryOption, open_registry
from fairkit_cli.terminal.output import FAILED, PASSED, echo, print_json

if TYPE_CHECKING:
    from fairkit_registry.evidence.probation import EvidenceKind, Probation


def probation(
    reference: Annotated[str, typer.Argument(metavar="NAME@ALIAS", help="Such as credit@production.")],
    *,
    watch: Annotated[
        list[Path] | None,
        opt.option(
            "--watch", "FILE", "A watch's signed statements, its file heartbeats.jsonl, to take in (repeatable)."
        ),
    ] = None,
    attestation: Annotated[
        list[Path] | None,
        opt.option(
            "--attestation", "FILE", "A signed attestation, from `fairkit attest --output`, to take in (repeatable)."
        ),
    ] = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Take in signed evidence about served decisions, and show the state of an alias's probation.

    Where it has ended without success, the alias is taken back, which the log says. Exit codes: 0 it runs or was kept,
    1 it has ended or a file does not count.
    """
    from fairkit_registry import names
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.promotion.demotion import settle_probation
    from fairkit_registry.promotion.probation import take_evidence

    wanted = names.parse(reference)
    if wanted.alias is None:
        raise FairkitError(f"{reference} is no alias: name it as NAME@ALIAS, such as credit@production")
    files: list[tuple[EvidenceKind, Path]] = [
        *(("watch", path) for path in watch or ()),
        *(("attestation", path) for path in attestation or ()),
    ]
    with open_registry(registry) as store:
        if store.alias(wanted.name, wanted.alias) is None:
            store.version(wanted)  # says what there is
        try:
            if files:
                take_evidence(store, wanted.name, wanted.alias, files)
        except CertificateError as error:
            echo(f"refused: {as_options(str(error))}; nothing was taken in")
            raise typer.Exit(FAILED) from None
        pointer = store.alias(wanted.name, wanted.alias)
        state = None if pointer is None else store.probation(pointer)
        taken_back = settle_probation(store, wanted.name, wanted.alias)
    fallen = state is not None and state.state == "fallen"
    if output_format == "json":
        record = {"taken_back": None if taken_back is None else taken_back.to_dict()}
        print_json({"alias": reference, "probation": None if state is None else state.to_dict()} | record)
    else:
        echo(f"{reference}: {sentence(state)}")
        if taken_back is not None:
            echo(f"{taken_back.name}@{taken_back.version} was taken back: {taken_back.reason}")
    raise typer.Exit(FAILED if fallen else PASSED)


def sentence(state: Probation | None) -> str:
    """Say the state of a probation."""
    if state is None:
        return "not on probation"
    if state.state == "running":
        return state.reason
    verb = "kept" if state.state == "kept" else "ended without success"
    return f"probation {verb} on {state.day}: {state.reason}"
