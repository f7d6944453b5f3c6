"""Finding plugins by entry point, loading one at a time, and saying why one does not load."""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pluggy

from fairkit import hookspecs
from fairkit.errors import MissingExtraError, PluginError, did_you_mean

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.metrics import Metric
    from fairkit.mitigators import Mitigator
    from fairkit.promotions import PromotionCheck

Kind = Literal["metric", "auditor", "mitigator", "promotion check"]


@dataclass(frozen=True, slots=True)
class Found:
    """An installed plugin, not imported: its name, where it is, and whose it is."""

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
    """List the installed plugins by name, ours first, without importing any."""
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
    if len(named) > 1:
        raise PluginError(_duplicate(named))
    return _load(named[0])


def explain_all() -> list[Row]:
    """Load every plugin and say for each what it offers, or why it does not load. Never raises."""
    installed = find()
    rows = []
    for plugin in installed:
        twins = [other for other in installed if other.name == plugin.name]
        if len(twins) > 1:
            rows.append(Row(plugin, (), _duplicate(twins)))
            continue
        try:
            rows.append(Row(plugin, _load(plugin).kinds, None))
        except PluginError as error:
            rows.append(Row(plugin, (), str(error)))
    return rows


def third_party() -> tuple[list[Plugin], list[str]]:
    """Load the plugins that others installed; those that do not load become sentences."""
    loaded, failures = [], []
    for row in find():
        if row.built_in:
            continue
        try:
            loaded.append(load(row.name))
        except PluginError as error:
            failures.append(str(error))
    return loaded, failures


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


def _duplicate(named: list[Found]) -> str:
    owners = " and ".join(f"{plugin.distribution} {plugin.version}" for plugin in named)
    return (
        f"two plugins have the name {named[0].name!r}: {owners}; "
        f"uninstall one of them: pip uninstall {named[-1].distribution}"
    )


def _load(found: Found) -> Plugin:
    module = _import(found)
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module, name=found.name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        raise PluginError(_broken(found, f"a hook is not as specified: {_one_line(error)}")) from error
    return Plugin(
        found,
        module,
        metrics=tuple(_ask(manager, found, "fairkit_metrics")),
        auditors=tuple(_ask(manager, found, "fairkit_auditors")),
        mitigators=tuple(_mitigators(manager, found)),
        promotion_checks=tuple(_ask(manager, found, "fairkit_promotion_checks")),
    )


def _import(found: Found) -> Any:
    entries = importlib.metadata.entry_points(group=hookspecs.PROJECT, name=found.name)
    entry = next(entry for entry in entries if entry.value == found.target)
    try:
        return entry.load()
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
    text = str(error).strip()
    return text.splitlines()[0].strip() if text else type(error).__name__
