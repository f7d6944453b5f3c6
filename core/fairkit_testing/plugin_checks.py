"""Checks on a plugin as a whole: it is light to import, has good names, and says what it is."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from fairkit import plugins
from fairkit.auditors import Auditor
from fairkit.charts import EvidenceChart
from fairkit.errors import PluginError
from fairkit.exporters import Exporter
from fairkit.learners import Learner
from fairkit.metrics import Mean, Metric, Rate
from fairkit.mitigators import Mitigator
from fairkit.promotions import PromotionCheck
from fairkit.signers import Signer
from fairkit.sources import DataSource
from fairkit_testing.require import require

if TYPE_CHECKING:
    from fairkit.plugins.records import Plugin

HEAVY = tuple(
    """adbc_driver_postgresql deltalake duckdb jax lightgbm matplotlib numba onnx onnxruntime
    pandas polars pyarrow scipy sklearn tensorflow torch xgboost""".split()  # noqa: SIM905 -- a list of names reads as one
)
"""What no plugin imports before it is used."""

SENTENCE = 11
"""Fewer characters than this say nothing."""

_WORDS = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_EDITION = re.compile(_WORDS.pattern + r"(@\d{4}-\d{2}-\d{2})?")
_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_BASES: tuple[type[Any], ...] = (
    Auditor,
    Metric,
    Mean,
    Rate,
    Mitigator,
    Learner,
    EvidenceChart,
    DataSource,
    PromotionCheck,
    Signer,
    Exporter,
)


def check_light_import(plugin: Plugin) -> None:
    """Loading the plugin and asking its hooks imports no heavy library: `fairkit plugins` stays quick."""
    code = (
        f"import sys\nfrom fairkit import plugins\nplugins.load({plugin.found.name!r})\nprint('LOADED', *[name for "
        f"name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    require(result.returncode == 0, f"it does not load in a fresh process: {result.stderr.strip()[-500:]}")
    loaded = result.stdout.rpartition("LOADED")[2].split()
    require(
        not loaded,
        f"importing it imports {', '.join(loaded)}; import heavy libraries inside the functions that use them",
    )


def check_names(plugin: Plugin) -> None:
    """Names are what users can type and nobody else's: words-with-hyphens, and metric_names_like_this."""
    require(
        _WORDS.fullmatch(plugin.found.name),
        f"the plugin's name {plugin.found.name!r} is not lower case words joined by hyphens",
    )
    named: list[Any] = [
        *plugin.auditors,
        *plugin.mitigators,
        *plugin.learners,
        *plugin.sources,
        *plugin.promotion_checks,
        *plugin.signers,
        *plugin.exporters,
    ]
    for cls in plugin.packs:
        require(
            _EDITION.fullmatch(cls.name),
            f"the name {cls.name!r} of {cls.__name__} is not lower case words joined by hyphens, then @2026-01-31 of "
            "a kept edition",
        )
    for cls in named:
        require(
            _WORDS.fullmatch(cls.name),
            f"the name {cls.name!r} of {cls.__name__} is not lower case words joined by hyphens",
        )
    named = [*plugin.metrics, *plugin.evidence_charts]
    for cls in named:
        require(
            _SNAKE.fullmatch(cls.name),
            f"the name {cls.name!r} of {cls.__name__} is not lower case words joined by underscores",
        )
    for classes in plugin.classes.values():
        twice = [name for name, count in Counter(cls.name for cls in classes).items() if count > 1]
        require(not twice, f"two of its classes have the name {twice[0] if twice else ''!r}")
    for installed_plugin in _others(plugin):
        for kind, classes in plugin.classes.items():
            mine = {cls.name for cls in classes}
            theirs = {cls.name for cls in installed_plugin.classes.get(kind, ())}
            require(
                not mine & theirs,
                f"the plugin {installed_plugin.found.name!r} of {installed_plugin.found.distribution} has "
                f"{sorted(mine & theirs)} already; choose another name",
            )


def check_documented(plugin: Plugin) -> None:
    """The module and each class begin with a sentence of their own; mitigators and metrics say more."""
    sentence = (inspect.getdoc(plugin.module) or "").split("\n")[0]
    missing = []
    if len(sentence) < SENTENCE:
        missing.append(f"its module has {_short(sentence)}: `fairkit plugins show` prints the first line")
    for cls in (
        *plugin.metrics,
        *plugin.auditors,
        *plugin.mitigators,
        *plugin.learners,
        *plugin.evidence_charts,
        *plugin.sources,
        *plugin.promotion_checks,
        *plugin.signers,
        *plugin.exporters,
        *plugin.packs,
    ):
        inherited = any(cls.__doc__ == base.__doc__ for base in _BASES)
        first = "" if inherited else (cls.__doc__ or "").strip().split("\n")[0]
        if len(first) < SENTENCE:
            missing.append(f"{cls.__name__} has {_short(first)}: its first line says what it does")
    missing += [
        f"{metric.__name__}.meaning is empty or short: one sentence on what 0, 1 or the ends of the range mean"
        for metric in plugin.metrics
        if len(metric.meaning) < SENTENCE
    ]
    missing += [
        f"{mitigator.__name__}.citation is empty: who published it, where?"
        for mitigator in plugin.mitigators
        if len(mitigator.citation) <= 5
    ]
    require(not missing, "; ".join(missing))


def _short(text: str) -> str:
    return f"too short a docstring ({text!r})" if text else "no docstring"


def _others(plugin: Plugin) -> list[Plugin]:
    """The installed plugins that are another package: two entry points may share one."""
    neighbours = []
    for other in plugins.find():
        if other.name == plugin.found.name:
            continue
        try:
            loaded = plugins.load(other.name)
        except PluginError:
            continue
        if loaded.module is not plugin.module:
            neighbours.append(loaded)
    return neighbours


CHECKS = (check_light_import, check_names, check_documented)
