"""Versions of models as model cards, for people and for the Hugging Face Hub, and as bills of materials."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fairkit
from fairkit.exporters import Exporter

if TYPE_CHECKING:
    from fairkit.exporters import Card


class ModelCard(Exporter):
    """A model card in Markdown."""

    name = "markdown"

    def export(self, card: Card) -> str:
        """Return the card; see `fairkit_cards.markdown`."""
        from fairkit_cards.markdown import markdown

        return markdown(card)


class HubCard(Exporter):
    """A model card for the Hugging Face Hub: front matter with evaluation results, then the card."""

    name = "hf-card"

    def export(self, card: Card) -> str:
        """Return the card; see `fairkit_cards.hub`."""
        from fairkit_cards.hub import hub_card

        return hub_card(card)


class CycloneDX(Exporter):
    """A bill of materials, CycloneDX 1.7."""

    name = "cyclonedx"

    def export(self, card: Card) -> str:
        """Return the bill as JSON; see `fairkit_cards.bom`."""
        from fairkit_cards.bom import cyclonedx

        return cyclonedx(card)


@fairkit.hookimpl
def fairkit_exporters() -> list[type[Exporter]]:
    """Return one exporter for each form."""
    return [ModelCard, HubCard, CycloneDX]
