"""Plugins: finding them by entry point or file, loading one at a time, and saying why one does not load."""

from fairkit.installed import listed_once
from fairkit.plugins.finding import (
    blame,
    explain_all,
    exporter_of,
    find,
    find_auditor,
    installed_metrics,
    load,
    metrics_of,
    model_source,
    needs_of,
    owner_of,
    source_of,
    third_party,
)
from fairkit.plugins.loading import FILE, FILES, Kind, Plugin, PluginInfo, Row

__all__ = [
    "FILE", "FILES", "Kind", "Plugin", "PluginInfo", "Row", "blame", "explain_all", "exporter_of", "find",
    "find_auditor", "installed_metrics", "listed_once", "load", "metrics_of", "model_source", "needs_of", "owner_of",
    "source_of", "third_party",
]  # fmt: skip
