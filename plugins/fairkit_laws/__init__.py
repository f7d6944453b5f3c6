"""What laws and house rules ask of an audit: packs as TOML, the tables that they name, and their rendering."""

from __future__ import annotations

from importlib import resources

import fairkit
from fairkit.packs import Pack

LAWS = (
    "california-ads", "colorado-admt", "colorado-insurance", "ecoa", "ecoa@2026-07-20", "eu-ai-act",
    "eu-ai-act-monitoring", "illinois", "new-jersey", "nyc-ll144", "sr-26-2", "texas", "ugesp", "uk",
)  # fmt: skip
"""The current packs, and the editions that are kept for audits of before a change."""


class _Law(Pack):
    """A law's pack among the files of this package."""

    @classmethod
    def text(cls) -> str:
        """Return the file's text."""
        return resources.files("fairkit_laws").joinpath("laws", f"{cls.name}.toml").read_text("utf-8")


@fairkit.hookimpl
def fairkit_packs() -> list[type[Pack]]:
    """Return one pack for each law."""
    return [
        type(f"Law{number}", (_Law,), {"name": name, "__doc__": f"The pack {name}.", "__module__": __name__})
        for number, name in enumerate(LAWS)
    ]
