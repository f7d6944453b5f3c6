"""Looking at what is to be added before there is a registry: a refusal leaves no empty one behind."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit_registry import names, onnxfile
from fairkit_registry.blobs import hash_file
from fairkit_registry.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairkit_registry.evidence.keys import PublicKey


def check_addition(name: str, file: Path, certificates: Sequence[Path], parent: str | None) -> None:
    """Refuse what `Registry.add` would refuse."""
    names.check_name(name)
    onnxfile.check_file(file)
    if parent is not None:
        raise RegistryError(f"the registry is new and has no {parent}: leave the parent out, or name another registry")
    if certificates:
        from fairkit_registry.evidence.certificate import check_subject, read_file

        digest = hash_file(file)
        for path in certificates:
            check_subject(read_file(path), digest, where=str(path))


def check_archive(path: Path, trusted: Sequence[PublicKey], most_bytes: int) -> None:
    """Refuse what `importing.import_archive` would refuse."""
    from fairkit_registry.exchange.importing import look_into

    with tempfile.TemporaryDirectory(prefix="fairkit-") as scratch:
        look_into(path, trusted, Path(scratch), most_bytes=most_bytes)
