"""The interface of exporters: a version of a model, written in a form that other programs read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairkit.results.report import Report

FORMATS = ("table", "json", "html", "markdown", "hf-card", "cyclonedx")
"""The formats of ``fairkit registry show`` that fairkit writes: no other exporter has one of these names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedReport:
    """What one certificate says about a version."""

    sha256: str  # digest of the certificate's file
    report: Report  # the audit
    audited_at: str  # when, as the signer says: RFC 3339, UTC
    keyids: tuple[str, ...] = ()  # the trusted keys that signed where `verified`, else what the file claims
    # Whether a key that an alias of the model trusts has signed it. Show what is not verified as a claim
    verified: bool = False
    mitigation: Mapping[str, Any] | None = None  # plugin, parameters and base model, where a method made the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What is known about a version of a model."""

    # Which
    name: str
    version: int
    # Digest and bytes of the ONNX file
    model_sha256: str
    size: int
    added_at: str  # when: RFC 3339, UTC
    parent: str | None = None  # the version that it was made from, as ``name@version``; None where nobody said
    # What people say about it, and the names that mean it
    tags: tuple[str, ...] = ()
    notes: str = ""
    aliases: tuple[str, ...] = ()
    # Name, type and shape of each, as text
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    # How often each ONNX operator is in the graph, and how many numbers are in its weights
    operators: Mapping[str, int]
    weights: int = 0
    attached: tuple[str, ...] = ()  # digests of the certificate files, in the order in which they came
    certificates: tuple[CertifiedReport, ...] = ()  # what they say, the newest first; each statement once

    @property
    def reference(self) -> str:
        """The version as users write it: ``credit@3``."""
        return f"{self.name}@{self.version}"


class Exporter(ABC):
    """Writes a version of a model as text: ``fairkit registry show credit@3 --format NAME``.

    A complete example::

        import json

        import fairkit
        from fairkit.exporters import Exporter

        class Inventory(Exporter):
            \"\"\"A line of our model inventory, in JSON.\"\"\"

            name = "inventory"

            def export(self, card):
                verdicts = [one.report.verdict for one in card.certificates if one.verified]
                return json.dumps({"id": card.reference, "sha256": card.model_sha256, "verdicts": verdicts})

        @fairkit.hookimpl
        def fairkit_exporters():
            return [Inventory]

    Attributes
    ----------
    name
        What the user types after ``--format``; none of `FORMATS`.
    """

    name: ClassVar[str]

    @abstractmethod
    def export(self, card: Card) -> str:
        """Return the text, the same for the same card: people and programs compare it.

        Names, notes and what unverified certificates say come from outside: escape them as the format asks.
        """
