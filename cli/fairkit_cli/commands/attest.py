"""`fairkit attest`: is the model behind an endpoint the certified one?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import FAILED, PASSED, print_as, say

if TYPE_CHECKING:
    from collections.abc import Sequence


@opt.expanded
def attest(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server, as http://host:8000.")],
    *,
    asking: opt.AskingOptions,
    model: Annotated[
        str, opt.option("--model", "MODEL.onnx", "The file that it should run, or its name in the registry.")
    ],
    data: Annotated[str, opt.option("--data", "FILE", "Rows to send: like those that the endpoint gets.", opt.DATA)],
    features: Annotated[
        str | None, opt.option("--features", "A,B", "The columns that the model gets, in order.", opt.DATA)
    ] = None,
    rows: Annotated[
        int | None, opt.option("--rows", "N", "Send this many rows, drawn by --seed. Default: all.", opt.DATA, min=1)
    ] = None,
    certificate: Annotated[
        Path | None,
        opt.option("--certificate", "CERT", "The file's certificate, which is checked first (needs --trust)."),
    ] = None,
    trust: Annotated[
        list[Path] | None,
        opt.option("--trust", "PUB", "Public key that the certificate must be signed with (repeatable)."),
    ] = None,
    keys: Annotated[
        list[str] | None,
        opt.option("--key", "FILE", "Secret key to sign the result with (repeatable; needs --output)."),
    ] = None,
    insecure_key: opt.InsecureKey = False,
    output: Annotated[Path | None, opt.option("--output", "FILE", "The signed attestation (needs --key).")] = None,
    tolerance: Annotated[
        float, opt.option("--tolerance", "NUMBER", "Numbers nearer than this are equal; relative above 1.")
    ] = 1e-5,
    confidence: opt.Confidence = None,
    seed: opt.Seed = None,
    sandbox: opt.SandboxOptions,
    output_format: opt.TableFormat = "table",
    config: opt.ConfigFile = None,
) -> None:
    """Send rows to an endpoint and to a model's file, and count the answers that differ.

    Exit codes: 0 no answer differs, 1 answers differ or the certificate does not hold.
    """
    from fairkit.data.loading import load_data
    from fairkit.plugins import model_source
    from fairkit.support.files import check_writable, write_atomic
    from fairkit_cli.config import load_announced
    from fairkit_cli.subject import load_model
    from fairkit_cli.terminal.passphrases import load_signers
    from fairkit_cli.terminal.progress import progress_bar
    from fairkit_registry.evidence.attestations import sign_attestation

    if bool(keys) != (output is not None):
        raise FairkitError("a signed attestation needs both --key FILE and --output FILE")
    if certificate is not None and not trust:
        raise FairkitError("--certificate needs --trust PUB: the key that you trust to have signed it")
    if trust and certificate is None:
        raise FairkitError("--trust says who signed a certificate; name it with --certificate")
    secrets = load_signers(keys or (), insecure=insecure_key)
    if output is not None:
        check_writable(output)
    settings = load_announced(config)
    file = load_model(model, settings)
    certificate_digest = None if certificate is None else _checked(certificate, trust or (), file.sha256)
    dataset = load_data(data, features=opt.split_names(features))
    with progress_bar() as progress:
        endpoint = model_source("endpoint").open(asking.settings(url, settings))
        attestation = endpoint.attest(
            file,
            dataset,
            rows=rows,
            seed=0 if seed is None else seed,
            tolerance=tolerance,
            confidence=0.95 if confidence is None else confidence,
            progress=progress,
        )
    if output is not None:
        write_atomic(output, sign_attestation(attestation, secrets, certificate_sha256=certificate_digest))
    print_as(
        output_format,
        attestation.to_dict()
        | {"certificate": certificate_digest, "attestation": None if output is None else str(output)},
        *_lines(attestation, certificate_digest),
    )
    if output is not None:
        say(f"wrote the attestation {output}")
    raise typer.Exit(PASSED if attestation.matches else FAILED)


def _checked(path: Path, trust: Sequence[Path], sha256: str) -> str:
    """Check the file's certificate, and return its digest; one that does not hold ends the command with code 1."""
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.certificate import read_file, verify
    from fairkit_registry.evidence.keys import load_public

    raw = read_file(path)
    trusted = [load_public(key) for key in trust]
    try:
        return verify(raw, trusted, model_sha256=sha256).sha256
    except CertificateError as error:
        say(f"{path} does not hold: {error}")
        raise typer.Exit(FAILED) from error


def _lines(attestation: Any, certificate: str | None) -> list[str]:
    told: dict[str, Any] = attestation.endpoint
    version = f", version {told['version']}" if told["version"] else ""
    lines = [
        attestation.sentence,
        f"endpoint     {told['model']}{version} at {told['url']}",
        f"file         {attestation.model_name} {attestation.model_sha256[:16]}",
        f"rows         {attestation.rows:,} of {attestation.data_name} {attestation.data_sha256[:16]}",
        f"compared     {', '.join(attestation.compared)}",
    ]
    if attestation.not_compared:
        lines.append(f"not compared {', '.join(attestation.not_compared)}: the endpoint has no such output")
    if attestation.largest_gap is not None:
        lines.append(f"largest gap  {attestation.largest_gap:.3g} (equal up to {attestation.tolerance:g})")
    if attestation.differ:
        lines.append(
            f"other labels on {attestation.labels_differ:,} rows, other numbers on {attestation.numbers_differ:,}"
        )
    if certificate is not None:
        lines.append(f"certificate  {certificate[:16]} holds and is about this file")
    lines.append("This is about rows like these, at this time: an endpoint may answer otherwise tomorrow.")
    return lines
