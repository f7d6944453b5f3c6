"""`fairkit verify`: does a certificate hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fairkit.errors import FairkitError
from fairkit_cli import options as opt
from fairkit_cli.fields import as_options
from fairkit_cli.terminal.output import FAILED, INCONCLUSIVE, PASSED, echo, exit_code, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairkit.data.source import Source
    from fairkit_registry.evidence.certificate import Certificate
    from fairkit_registry.evidence.revoked import Revocations


@dataclass(slots=True)
class _Checked:
    """What `verify` found out, one step after the other."""

    certificate: Certificate | None = None
    held: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    failed: str | None = None

    @property
    def verdict(self) -> str | None:
        return None if self.certificate is None or self.failed else self.certificate.report.verdict

    @property
    def code(self) -> int:
        code = FAILED if self.failed else exit_code(self.verdict)
        return INCONCLUSIVE if code == PASSED and self.doubts else code

    def to_dict(self) -> dict[str, Any]:
        return {
            "verified": self.failed is None,
            "held": list(self.held),
            "doubts": list(self.doubts),
            "failed": self.failed,
            "verdict": self.verdict,
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }


@opt.expanded
def verify(
    certificate: Annotated[
        str, typer.Argument(metavar="CERT", help="The certificate, or a model: oci://HOST/REPOSITORY:TAG.")
    ],
    *,
    keys: Annotated[list[Path], opt.option("--key", "PUB", "Public key that you trust (repeatable).")],
    model: Annotated[str | None, opt.option("--model", "MODEL.onnx", "The model it must be about.")] = None,
    data: Annotated[str | None, opt.option("--data", "FILE", "The data it must be about.")] = None,
    join: Annotated[
        str | None,
        typer.Option("--join", metavar="FILE", help="The other table, where the audit took columns of one."),
    ] = None,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Repeat the whole audit and compare every number.")
    ] = False,
    endpoint: Annotated[
        str | None,
        opt.option("--endpoint", "URL", "The server to ask again, where it is about an endpoint's answers."),
    ] = None,
    revocations: opt.RevocationLists = None,
    revoker: opt.Revokers = None,
    timestamp_root: opt.TimestampRoots = None,
    max_age: opt.MaxAge = None,
    sandbox: opt.SandboxOptions,
    output_format: opt.TableFormat = "table",
) -> None:
    """Check a certificate: signature, revocation, model, data and, with --recompute, every number in it.

    A certificate that holds and says that the policy failed gives exit code 1, as an audit does. With --max-age every
    key that signed must have a revocation list of that age at most, else exit code 3.
    """
    from fairkit_registry.evidence.certificate import read_file
    from fairkit_registry.evidence.keys import load_public
    from fairkit_registry.evidence.timestamps import read_roots
    from fairkit_registry.oci.address import is_address

    if is_address(certificate):
        others = (
            model,
            data,
            join,
            endpoint,
            revocations,
            revoker,
            timestamp_root,
            max_age,
            recompute or None,
        )
        _verify_remote(certificate, keys, others, output_format)
    if recompute and data is None:
        raise FairkitError(
            "--recompute needs --data, and --model if there is one: it repeats the audit on them"
        )
    if endpoint is not None and not recompute:
        raise FairkitError("--endpoint is asked by --recompute only; add it, or leave --endpoint out")
    age = None if max_age is None else opt.read_age(max_age)
    raw = read_file(Path(certificate))
    trusted = [load_public(path) for path in keys]
    known = opt.known_revocations(revocations, trusted, [load_public(path) for path in revoker or ()])
    roots = read_roots(timestamp_root or ())
    checked = _check(
        raw, trusted, model, data, known, roots=roots, recompute=recompute, endpoint=endpoint, join=join
    )
    if age is not None and not isinstance(known, str) and checked.certificate is not None:
        checked.doubts += tuple(known.stale(checked.certificate.keyids, datetime.now(UTC), age))
    if output_format == "json":
        print_json(checked.to_dict())
    else:
        echo(*_lines(Path(certificate), checked))
    raise typer.Exit(checked.code)


def _verify_remote(address: str, keys: list[Path], others: tuple[Any, ...], output_format: str) -> NoReturn:
    from fairkit_cli.registry.verify import remote
    from fairkit_registry.evidence.keys import load_public

    if any(one is not None for one in others):
        raise FairkitError(
            "the model and all that refers to it are read from the OCI registry; for other options pull it first: "
            f"fairkit registry pull {address}"
        )
    outcome = remote(address, [load_public(path) for path in keys])
    if output_format == "json":
        print_json(outcome.to_dict())
    else:
        echo(*outcome.lines())
    raise typer.Exit(outcome.code)


def _check(
    raw: bytes,
    trusted: list[Any],
    model: str | None,
    data: str | None,
    known: Revocations | str,
    *,
    roots: Sequence[str],
    recompute: bool,
    endpoint: str | None = None,
    join: str | None = None,
) -> _Checked:
    from fairkit.data.sources import open_source
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.certificate import verify as verify_certificate

    if isinstance(known, str):
        return _Checked(failed=as_options(known))
    checked = _Checked(doubts=tuple(known.overdue(datetime.now(UTC))))
    digest = None if model is None else _model_digest(model)
    try:
        found = checked.certificate = verify_certificate(
            raw, trusted, model_sha256=digest, revocations=known, timestamp_roots=roots
        )
        checked.held += (f"signature by {', '.join(keyid[:16] for keyid in found.keyids)}",)
        if found.proven_at is not None:
            checked.held += (f"signed no later than {found.proven_at:%Y-%m-%d %H:%M:%S} UTC, by a timestamp",)
        if found.model_sha256 is None:
            at = found.report.model.endpoint.get("url")
            about = f"answers of {at}: no file of the model" if at else "predictions in a table: no model"
            checked.held += (f"about {about} was seen",)
        elif model is not None:
            checked.held += (f"about the model {found.model_sha256[:16]}",)
        if recompute and model is None and found.model_sha256 is not None:
            raise FairkitError("--recompute needs --model too: the certificate is about a model")
        checked.held += tuple(_signed_tables(found, trusted))
        checked.held += tuple(_locked(found, trusted))
        # a query is asked once, for the digest and for the numbers
        table = None if data is None else open_source(data)
        if table is not None:
            _check_data(checked, found, table)
        if join is not None:
            _check_join(checked, found, join)
        if recompute:
            _recompute(checked, found, model, table, endpoint, join)
    except CertificateError as error:
        checked.failed = as_options(str(error))
    return checked


def _model_digest(model: str) -> str:
    from fairkit_cli.config import load_config
    from fairkit_cli.names import model_file
    from fairkit_registry.blobs import hash_file

    return hash_file(model_file(model, load_config()))


def _signed_tables(found: Certificate, trusted: list[Any]) -> Iterator[str]:
    """Say which of the trusted keys have signed a statement about the table."""
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.tables import verify_statement

    for raw in found.table_statements:
        try:
            one = verify_statement(raw, trusted, data_sha256=found.report.data.sha256)
        except CertificateError:
            continue
        purpose = f": {one.purpose}" if one.purpose else ""
        yield f"the table {one.name} signed by {', '.join(keyid[:16] for keyid in one.keyids)}{purpose}"


def _locked(found: Certificate, trusted: list[Any]) -> Iterator[str]:
    """Say whether a trusted key has locked the policy beforehand; that the audit is the lock's was checked already."""
    from fairkit_registry.errors import CertificateError
    from fairkit_registry.evidence.locks import verify_lock

    if found.policy_lock is None:
        return
    try:
        lock = verify_lock(found.policy_lock, trusted)
    except CertificateError:
        return
    keys = ", ".join(keyid[:16] for keyid in lock.keyids)
    yield f"by the policy lock {lock.statement_sha256[:12]} of {lock.locked_at:%Y-%m-%d %H:%M} UTC, signed by {keys}"


def _check_data(checked: _Checked, found: Certificate, data: Source) -> None:
    from fairkit.data.loading import load_data
    from fairkit_registry.errors import VerificationError
    from fairkit_registry.evidence.certificate import check_data

    seen = load_data(data).learn()  # the digest is over columns, types and values: no roles are needed for it
    stated = found.report.data
    if seen.sha256 != stated.sha256 and seen.unordered == stated.source.get("unordered"):
        raise VerificationError(
            "the data are the rows that were signed in another order, and the order is part of their digest: give the "
            "query an ORDER BY that leaves no choice, and certify again"
        )
    check_data(found, seen.sha256)
    checked.held += (f"about the data {found.report.data.sha256[:16]}",)


def _check_join(checked: _Checked, found: Certificate, join: str) -> None:
    from fairkit.data.loading import load_data
    from fairkit_registry.errors import VerificationError

    digest, stated = load_data(join).learn().sha256, found.report.data.joined.get("sha256")
    if digest != stated:
        of = "no other table" if stated is None else f"the content {str(stated)[:16]}..."
        raise VerificationError(
            f"the joined table is another one: the certificate names {of}, not {digest[:16]}..."
        )
    checked.held += (f"about columns of the table {digest[:16]}",)


def _recompute(
    checked: _Checked,
    found: Certificate,
    model: str | None,
    data: Any,
    endpoint: str | None,
    join: str | None,
) -> None:
    from fairkit_cli.config import load_config
    from fairkit_cli.names import model_file
    from fairkit_cli.progress import progress_bar
    from fairkit_registry.evidence.recompute import recompute
    from fairkit_registry.evidence.settings import SignedSettings

    stated = found.settings.get("endpoint", {}).get("url")
    if stated != endpoint:  # what a certificate names is never asked unless the user names it too
        raise FairkitError(
            f"the certificate is about answers of {stated or 'no endpoint'}; to ask again, name that address: "
            f"--endpoint {stated}"
            if stated
            else "the certificate is about no endpoint; leave out --endpoint"
        )
    dataset = SignedSettings.from_dict(found.settings).open_data(data, join)
    with progress_bar() as progress:
        file = None if model is None else model_file(model, load_config())
        again = recompute(found, file, dataset, progress=progress)
    checked.held += (f"all {len(again.findings)} findings, computed again",)


def _lines(path: Path, checked: _Checked) -> list[str]:
    from fairkit_cli.text.registry import certificate as describe

    lines = [f"{path}: {'refused' if checked.failed else 'verified'}"]
    lines += [f"  holds: {text}" for text in checked.held]
    lines += [f"  cannot be decided: {text}" for text in checked.doubts]
    if checked.failed:
        lines.append(f"  does not hold: {checked.failed}")
    elif checked.certificate is not None:
        lines += [f"  {line}" for line in describe(checked.certificate)]
        lines += [f"  rule: {as_options(rule.reason)}" for rule in checked.certificate.report.policy]
    return lines
