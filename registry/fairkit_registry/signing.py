"""Certificates from Python: sign what an audit finds, and check what others signed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.settings import AuditSettings
from fairkit.support.files import check_writable, write_atomic
from fairkit_registry.errors import CertificateError
from fairkit_registry.evidence.certificate import Certificate, read_file
from fairkit_registry.evidence.certificate import verify as verified
from fairkit_registry.evidence.signers import load_public, load_secret, nobody_answers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit.data.dataset import Dataset


def certify(
    model: Any,
    data: Dataset,
    *,
    key: str | Path | Sequence[str | Path],
    output: str | Path,
    settings: AuditSettings | None = None,
    about: Mapping[str, str] | None = None,
    passphrase: str | None = None,
    valid_days: float | None = None,
    **named: Any,
) -> Certificate:
    """Audit a model, sign what is found whatever the verdict, and write the certificate: ``fairkit certify``."""
    from fairkit_onnx.file import OnnxModel
    from fairkit_registry.evidence.recompute import certify as signed
    from fairkit_registry.evidence.settings import SignedSettings

    if not (model is None or isinstance(model, OnnxModel | str | Path | bytes)):
        raise CertificateError(
            f"a {type(model).__name__} in memory has no digest that a certificate could name: write it as a file "
            "first, with fairkit.to_onnx(model, X, path)"
        )
    answer = (lambda _: passphrase) if passphrase is not None else nobody_answers
    secrets = [load_secret(path, passphrase=answer) for path in ([key] if isinstance(key, str | Path) else key)]
    target = Path(output)
    check_writable(target)
    chosen = SignedSettings.of_audit(AuditSettings.of(named, settings), data.roles.to_dict())
    loaded = model if model is None or isinstance(model, OnnxModel) else OnnxModel.load(model)
    raw, _ = signed(loaded, data, chosen, secrets, about=about, valid_days=valid_days)
    write_atomic(target, raw)
    return verified(raw, [secret.public for secret in secrets])


def verify(
    certificate: str | Path,
    *,
    key: str | Path | Sequence[str | Path],
    model: str | Path | None = None,
    data: Dataset | None = None,
) -> Certificate:
    """Check a certificate file: ``fairkit verify``. What it returns holds, as far as the keys are trusted."""
    from fairkit_onnx.file import OnnxFile

    keys = [load_public(path) for path in ([key] if isinstance(key, str | Path) else key)]
    digest = None if model is None else OnnxFile.load(model).sha256
    table = None if data is None else data.learn().sha256
    return verified(read_file(certificate), keys, model_sha256=digest, data_sha256=table)
