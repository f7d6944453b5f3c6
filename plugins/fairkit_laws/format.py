"""The format of packs: TOML in, tables and gaps out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.packs import PackFormat
from fairkit_laws.files import read_facts, read_pack
from fairkit_laws.rendering import render

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
    ) -> Rendering:
        """Fill a pack; see `fairkit_laws.rendering.render`."""
        return render(pack, report, facts, certificate, today=today)
