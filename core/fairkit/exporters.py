"""The interface of exporters: a version of a model, written in a form that other programs read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairkit.results.report import Report

FORMATS = ("table", "json", "html", "markdown", "hf-card", "cyclonedx")
"""The formats of ``fairkit registry show`` that fairkit writes: no other exporter has one of these names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedReport:
    """What one certificate says about a version.

    Attributes
    ----------
    sha256
        Digest of the certificate's file.
    report
        The audit.
    audited_at
        When, as the signer says: RFC 3339, UTC.
    keyids
        The trusted keys that signed where `verified`, else what the file claims.
    verified
        Whether a key that an alias of the model trusts has signed it. Show what is not verified as a claim.
    mitigation
        Plugin, parameters and base model, where a method made the model.
    """

    sha256: str
    report: Report
    audited_at: str
    keyids: tuple[str, ...] = ()
    verified: bool = False
    mitigation: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What is known about a version of a model.

    Attributes
    ----------
    name, version
        Which.
    model_sha256, size
        Digest and bytes of the ONNX file.
    added_at
        When: RFC 3339, UTC.
    parent
        The version that it was made from, as ``name@version``; None where nobody said.
    tags, notes, aliases
        What people say about it, and the names that mean it.
    inputs, outputs
        Name, type and shape of each, as text.
    operators, weights
        How often each ONNX operator is in the graph, and how many numbers are in its weights.
    attached
        Digests of the certificate files, in the order in which they came.
    certificates
        What they say, the newest first; each statement once.
    """

    name: str
    version: int
    model_sha256: str
    size: int
    added_at: str
    parent: str | None = None
    tags: tuple[str, ...] = ()
    notes: str = ""
    aliases: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    operators: Mapping[str, int]
    weights: int = 0
    attached: tuple[str, ...] = ()
    certificates: tuple[CertifiedReport, ...] = ()

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
