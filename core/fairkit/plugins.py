"""Finding plugins by entry point or file, loading one at a time, and saying why one does not load."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pluggy

from fairkit import hookspecs
from fairkit.errors import FairkitError, MissingExtraError, PluginError, did_you_mean

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.metrics import Metric
    from fairkit.mitigators import Mitigator
    from fairkit.promotions import PromotionCheck

FILES = "FAIRKIT_PLUGINS"
"""The environment variable that names plugin files, for plugins that are not packaged (yet)."""
FILE = "file"
"""What stands for the distribution of a plugin that is a file."""

Kind = Literal["metric", "auditor", "mitigator", "promotion check"]


@dataclass(frozen=True, slots=True)
class Found:
    """A plugin that is there, not imported: its name, where it is, and whose it is.

    `distribution` and `version` are ``file`` and the start of the file's sha256 for a plugin that is a file.
    """

    name: str
    target: str
    distribution: str
    version: str

    @property
    def built_in(self) -> bool:
        """Whether it ships with fairkit."""
        return self.distribution == "fairkit"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded plugin and the classes that its hooks gave."""

    found: Found
    module: Any
    metrics: tuple[type[Metric], ...] = ()
    auditors: tuple[type[Auditor], ...] = ()
    mitigators: tuple[type[Mitigator], ...] = ()
    promotion_checks: tuple[type[PromotionCheck], ...] = ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What it offers."""
        offered: list[tuple[Kind, Any]] = [
            ("metric", self.metrics),
            ("auditor", self.auditors),
            ("mitigator", self.mitigators),
            ("promotion check", self.promotion_checks),
        ]
        return tuple(kind for kind, classes in offered if classes)

    def to_dict(self) -> dict[str, str]:
        """Give what a report says about it."""
        return {
            "name": self.found.name,
            "distribution": self.found.distribution,
            "version": self.found.version,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """A line of ``fairkit plugins``: a plugin with what it offers, or with the reason why it does not load."""

    found: Found
    kinds: tuple[Kind, ...]
    reason: str | None

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "name": self.found.name,
            "kinds": list(self.kinds),
            "distribution": self.found.distribution,
            "version": self.found.version,
            "loadable": self.reason is None,
            "reason": self.reason,
        }


def find() -> list[Found]:
    """List the plugins by name, ours first, without importing any: installed ones and files."""
    entries = importlib.metadata.entry_points(group=hookspecs.PROJECT)
    found = {
        Found(
            entry.name,
            entry.value,
            entry.dist.name if entry.dist else "unknown",
            entry.dist.version if entry.dist else "0",
        )
        for entry in entries
    }
    found |= set(_files())
    return sorted(found, key=lambda plugin: (not plugin.built_in, plugin.name, plugin.distribution))


def load(name: str) -> Plugin:
    """Import one plugin and ask its hooks.

    Raises
    ------
    PluginError
        No plugin has the name, two have it, or it does not load; the message says what mends it.
    """
    installed = find()
    named = [plugin for plugin in installed if plugin.name == name]
    if not named:
        hint = did_you_mean(name, [plugin.name for plugin in installed], what="plugins")
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
    """Give the metrics of loaded plugins; one whose name another has already is left out, with a sentence."""
    owners: dict[str, Found] = {}
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


@contextmanager
def blame(found: Found, doing: str) -> Iterator[None]:
    """Turn what somebody else's plugin raises into one message that names it; ours are bugs and stay as they are.

    Raises
    ------
    PluginError
        The plugin raised something that is no `FairkitError`.
    """
    try:
        yield
    except (FairkitError, MemoryError):
        raise
    except Exception as error:
        if found.built_in:
            raise
        raise PluginError(
            f"the plugin {found.name!r} of {found.distribution} {found.version} failed while {doing} "
            f"({type(error).__name__}: {_one_line(error)}); this is for its author to mend"
        ) from error


def owner_of(name: str) -> Found:
    """Give the plugin of that name, or a stand-in for a class that was passed without one."""
    return next((found for found in find() if found.name == name), Found(name, "", "no distribution", "0"))


def find_auditor(name: str, among: Iterable[Plugin] = ()) -> tuple[type[Auditor], Plugin]:
    """Find an auditor by its name: in the plugin of that name, else among loaded plugins.

    Raises
    ------
    PluginError
        There is none.
    """
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


def _load_of(plugin: Found, installed: list[Found]) -> Plugin:
    """Load one of the installed plugins; a name that two have is nobody's, but ours are never taken away."""
    twins = [other for other in installed if other.name == plugin.name]
    if len(twins) > 1 and not plugin.built_in:
        raise PluginError(_duplicate(twins))
    return _load(plugin)


def _duplicate(named: list[Found]) -> str:
    owners = " and ".join(
        plugin.target if plugin.distribution == FILE else f"{plugin.distribution} {plugin.version}"
        for plugin in named
    )
    last = named[-1]
    mend = (
        f"rename the file {last.target}"
        if last.distribution == FILE
        else f"uninstall one of them: pip uninstall {last.distribution}"
    )
    return f"two plugins have the name {named[0].name!r}: {owners}; {mend}"


def _files() -> Iterator[Found]:
    """Give the plugins that are files: ``my_metric.py`` and ``fairkit_my_metric.py`` are the plugin ``my-metric``."""
    import hashlib

    for text in filter(None, os.environ.get(FILES, "").split(os.pathsep)):
        path = Path(text).expanduser().resolve()
        content = path.read_bytes() if path.is_file() else b""
        digest = hashlib.sha256(content).hexdigest()[:12]
        yield Found(path.stem.removeprefix("fairkit_").replace("_", "-"), str(path), FILE, digest)


def _load(found: Found) -> Plugin:
    module = _import(found)
    _check_interface(found, module)
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module, name=found.name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        raise PluginError(_broken(found, f"a hook is not as specified: {_one_line(error)}")) from error
    plugin = Plugin(
        found,
        module,
        metrics=tuple(_ask(manager, found, "fairkit_metrics")),
        auditors=tuple(_ask(manager, found, "fairkit_auditors")),
        mitigators=tuple(_mitigators(manager, found)),
        promotion_checks=tuple(_ask(manager, found, "fairkit_promotion_checks")),
    )
    if not plugin.kinds:
        raise PluginError(_broken(found, _why_nothing(module)))
    return plugin


def _why_nothing(module: Any) -> str:
    """Say why a module offers nothing: a hook without its mark is only a function."""
    unmarked = [name for name in _bases() if callable(getattr(module, name, None))]
    if unmarked:
        return f"it offers nothing; write @fairkit.hookimpl above its function {unmarked[0]}"
    return f"it offers nothing; it needs one of the hooks {', '.join(_bases())}"


def _check_interface(found: Found, module: Any) -> None:
    """Raise PluginError where a plugin says that it was written for another version of the interface."""
    wanted = getattr(module, "FAIRKIT_INTERFACE", hookspecs.INTERFACE)
    if wanted == hookspecs.INTERFACE:
        return
    newer = isinstance(wanted, int) and wanted > hookspecs.INTERFACE
    raise PluginError(
        _broken(
            found,
            f"it is written for version {wanted} of the plugin interface, this fairkit has {hookspecs.INTERFACE}",
            "pip install --upgrade fairkit" if newer else None,
        )
    )


def _load_file(path: Path) -> Any:
    """Import a file under a name of its own, once in a process."""
    import importlib.util
    import sys

    if not path.is_file():
        raise FileNotFoundError(f"there is no such file: {path} (named in {FILES})")
    name = f"fairkit_file_{path.stem}"
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file (named in {FILES})")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import(found: Found) -> Any:
    try:
        if found.distribution == FILE:
            return _load_file(Path(found.target))
        entries = importlib.metadata.entry_points(group=hookspecs.PROJECT, name=found.name)
        return next(entry for entry in entries if entry.value == found.target).load()
    except MissingExtraError as error:
        raise PluginError(
            f"the plugin {found.name!r} of {found.distribution} does not load: {error}"
        ) from error
    except ModuleNotFoundError as error:
        needed = error.name or str(error)
        extra = f"pip install 'fairkit[{found.name}]'" if found.built_in else f"pip install {needed}"
        raise PluginError(_broken(found, f"it needs {needed}, which is not installed", extra)) from error
    except Exception as error:
        raise PluginError(_broken(found, f"{type(error).__name__}: {_one_line(error)}")) from error


def _broken(found: Found, why: str, mend: str | None = None) -> str:
    if found.distribution == FILE:
        return f"the plugin {found.name!r} does not load ({why}); mend it in {found.target}"
    command = mend or f"pip install --upgrade {found.distribution}"
    return (
        f"the plugin {found.name!r} of {found.distribution} {found.version} does not load ({why}); "
        f"mend it with: {command}"
    )


def _ask(manager: pluggy.PluginManager, found: Found, hook: str) -> list[type[Any]]:
    base = _bases()[hook]
    try:
        answers = getattr(manager.hook, hook)()
    except Exception as error:
        raise PluginError(
            _broken(found, f"{hook} raises {type(error).__name__}: {_one_line(error)}")
        ) from error
    classes = [
        cls for answer in answers for cls in (answer if isinstance(answer, list | tuple) else [answer])
    ]
    for cls in classes:
        if not (inspect.isclass(cls) and issubclass(cls, base)):
            raise PluginError(
                _broken(found, f"{hook} gives {cls!r}, but hooks return lists of {base.__name__} classes")
            )
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise PluginError(_broken(found, f"{cls.__name__} does not define {missing}"))
        if not isinstance(getattr(cls, "name", None), str):
            raise PluginError(_broken(found, f"{cls.__name__} has no name"))
    return classes


def _mitigators(manager: pluggy.PluginManager, found: Found) -> list[type[Any]]:
    classes = _ask(manager, found, "fairkit_mitigators")
    if len(classes) > 1 or any(cls.name != found.name for cls in classes):
        names = ", ".join(repr(cls.name) for cls in classes)
        raise PluginError(
            _broken(found, f"it has the mitigators {names}, but a plugin has one, with the plugin's name")
        )
    return classes


def _bases() -> dict[str, type[Any]]:
    from fairkit.auditors import Auditor
    from fairkit.metrics import Metric
    from fairkit.mitigators import Mitigator
    from fairkit.promotions import PromotionCheck

    return {
        "fairkit_metrics": Metric,
        "fairkit_auditors": Auditor,
        "fairkit_mitigators": Mitigator,
        "fairkit_promotion_checks": PromotionCheck,
    }


def _one_line(error: BaseException) -> str:
    """Give an error's text on one line, without the paths that pluggy's messages end with."""
    return " ".join(str(error).split()) or type(error).__name__
