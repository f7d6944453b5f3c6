"""`fairkit verify`: does a certificate hold."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import print_as, say

if TYPE_CHECKING:
    from fairkit.data.source import Source
    from fairkit_registry.evidence.certificate import Certificate, Verification


@opt.expanded
def verify(
    certificate: Annotated[str | None, typer.Argument(metavar="CERT", help="The certificate.")] = None,
    *,
    keys: Annotated[
        list[Path] | None, opt.option("--key", "PUB", "Public key that you trust (repeatable); required.")
    ] = None,
    model: Annotated[str | None, opt.option("--model", "MODEL.onnx", "The model it must be about.")] = None,
    data: Annotated[str | None, opt.option("--data", "FILE", "The data it must be about.")] = None,
    join: Annotated[
        str | None, opt.option("--join", "FILE", "The other table, where the audit took columns of one.")
    ] = None,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Repeat the whole audit and compare every number.")
    ] = False,
    endpoint: Annotated[
        str | None, opt.option("--endpoint", "URL", "The server to ask again, where it is about an endpoint's answers.")
    ] = None,
    sandbox: opt.SandboxOptions,
    output_format: opt.TableFormat = "table",
    page: Annotated[
        Path | None,
        opt.option("--page", "FILE", "Write the page that checks certificates in a browser, offline; alone."),
    ] = None,
) -> None:
    """Check a certificate: signature, validity, model, data and, with --recompute, every number in it.

    A certificate that holds and says that the policy failed gives exit code 1, as an audit does. What a registry has
    revoked, `fairkit registry verify` heeds.
    """
    from fairkit.data.sources import open_source
    from fairkit_cli.names import refuse_remote
    from fairkit_cli.registry.common import load_keys
    from fairkit_cli.text.verified import code_of, lines, record
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.certificate import check, read_file

    if page is not None:
        unused = (certificate, keys, model, data, join, endpoint)
        _write_page(page, unused, recompute=recompute)
        return
    if certificate is None or not keys:
        missing = "argument CERT" if certificate is None else "option --key"
        raise FairkitError(f"Missing {missing}: fairkit verify CERT --key PUB; keys inside a certificate never count")
    refuse_remote(certificate)
    if recompute and data is None:
        raise FairkitError("--recompute needs --data, and --model if there is one: it repeats the audit on them")
    if endpoint is not None and not recompute:
        raise FairkitError("--endpoint is asked by --recompute only; add it, or leave --endpoint out")
    raw = read_file(Path(certificate))
    digest = None if model is None else _model_digest(model)
    outcome = check(raw, load_keys(keys), model_sha256=digest)
    if outcome.error is None and outcome.certificate is not None:
        signed = outcome.certificate
        if recompute and model is None and signed.model_sha256 is not None:
            raise FairkitError("--recompute needs --model too: the certificate is about a model")
        # a query is asked once, for the digest and for the numbers
        table = None if data is None else open_source(data)
        try:
            with nullcontext() if table is None else closing(table):
                if table is not None:
                    _check_data(outcome, signed, table)
                if join is not None:
                    _check_join(outcome, signed, join)
                if recompute:
                    _recompute(outcome, signed, model, table, endpoint, join)
        except CertificateError as error:
            outcome.error = error
    print_as(output_format, record(outcome), *lines(str(Path(certificate)), outcome))
    raise typer.Exit(code_of(outcome))


def _write_page(page: Path, others: tuple[Any, ...], *, recompute: bool) -> None:
    from fairkit.support.files import check_writable, write_atomic
    from fairkit_cli.verifier.bundle import page as verifier_page

    if recompute or any(one is not None for one in others):
        raise FairkitError(
            "--page writes the page for everybody and checks nothing; leave the certificate and other options out"
        )
    check_writable(page)
    write_atomic(page, verifier_page())
    say(f"wrote {page}")


def _model_digest(model: str) -> str:
    from fairkit_cli.config import load_config
    from fairkit_cli.names import model_file
    from fairkit_registry.blobs import hash_file

    return hash_file(model_file(model, load_config()))


def _check_data(outcome: Verification, certificate: Certificate, data: Source) -> None:
    from fairkit.data.loading import load_data
    from fairkit_registry.errors import VerificationError
    from fairkit_registry.evidence.certificate import check_data

    stated = certificate.report.data
    if "counts" in stated.source:
        _check_counts(outcome, certificate, data)
        return
    seen = load_data(data).learn()  # the digest is over columns, types and values: no roles are needed for it
    if seen.sha256 != stated.sha256 and seen.unordered == stated.source.get("unordered"):
        raise VerificationError(
            "the data are the rows that were signed in another order, and the order is part of their digest: give the "
            "query an ORDER BY that leaves no choice, and certify again"
        )
    check_data(certificate, seen.sha256)
    outcome.held += (f"about the data {certificate.report.data.sha256[:16]}",)


def _check_counts(outcome: Verification, certificate: Certificate, data: Source) -> None:
    """Have the database count again: the digest is that of distinct rows and their counts."""
    from fairkit.engines.opening import opened
    from fairkit_registry.evidence.certificate import check_data
    from fairkit_registry.evidence.settings import SignedSettings

    settings = SignedSettings.from_dict(certificate.settings)
    with opened("sql") as running:
        seen = running.placed(settings.open_data(data), (), settings.options).learn(running.total)
    check_data(certificate, seen.sha256)
    outcome.held += (f"about the rows that the database counts again, {seen.sha256[:16]}",)


def _check_join(outcome: Verification, found: Certificate, join: str) -> None:
    from fairkit.data.loading import load_data
    from fairkit_registry.errors import VerificationError

    digest, stated = load_data(join).learn().sha256, found.report.data.joined.get("sha256")
    if digest != stated:
        of = "no other table" if stated is None else f"the content {str(stated)[:16]}..."
        raise VerificationError(f"the joined table is another one: the certificate names {of}, not {digest[:16]}...")
    outcome.held += (f"about columns of the table {digest[:16]}",)


def _recompute(
    outcome: Verification,
    certificate: Certificate,
    model: str | None,
    data: Any,
    endpoint: str | None,
    join: str | None,
) -> None:
    from fairkit_cli.config import load_config
    from fairkit_cli.names import model_file
    from fairkit_cli.terminal.console import progress_bar
    from fairkit_registry.evidence.recompute import recompute
    from fairkit_registry.evidence.settings import SignedSettings

    stated = certificate.settings.get("endpoint", {}).get("url")
    if stated != endpoint:  # what a certificate names is never asked unless the user names it too
        raise FairkitError(
            f"the certificate is about answers of {stated or 'no endpoint'}; to ask again, name that address: "
            f"--endpoint {stated}"
            if stated
            else "the certificate is about no endpoint; leave out --endpoint"
        )
    dataset = SignedSettings.from_dict(certificate.settings).open_data(data, join)
    with progress_bar() as progress:
        file = None if model is None else model_file(model, load_config())
        again = recompute(certificate, file, dataset, progress=progress)
    outcome.held += (f"all {len(again.findings)} findings, computed again",)
