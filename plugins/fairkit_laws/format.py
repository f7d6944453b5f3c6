"""The format of packs: TOML in, tables and gaps out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.packs import PackFormat
from fairkit_laws.clauses import LawFile
from fairkit_laws.files import read_facts, read_pack
from fairkit_laws.rendering import render
from fairkit_laws.validity import clause_record

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping

    from fairkit.packs import PackFile, Rendering
    from fairkit.results.report import Report


class Toml(PackFormat):
    """Packs as TOML, as `fairkit_laws.files` reads and `fairkit_laws.rendering` fills them."""

    name = "toml"

    @classmethod
    def read(cls, name: str, text: str) -> PackFile:
        """Read a pack; see `fairkit_laws.files.read_pack`."""
        return read_pack(name, text)

    @classmethod
    def read_facts(cls, pack: PackFile, record: Mapping[str, Any]) -> dict[str, str | bool]:
        """Check facts; see `fairkit_laws.files.read_facts`."""
        return read_facts(pack, record)

    @classmethod
    def render(
        cls,
        pack: PackFile,
        report: Report,
        facts: Mapping[str, str | bool],
        certificate: Mapping[str, Any],
        *,
        today: datetime.date,
        accepted: Mapping[str, str] | None = None,
        watch: Mapping[str, Any] | None = None,
    ) -> Rendering:
        """Fill a pack; see `fairkit_laws.rendering.render`."""
        return render(_law(pack), report, facts, certificate, today=today, accepted=accepted, watch=watch)

    @classmethod
    def clauses(cls, pack: PackFile, today: datetime.date) -> list[dict[str, Any]]:
        """Return a record of each clause; see `fairkit_laws.validity.clause_record`."""
        law = _law(pack)
        return [clause_record(item, today, retained=law.kept_until is not None) for item in law.items]


def _law(pack: PackFile) -> LawFile:
    """Return a pack that `read` made."""
    if not isinstance(pack, LawFile):
        raise TypeError(f"{pack.name!r} was not read by this format")
    return pack
