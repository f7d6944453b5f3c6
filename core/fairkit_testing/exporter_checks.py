"""Checks on exporters: text, the same for the same version, whatever people have written about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fairkit.exporters import Card, CertifiedReport
from fairkit_testing.require import require

if TYPE_CHECKING:
    from fairkit.exporters import Exporter

_STRANGE = "# a|b\n---\n<script>\"'\u2028 {{x}} \U0001f600"


def check_export_is_text(cls: type[Exporter]) -> None:
    """`export` returns text that UTF-8 can hold, with and without certificates, whatever notes and tags say."""
    for card in _cards():
        text = cls().export(card)
        require(isinstance(text, str), f"export gives {type(text).__name__}; return text")
        require(text.strip() != "", f"export says nothing about {card.reference}")
        text.encode("utf-8")


def check_export_deterministic(cls: type[Exporter]) -> None:
    """The same version gives the same text: people and programs compare it."""
    for card in _cards():
        require(
            cls().export(card) == cls().export(card),
            "the same version gives another text the second time; take times from `card.added_at` and the certificates",
        )


def check_export_tells_versions_apart(cls: type[Exporter]) -> None:
    """Two versions with other files give other texts."""
    first, second, *_ = _cards()
    require(cls().export(first) != cls().export(second), "two versions with other files give the same text")


def _cards() -> Iterator[Card]:
    """Return a version without a certificate, one with a certificate that is verified, and one with a claim."""
    import fairkit
    from fairkit_onnx.read.safety import digest
    from fairkit_testing.samples import sample_data, sample_model

    content = sample_model("binary")
    data = sample_data("binary", rows=200)
    report = fairkit.audit(content, data, policy=[fairkit.Rule("accuracy", min=0.5)])
    for version, notes, verified in ((1, "", None), (2, "", True), (3, _STRANGE, False)):
        one = CertifiedReport(
            sha256="c" * 64,
            report=report,
            audited_at="2026-01-31T12:00:00Z",
            keyids=("a" * 64,),
            verified=bool(verified),
            mitigation={"plugin": "reweigh", "parameters": {"cells": 2}, "base": None} if verified else None,
        )
        yield Card(
            name="credit",
            version=version,
            model_sha256=digest(content) if version == 1 else f"{version}" * 64,
            size=len(content),
            added_at="2026-01-30T12:00:00Z",
            parent="credit@1" if version > 1 else None,
            tags=(notes,) if notes else (),
            notes=notes,
            aliases=("production",) if verified else (),
            inputs=("age: float [N, 1]",),
            outputs=("probability: float [N, 2]",),
            operators={"Add": 1, "MatMul": 1},
            weights=12,
            attached=() if verified is None else ("c" * 64,),
            certificates=() if verified is None else (one,),
        )


CHECKS = (check_export_is_text, check_export_deterministic, check_export_tells_versions_apart)
