"""Two versions side by side: findings, and the graphs themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit_registry import onnxfile
from fairkit_registry.exchange.describe import certificates_of
from fairkit_registry.promotion.compare import Comparison, compare_findings, other_supports, same_data

if TYPE_CHECKING:
    from fairkit_registry.onnxfile import GraphSummary
    from fairkit_registry.store.records import Version
    from fairkit_registry.store.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDifference:
    """What two versions have in common and not."""

    before: Version  # the versions
    after: Version  # the versions
    graphs: tuple[GraphSummary, GraphSummary]  # their graphs' summaries
    findings: tuple[Comparison, ...]  # of the newest certificates; empty where a version has none
    notes: tuple[str, ...]  # what a reader must know: unverified signatures, different data, missing certificates

    @property
    def operators(self) -> dict[str, tuple[int, int]]:
        """How often each operator stands in both, where that differs."""
        one, other = (graph.operators for graph in self.graphs)
        counts = {name: (one.get(name, 0), other.get(name, 0)) for name in sorted({*one, *other})}
        return {name: pair for name, pair in counts.items() if pair[0] != pair[1]}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "graphs": {"before": self.graphs[0].to_dict(), "after": self.graphs[1].to_dict()},
            "operators": {name: list(pair) for name, pair in self.operators.items()},
            "findings": [pair.to_dict() for pair in self.findings],
            "notes": list(self.notes),
        }


def diff(registry: Registry, before: str, after: str) -> VersionDifference:
    """Compare two versions, by their newest certificates and by their graphs."""
    versions = (registry.version(before), registry.version(after))
    newest = [next(iter(certificates_of(registry, version)), None) for version in versions]
    notes = [
        f"{version.reference} has no certificate: its findings are not known"
        for version, one in zip(versions, newest, strict=True)
        if one is None
    ]
    notes += [
        f"the certificate of {version.reference} is not signed by a key that an alias trusts: its numbers are a claim"
        for version, one in zip(versions, newest, strict=True)
        if one is not None and not one.verified
    ]
    pairs: list[Comparison] = []
    if newest[0] is not None and newest[1] is not None:
        reports = (newest[0].report, newest[1].report)
        pairs = compare_findings(*reports)
        notes += other_supports(*reports)
        if same_data(reports):
            notes.append("both audits are on the same data: intervals of differences are conservative (too wide)")
        else:
            notes.append("the audits are on different data: differences mix models and data")
        notes.append(f"each difference is judged by itself, at confidence {reports[1].confidence:g}")
    return VersionDifference(
        before=versions[0],
        after=versions[1],
        graphs=(
            onnxfile.summarise(registry.model_path(versions[0])),
            onnxfile.summarise(registry.model_path(versions[1])),
        ),
        findings=tuple(pairs),
        notes=tuple(notes),
    )
