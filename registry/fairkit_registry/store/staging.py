"""Files on their way into the store."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairkit_registry.blobs import BlobStore, Staged, chunks
from fairkit_registry.errors import RegistryError
from fairkit_registry.evidence.certificate import check_subject, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def staging_in(blobs: BlobStore) -> Iterator[Staging]:
    """Collect files under temporary names; what was not kept at the end is removed."""
    staging = Staging(blobs)
    try:
        yield staging
    finally:
        for one in staging.all:
            one.discard()


class Staging:
    """Remembers what it staged, so that whatever is not kept is removed."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs
        self.all: list[Staged] = []

    def file(self, path: Path) -> Staged:
        """Copy a file."""
        try:
            handle = path.open("rb")
        except OSError as error:
            raise RegistryError(f"cannot read {path}: {error.strerror or error}") from None
        with handle:
            return self.take(self.blobs.stage(chunks(handle)))

    def certificate(self, path: Path, model: str) -> Staged:
        """Copy a certificate, if it is one and is about the model."""
        raw = read_file(path)
        check_subject(raw, model, where=str(path))
        return self.take(self.blobs.stage([raw]))

    def take(self, staged: Staged) -> Staged:
        """Remember a staged file, so that it is removed if it is not kept."""
        self.all.append(staged)
        return staged
