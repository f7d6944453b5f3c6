"""`fairkit report`: a page from certificates that are checked first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairkit.errors import ParameterError
from fairkit_cli import options as opt
from fairkit_cli.packs import find_pack, read_facts_file, rendered
from fairkit_cli.terminal.output import FAILED, INCONCLUSIVE, PASSED, say, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit.packs import PackFile
    from fairkit_cli.evidence import Shown
    from fairkit_cli.html.monitoring import Monitoring
    from fairkit_registry.evidence.revoked import Revocations


def report(
    certificates: Annotated[
        list[Path], typer.Argument(metavar="CERT...", help="Certificates, from `fairkit certify`.")
    ],
    keys: Annotated[
        list[Path] | None,
        opt.option(
            "--key", "PUB", "Public key that you trust (repeatable). Without one no signature is checked."
        ),
    ] = None,
    pack: Annotated[
        str | None,
        opt.option(
            "--pack", "NAME", "Fill this law's rendering from one certificate: `fairkit packs` lists them."
        ),
    ] = None,
    facts: Annotated[
        Path | None,
        opt.option(
            "--facts", "FILE", "A TOML file with what no tool can know; with --pack. What lacks is a gap."
        ),
    ] = None,
    revocations: opt.RevocationLists = None,
    revoker: opt.Revokers = None,
    timestamp_root: opt.TimestampRoots = None,
    watched: Annotated[
        Path | None,
        opt.option("--watch", "FOLDER", "A watch of the newest certificate's model: adds what came since."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="With --pack: exit code 3 where an item is not answered.")
    ] = False,
    output_format: Annotated[
        str,
        opt.formats("html", "pdf: with --output", "markdown: with --pack", "csv: the tables, with --pack"),
    ] = "html",
    output: opt.Output = None,
) -> None:
    """Make a page from one or several certificates: versions over time, two models. Each is checked first.

    A page from evidence that does not hold says so in red, and the exit code is 1. With --pack it is what a law asks
    for, item by item; an item that is not answered is a visible gap, and with --strict the exit code is 3.
    """
    from fairkit.support.files import check_writable
    from fairkit_cli.evidence import read_evidence

    _check_asked(pack, facts, output_format, certificates, watched, strict=strict)
    if output_format == "pdf" and output is None:
        raise ParameterError("--format pdf needs --output FILE")
    if output is not None:
        check_writable(output)
    chosen = None if pack is None else find_pack(pack)
    stated = {} if chosen is None else read_facts_file(chosen, facts)
    known = _known(keys, revocations, revoker)
    shown = read_evidence(certificates, keys or (), known=known, roots=timestamp_root or ())
    if chosen is None:
        from fairkit_cli.html.certificates import evidence_page
        from fairkit_cli.options.about import today

        text, gaps = (
            evidence_page(shown, None if watched is None else monitored(watched, shown[-1]), today=today()),
            0,
        )
    else:
        text, gaps = _filled(chosen, stated, shown[0], output_format)
    if output_format == "pdf" and output is not None:
        from fairkit.support.files import write_atomic
        from fairkit_cli.html.pdf import as_pdf

        write_atomic(output, as_pdf(text))
        say(f"wrote {output}")
    else:
        write(lambda _: text, output)
    code = told(shown)
    raise typer.Exit(INCONCLUSIVE if code == PASSED and strict and gaps else code)


def _known(
    keys: Sequence[Path] | None, lists: Sequence[Path] | None, revokers: Sequence[Path] | None
) -> Revocations | str | None:
    from fairkit_registry.evidence.keys import load_public

    if not keys:
        if lists or revokers:
            raise ParameterError("--revocations and --revoker need --key: they are about signatures")
        return None
    trusted = [load_public(path) for path in keys]
    return opt.known_revocations(lists, trusted, [load_public(path) for path in revokers or ()])


def _check_asked(
    pack: str | None,
    facts: Path | None,
    output_format: str,
    certificates: Sequence[Path],
    watched: Path | None,
    *,
    strict: bool,
) -> None:
    if pack is None and (facts is not None or strict or output_format in ("markdown", "csv")):
        raise ParameterError("--facts, --strict, --format markdown and --format csv belong to --pack NAME")
    if pack is not None and len(certificates) != 1:
        raise ParameterError("--pack renders one certificate; name one")
    if pack is not None and watched is not None:
        raise ParameterError(
            "--watch adds a section to the page of certificates; a pack has none: leave one out"
        )


def monitored(folder: Path, newest: Shown) -> Monitoring:
    """Return what a page says of a watch of a certificate's model.

    Raises
    ------
    ParameterError
        The watch is about something else.
    """
    from fairkit_cli.html.monitoring import monitoring
    from fairkit_watch.snapshot import courses
    from fairkit_watch.watch import Watch

    with Watch.open(folder, write=False) as watch:
        settings = watch.book.settings
        own, certificate = newest.certificate.model_sha256, newest.certificate.sha256
        if certificate != settings.certificate and (own is None or own != settings.sha256):
            about = (
                f"the model {settings.sha256[:16]}"
                if settings.sha256
                else "no model that it knows the digest of"
            )
            raise ParameterError(
                f"the watch {str(folder)!r} is about {about}, and not about what {newest.name} certifies"
            )
        look = watch.look(None)
        return monitoring(look, courses(watch.judge, watch.data) if watch.data.days else ())


def _filled(
    pack: PackFile, facts: dict[str, str | bool], shown: Shown, output_format: str
) -> tuple[str, int]:
    """Return the rendering in a format, and the number of its gaps."""
    made = rendered(pack, shown, facts)
    for gap in made.gaps:
        say(f"not answered: {gap}")
    if output_format in ("html", "pdf"):
        from fairkit_cli.html.certificates import checked_banner
        from fairkit_cli.html.packs import pack_page

        return pack_page(made, [checked_banner(shown)]), len(made.gaps)
    from fairkit_cli.text.packs import pack_csv, pack_markdown

    text = pack_csv(made) if output_format == "csv" else pack_markdown(made, [shown.state])
    return text, len(made.gaps)


def told(shown: Sequence[Shown]) -> int:
    """Say on standard error what the checks said, and return the exit code."""
    for one in shown:
        if not one.signed:
            say(f"{one.name}: {one.state[0].lower()}{one.state[1:]}")
    return FAILED if any(one.failed for one in shown) else PASSED
