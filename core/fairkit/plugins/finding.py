"""Finding plugins by entry point or file, loading one at a time, and saying why one does not load."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit import hookspecs
from fairkit.errors import FairkitError, PluginError, did_you_mean
from fairkit.exporters import FORMATS
from fairkit.installed import LISTED, entry_points, listed_once
from fairkit.learners import add_source
from fairkit.plugins.loading import FILE, FILES, Plugin, PluginInfo, Row, load_found, one_line
from fairkit.settings import DEFAULT_AUDITORS

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.exporters import Exporter
    from fairkit.metrics import Metric
    from fairkit.models.scorer import ModelSource
    from fairkit.packs import PackFormat
    from fairkit.sources import DataSource


PACKS = "laws"
"""The plugin that has our packs, and reads and renders all of them."""
CARDS = "cards"
"""The plugin that has our exporters."""


def find() -> list[PluginInfo]:
    """List the plugins by name, ours first, without importing any: installed ones and files."""
    listed = LISTED.get()
    if listed is None:
        return _find()
    listed.extend(() if listed else _find())
    return list(listed)


def _find() -> list[PluginInfo]:
    infos = {PluginInfo(*entry) for entry in entry_points(hookspecs.PROJECT)} | set(_files())
    return sorted(infos, key=lambda plugin: (not plugin.built_in, plugin.name, plugin.distribution))


def load(name: str) -> Plugin:
    """Import one plugin and ask its hooks."""
    installed = find()
    named = [plugin for plugin in installed if plugin.name == name]
    if not named:
        hint = _offered_as(name) or did_you_mean(name, [plugin.name for plugin in installed], what="plugins")
        raise PluginError(f"there is no plugin {name!r}. {hint}")
    return _load_of(named[0], named)


def explain_all() -> list[Row]:
    """Load every plugin and say for each what it offers, or why it does not load. Never raises."""
    installed = find()
    rows = []
    for plugin in installed:
        try:
            rows.append(Row(plugin, _load_of(plugin, installed).kinds, None))
        except PluginError as error:
            rows.append(Row(plugin, (), str(error)))
    return rows


def third_party() -> tuple[list[Plugin], list[str]]:
    """Load the plugins that others installed; those that do not load become sentences."""
    loaded, failures = [], []
    installed = find()
    for plugin in installed:
        if plugin.built_in:
            continue
        try:
            loaded.append(_load_of(plugin, installed))
        except PluginError as error:
            failures.append(str(error))
    return loaded, failures


def metrics_of(loaded: Iterable[Plugin]) -> tuple[list[type[Metric]], list[str]]:
    """Return the metrics of loaded plugins; one whose name another has already is left out, with a sentence."""
    owners: dict[str, PluginInfo] = {}
    metrics, clashes = [], []
    for plugin in sorted(loaded, key=lambda plugin: not plugin.found.built_in):
        for metric in plugin.metrics:
            owner = owners.setdefault(metric.name, plugin.found)
            if owner is plugin.found:
                metrics.append(metric)
                continue
            clashes.append(
                f"the metric {metric.name!r} of the plugin {plugin.found.name!r} ({plugin.found.distribution}) is "
                f"left out: {owner.name!r} ({owner.distribution}) has one of that name"
            )
    return metrics, clashes


def needs_of(used: Iterable[Plugin]) -> tuple[dict[str, str], list[str]]:
    """Return the requirements of loaded plugins: versions of their distributions, and fairkit's extras."""
    infos = [plugin.found for plugin in used]
    others = {info.distribution: info.version for info in infos if not info.built_in and info.distribution != FILE}
    return others, [info.extra for info in infos if info.built_in]


@contextmanager
def blame(info: PluginInfo, doing: str) -> Iterator[None]:
    """Turn what somebody else's plugin raises into one message that names it; ours are bugs and stay as they are."""
    try:
        yield
    except (FairkitError, MemoryError):
        raise
    except Exception as error:
        if info.built_in:
            raise
        raise PluginError(
            f"the plugin {info.name!r} of {info.distribution} {info.version} failed while {doing} "
            f"({type(error).__name__}: {one_line(error)}); this is for its author to fix"
        ) from error


def owner_of(name: str) -> PluginInfo:
    """Return the plugin of that name, or a stand-in for a class that was passed without one."""
    return next((info for info in find() if info.name == name), PluginInfo(name, "", "no distribution", "0"))


def find_auditor(name: str, among: Iterable[Plugin] = ()) -> tuple[type[Auditor], Plugin]:
    """Find an auditor by its name: in the plugin of that name, else among loaded plugins."""
    loaded = list(among)
    if any(plugin.name == name for plugin in find()):
        loaded.insert(0, load(name))
    for plugin in loaded:
        for auditor in plugin.auditors:
            if auditor.name == name:
                return auditor, plugin
    if loaded and loaded[0].found.name == name:
        offers = ", ".join(loaded[0].kinds) or "nothing"
        raise PluginError(f"the plugin {name!r} has no auditor of that name; it offers: {offers}")
    hint = did_you_mean(name, [plugin.name for plugin in find()], what="plugins")
    raise PluginError(f"there is no auditor {name!r}. {hint}")


def installed_metrics() -> tuple[list[type[Metric]], list[Plugin]]:
    """Return the metrics that every audit measures, and the plugins that bring them: the default auditor's first."""
    others, _ = third_party()
    metrics = [find_auditor(name, others)[1] for name in DEFAULT_AUDITORS]
    used = list(dict.fromkeys([*metrics, *others]))
    return list(dict.fromkeys(metric for plugin in used for metric in plugin.metrics)), used


# a plugin that does not load is told about where it is asked for
add_source(lambda: [cls for plugin in third_party()[0] for cls in plugin.learners])


def source_of(scheme: str) -> type[DataSource] | None:
    """Return the source of data whose addresses have a scheme; None where no plugin has one."""
    with listed_once():
        named = [plugin.name for plugin in find() if plugin.name == scheme]
        others, failures = third_party()
        loaded = [load(name) for name in named[:1]] + others
        matches = _with_scheme(scheme, loaded) or _with_scheme(scheme, _ours())
    if len(matches) > 1:
        names = " and ".join(sorted(f"{match.__module__}.{match.__name__}" for match in matches))
        raise PluginError(f"two sources have addresses that begin with {scheme}: {names}; uninstall one of them")
    if not matches and failures:
        raise PluginError(f"no source has addresses that begin with {scheme}: -- and {failures[0]}")
    return next(iter(matches), None)


def pack_plugins() -> tuple[list[Plugin], PackFormat]:
    """Return the plugins that may have packs, ours first, and what reads and renders a pack."""
    from fairkit.packs import pack_format

    return [load(PACKS), *third_party()[0]], pack_format()


def model_source(name: str) -> type[ModelSource]:
    """Return the source of models of that name."""
    others, failures = third_party()
    ours = [load(plugin.name) for plugin in find() if plugin.name == name]
    for plugin in [*ours, *others]:
        for source in plugin.model_sources:
            if source.name == name:
                return source
    raise PluginError(f"no plugin has a source of models {name!r}{''.join(f'; {why}' for why in failures)}")


def exporter_of(name: str) -> tuple[type[Exporter], PluginInfo]:
    """Return the exporter of a name, and the plugin that has it; ours are looked at first."""
    others, failures = ([], []) if name in FORMATS else third_party()
    loaded = [load(CARDS), *others]
    owners = [(cls, plugin.found) for plugin in loaded for cls in plugin.exporters if cls.name == name]
    if len({owner for _, owner in owners}) > 1:
        names = " and ".join(owner.name for _, owner in owners)
        raise PluginError(f"two plugins write the format {name!r}: {names}; uninstall one of them")
    if not owners:
        formats = [*FORMATS, *(cls.name for plugin in others for cls in plugin.exporters)]
        hint = did_you_mean(name, formats, what="formats")
        raise PluginError("; ".join([f"there is no format {name!r}. {hint}", *failures]))
    return owners[0]


def _with_scheme(scheme: str, loaded: Iterable[Plugin]) -> dict[type[DataSource], PluginInfo]:
    return {cls: plugin.found for plugin in loaded for cls in plugin.sources if scheme in cls.schemes}


def _ours() -> Iterator[Plugin]:
    """Return our plugins that load."""
    for plugin in find():
        if plugin.built_in:
            with suppress(PluginError):
                yield load(plugin.name)


def _offered_as(name: str) -> str:
    """Say which plugin has an auditor, a metric or a check of that name; empty where none has."""
    for row in explain_all():
        if row.reason is not None:
            continue
        plugin = load(row.found.name)
        for kind, classes in plugin.classes.items():
            if any(cls.name == name for cls in classes):
                return f"The {kind} {name!r} is of the plugin {plugin.found.name!r}."
    return ""


def _load_of(plugin: PluginInfo, installed: list[PluginInfo]) -> Plugin:
    """Load one of the installed plugins; a name that two have is nobody's, but ours are never taken away."""
    twins = [twin for twin in installed if twin.name == plugin.name]
    if len(twins) > 1 and not plugin.built_in:
        raise PluginError(_duplicate(twins))
    return load_found(plugin)


def _duplicate(named: list[PluginInfo]) -> str:
    owners = " and ".join(
        plugin.target if plugin.distribution == FILE else f"{plugin.distribution} {plugin.version}" for plugin in named
    )
    last = named[-1]
    fix = (
        f"rename the file {last.target}, or take it out of {FILES}"
        if last.distribution == FILE
        else f"uninstall one of them: pip uninstall {last.distribution}"
    )
    return f"two plugins have the name {named[0].name!r}: {owners}; {fix}"


def _files() -> Iterator[PluginInfo]:
    """Return the plugins that are files: ``my_metric.py`` and ``fairkit_my_metric.py`` are the plugin ``my-metric``."""
    import hashlib

    for text in filter(None, os.environ.get(FILES, "").split(os.pathsep)):
        path = Path(text).expanduser().resolve()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else ""
        yield PluginInfo(path.stem.removeprefix("fairkit_").replace("_", "-"), str(path), FILE, digest)
