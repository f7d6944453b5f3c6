"""The trained network with its encoder, and the frontier beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit_onnx.write.export import TabularModel
from fairkit_sensei.frontier import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fairkit.mitigators import Table
    from fairkit_sensei.frontier import Frontier, Measured
    from fairkit_similarity.metric import FairMetric


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkModel(TabularModel):
    """An encoder, and a torch module behind it (`estimator`)."""

    metric: FairMetric | None = None  # the fair metric that it was trained under; None for the plain network
    frontier: Frontier | None = None  # all networks of a run over several ρ; None for one ρ
    train: Sequence[Measured] = ()  # their measurements on the training rows
    audited_at: float | None = None

    def audits(self, folder: Path) -> Mapping[str, Mapping[str, Any]]:
        """Measure `dif`, which the training bounds, under the metric and the budget of training."""
        if self.metric is None or self.audited_at is None:
            return {}
        path = folder / "fair-metric.json"
        self.metric.save(path)
        return {"dif": {"epsilon": (self.audited_at,), "fair_metric": str(path)}}

    def held_out(self, table: Table, confidence: float) -> Mapping[str, Any]:
        """Measure every network of the frontier on held-out rows."""
        if self.frontier is None:
            return {}
        if not self.frontier.measurable(table):
            note = (
                f"No held-out row has another version in {self.frontier.yardstick.versions.name}: the frontier's "  # type: ignore[union-attr]
                "disparities are those of the training rows."
            )
            return {"frontier": self.frontier.to_dict(self.train, None), "notes": [note]}
        found = self.frontier.to_dict(self.train, self.frontier.measure(table, confidence))
        return {"frontier": found, "notes": [sentence(found)]}

    def attachments(self, details: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the frontier as JSON, to stand beside the file; the page of the mitigation draws it."""
        import json

        found = details.get("frontier")
        if found is None:
            return {}
        text = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return {".frontier.json": text}
