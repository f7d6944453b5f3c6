"""The auditor's own sequence: every certificate of a key has a number, and a copy of each is kept.

A certificate names its number and the digest of the one before it. Who relies on certificates can then see that none is
missing: a bad one cannot be left out without a gap.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fairkit.support.files import write_atomic
from fairkit_registry.errors import CertificateError, RegistryError
from fairkit_registry.evidence.dsse import statement_sha256

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceNumber:
    """A certificate's place in the sequence of one key."""

    keyid: str  # the key
    number: int  # from 1, without gaps
    previous: str | None  # SHA-256 of the statement before it, however its certificate is wrapped; None for the first

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"keyid": self.keyid, "number": self.number, "previous": self.previous}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(keyid=record["keyid"], number=record["number"], previous=record["previous"])


def default_folder() -> Path:
    """Return where an auditor's certificates are kept by default: in the state folder of the user."""
    import platformdirs

    return Path(platformdirs.user_state_path("fairkit")) / "certificates"


class SequenceFolder:
    """Where an auditor keeps a copy of every certificate, numbered for each key."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_folder() if root is None else root

    @contextmanager
    def next(self, keyids: Sequence[str]) -> Iterator[Next]:
        """Hold the next number of each key until the block ends; others wait."""
        with ExitStack() as held:
            try:
                for keyid in sorted(set(keyids)):
                    folder = self.root / keyid
                    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                    held.enter_context(_locked(folder / "lock"))
                places = tuple(self._place(keyid) for keyid in dict.fromkeys(keyids))
            except CertificateError as error:
                raise RegistryError(
                    f"the certificate cannot be numbered: the newest one in {self.root} cannot be read ({error}); "
                    "restore it from a backup"
                ) from None
            except OSError as error:
                raise RegistryError(
                    f"the certificate cannot be numbered: {self.root}: {error.strerror or error}. Name a folder that "
                    "can be written with --sequence"
                ) from None
            yield Next(self.root, places)

    def _place(self, keyid: str) -> SequenceNumber:
        files = sorted((self.root / keyid).glob("????????.json"))
        if not files:
            return SequenceNumber(keyid=keyid, number=1, previous=None)
        previous = statement_sha256(files[-1].read_bytes())
        return SequenceNumber(keyid=keyid, number=int(files[-1].stem) + 1, previous=previous)


@dataclass(frozen=True, slots=True)
class Next:
    """The numbers that the next certificate gets."""

    root: Path
    places: tuple[SequenceNumber, ...]

    def keep(self, raw: bytes) -> None:
        """Keep a copy of the certificate under its numbers: from now on they are taken."""
        for place in self.places:
            write_atomic(self.root / place.keyid / f"{place.number:08d}.json", raw, replace=False)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process; without one where the system has none."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with path.open("ab") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
