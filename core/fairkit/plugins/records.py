"""What is known about a plugin: where it is, what it offers, or why it does not load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.charts import EvidenceChart
    from fairkit.exporters import Exporter
    from fairkit.learners import Learner
    from fairkit.metrics import Metric
    from fairkit.mitigators import Mitigator
    from fairkit.models.sources import ModelSource
    from fairkit.packs import Pack
    from fairkit.promotions import PromotionCheck
    from fairkit.signers import Signer
    from fairkit.sources import DataSource

FILES = "FAIRKIT_PLUGINS"
"""The environment variable that names plugin files, for plugins that are not packaged (yet)."""
FILE = "file"
"""What stands for the distribution of a plugin that is a file."""

Kind = Literal[
    "metric",
    "auditor",
    "mitigator",
    "learner",
    "evidence chart",
    "source",
    "model source",
    "promotion check",
    "signer",
    "exporter",
    "pack",
]


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """A plugin that is there, not imported: its name, where it is, and whose it is.

    `distribution` and `version` are ``file`` and the start of the file's sha256 for a plugin that is a file.
    """

    name: str
    target: str
    distribution: str
    version: str

    @property
    def extra(self) -> str:
        """The extra of fairkit that a plugin of ours may need, named as its module is."""
        return self.target.rpartition(".")[2].removeprefix("fairkit_").replace("_", "-")

    @property
    def built_in(self) -> bool:
        """Whether it ships with fairkit."""
        return self.distribution == "fairkit"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded plugin and the classes that its hooks gave."""

    found: PluginInfo
    module: Any
    metrics: tuple[type[Metric], ...] = ()
    auditors: tuple[type[Auditor], ...] = ()
    mitigators: tuple[type[Mitigator], ...] = ()
    learners: tuple[type[Learner], ...] = ()
    evidence_charts: tuple[type[EvidenceChart], ...] = ()
    sources: tuple[type[DataSource], ...] = ()
    model_sources: tuple[type[ModelSource], ...] = ()
    promotion_checks: tuple[type[PromotionCheck], ...] = ()
    signers: tuple[type[Signer], ...] = ()
    exporters: tuple[type[Exporter], ...] = ()
    packs: tuple[type[Pack], ...] = ()

    @property
    def classes(self) -> dict[Kind, tuple[type[Any], ...]]:
        """The classes of each kind that it offers; a kind without any is left out."""
        every: dict[Kind, tuple[type[Any], ...]] = {
            "metric": self.metrics,
            "auditor": self.auditors,
            "mitigator": self.mitigators,
            "learner": self.learners,
            "evidence chart": self.evidence_charts,
            "source": self.sources,
            "model source": self.model_sources,
            "promotion check": self.promotion_checks,
            "signer": self.signers,
            "exporter": self.exporters,
            "pack": self.packs,
        }
        return {kind: classes for kind, classes in every.items() if classes}

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What it offers."""
        return tuple(self.classes)

    def to_dict(self) -> dict[str, str]:
        """Return the plugin's entry in a report."""
        return {"name": self.found.name, "distribution": self.found.distribution, "version": self.found.version}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of ``fairkit plugins``: a plugin with what it offers, or with the reason why it does not load."""

    found: PluginInfo
    kinds: tuple[Kind, ...]
    reason: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.found.name,
            "kinds": list(self.kinds),
            "distribution": self.found.distribution,
            "version": self.found.version,
            "loadable": self.reason is None,
            "reason": self.reason,
        }
