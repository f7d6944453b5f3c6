"""Importing one plugin and asking its hooks; what is wrong with it becomes one message that says how to fix it."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

import pluggy

from fairkit import hookspecs
from fairkit.errors import MissingExtraError, PluginError, did_you_mean
from fairkit.exporters import FORMATS
from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.lazy_package import imported

if TYPE_CHECKING:
    from fairkit.auditors import Auditor
    from fairkit.charts import EvidenceChart
    from fairkit.exporters import Exporter
    from fairkit.learners import Learner
    from fairkit.metrics import Metric
    from fairkit.mitigators import Mitigator
    from fairkit.models.scorer import ModelSource
    from fairkit.packs import Pack
    from fairkit.promotions import PromotionCheck
    from fairkit.signers import Signer
    from fairkit.sources import DataSource


# What is known about a plugin: where it is, what it offers, or why it does not load.


FILES = "FAIRKIT_PLUGINS"
"""The environment variable that names plugin files, for plugins that are not packaged (yet)."""
FILE = "file"
"""What stands for the distribution of a plugin that is a file."""

Kind = Literal[
    "metric", "auditor", "mitigator", "learner", "evidence chart", "source", "model source", "promotion check",
    "signer", "exporter", "pack",
]  # fmt: skip


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
        every = {kind: getattr(self, f"{kind.replace(' ', '_')}s") for kind in get_args(Kind)}
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


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+")
_SETS = {
    "needs": {"decision", "score"},
    "tasks": {"binary", "multiclass", "regression", "ranking", "answers", "table"},
    "between": {"difference", "ratio", "extreme"},
}
"""What a metric may declare: an audit asks for it before it calls the metric."""


def load_found(info: PluginInfo) -> Plugin:
    """Import a plugin and take what its hooks give."""
    module = _import(info)
    _check_interface(info, module)
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(_SPECS)
    try:
        manager.register(module, name=info.name)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        raise _broken(info, f"a hook is not as specified: {_hook_error(error)}") from error
    hooks = {hook.removeprefix("fairkit_"): tuple(_ask(manager, info, hook)) for hook in _BASES}
    plugin = Plugin(info, module, **hooks)
    if not plugin.kinds:
        raise _broken(info, _why_nothing(module))
    return plugin


def _hook_error(error: Exception) -> str:
    """Return pluggy's complaint about a hook; for an unknown name, with the hook that may be meant."""
    message = one_line(error)
    unknown = re.match(r"unknown hook '(\w+)'", message)
    return f"{unknown[0]}. {did_you_mean(unknown[1], list(_BASES), what='hooks')}" if unknown else message


def _why_nothing(module: Any) -> str:
    """Say why a module offers nothing: a hook without its mark is only a function."""
    unmarked = [name for name in _BASES if callable(getattr(module, name, None))]
    if unmarked:
        return f"it offers nothing; write @fairkit.hookimpl above its function {unmarked[0]}"
    return f"it offers nothing; it needs one of the hooks {', '.join(_BASES)}"


def _check_interface(info: PluginInfo, module: Any) -> None:
    """Raise PluginError where a plugin says that it was written for another version of the interface."""
    wanted = getattr(module, "FAIRKIT_INTERFACE", hookspecs.INTERFACE)
    if wanted == hookspecs.INTERFACE:
        return
    is_newer = isinstance(wanted, int) and wanted > hookspecs.INTERFACE
    raise _broken(
        info,
        f"it is written for version {wanted} of the plugin interface, this fairkit has {hookspecs.INTERFACE}",
        "pip install --upgrade fairkit" if is_newer else None,
    )


def _load_file(path: Path) -> Any:
    """Import a file under a name of its own, once in a process."""
    import importlib.util
    import sys

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


def _import(info: PluginInfo) -> Any:
    if info.distribution == FILE and not Path(info.target).is_file():
        raise PluginError(
            f"the plugin {info.name!r} does not load (there is no file {info.target}); "
            f"fix the path in {FILES}, or take it out"
        )
    try:
        if info.distribution == FILE:
            return _load_file(Path(info.target))
        return imported(info.target)
    except MissingExtraError as error:
        raise PluginError(f"the plugin {info.name!r} of {info.distribution} does not load: {error}") from error
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        extra = f"pip install 'fairkit[{info.name}]'" if info.built_in else f"pip install {missing}"
        raise _broken(info, f"it needs {missing}, which is not installed", extra) from error
    except Exception as error:
        raise _broken(info, f"{type(error).__name__}: {one_line(error)}") from error


def _broken(info: PluginInfo, why: str, fix: str | None = None) -> PluginError:
    if info.distribution == FILE:
        return PluginError(f"the plugin {info.name!r} does not load ({why}); fix it in {info.target}")
    command = fix or f"pip install --upgrade {info.distribution}"
    return PluginError(
        f"the plugin {info.name!r} of {info.distribution} {info.version} does not load ({why}); fix it with: {command}"
    )


def _ask(manager: pluggy.PluginManager, info: PluginInfo, hook: str) -> list[type[Any]]:
    try:
        answers = getattr(manager.hook, hook)()
    except Exception as error:
        raise _broken(info, f"{hook} raises {type(error).__name__}: {one_line(error)}") from error
    classes = [cls for answer in answers for cls in (answer if isinstance(answer, list | tuple) else [answer])]
    if not classes:
        return []
    base: type[Any] = imported(_BASES[hook])  # a plugin that brings an auditor needs nothing of what trains models
    for cls in classes:
        if not (inspect.isclass(cls) and issubclass(cls, base)):
            raise _broken(info, f"{hook} gives {cls!r}, but hooks return lists of {base.__name__} classes")
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise _broken(info, f"{cls.__name__} does not define {missing}")
        if not isinstance(getattr(cls, "name", None), str):
            raise _broken(info, f"{cls.__name__} has no name")
        for attribute, choices in _SETS.items() if hook == "fairkit_metrics" else ():
            value = getattr(cls, attribute)
            if isinstance(value, str) or not set(value) <= choices:
                choices_text = ", ".join(sorted(choices))
                raise _broken(info, f"{cls.__name__}.{attribute} is {value!r}; it is a set of {choices_text}")
    wrong = _CHECKS[hook](info, classes) if hook in _CHECKS else None
    if wrong is not None:
        raise _broken(info, wrong)
    return classes


def _check_only(kind: str, info: PluginInfo, classes: Sequence[type[Any]]) -> str | None:
    """Say what is wrong with the classes of a kind of which a plugin has one, found by the plugin's name."""
    if len(classes) == 1 and classes[0].name == info.name:
        return None
    names = ", ".join(repr(cls.name) for cls in classes)
    return f"it has the {kind} {names}, but a plugin has one, with the plugin's name"


def _check_learners(_info: PluginInfo, classes: Sequence[type[Any]]) -> str | None:
    from fairkit.learners import LEARNERS

    taken = [cls.name for cls in classes if cls.name in LEARNERS]
    return f"fairkit has a learner {taken[0]!r} already; give it another name" if taken else None


def _check_exporters(info: PluginInfo, classes: Sequence[type[Any]]) -> str | None:
    taken = [cls.name for cls in classes if cls.name in FORMATS and not info.built_in]
    return f"fairkit writes {taken[0]!r} itself; give it another name" if taken else None


def _check_sources(_info: PluginInfo, classes: Sequence[type[Any]]) -> str | None:
    for cls in classes:
        schemes = getattr(cls, "schemes", ())
        if isinstance(schemes, str) or not schemes or not all(_SCHEME.fullmatch(str(scheme)) for scheme in schemes):
            return (
                f"{cls.__name__}.schemes is {schemes!r}; it is a tuple of what addresses begin with, in lower case, of "
                "two letters or more"
            )
    return None


_CHECKS: dict[str, Callable[[PluginInfo, Sequence[type[Any]]], str | None]] = {
    "fairkit_mitigators": functools.partial(_check_only, "mitigators"),
    "fairkit_learners": _check_learners,
    "fairkit_sources": _check_sources,
    "fairkit_signers": functools.partial(_check_only, "signers"),
    "fairkit_exporters": _check_exporters,
}
"""What is asked of the classes of some hooks besides; they return what is wrong."""
_BASES = {
    "fairkit_metrics": "fairkit.metrics:Metric",
    "fairkit_auditors": "fairkit.auditors:Auditor",
    "fairkit_mitigators": "fairkit.mitigators:Mitigator",
    "fairkit_learners": "fairkit.learners:Learner",
    "fairkit_evidence_charts": "fairkit.charts:EvidenceChart",
    "fairkit_sources": "fairkit.sources:DataSource",
    "fairkit_model_sources": "fairkit.models.scorer:ModelSource",
    "fairkit_promotion_checks": "fairkit.promotions:PromotionCheck",
    "fairkit_signers": "fairkit.signers:Signer",
    "fairkit_exporters": "fairkit.exporters:Exporter",
    "fairkit_packs": "fairkit.packs:Pack",
}
"""What the classes of each hook derive from; `Plugin` has them under the hook's name without ``fairkit_``."""
_SPECS = ModuleType("hookspecs")  # without what the module imports: pluggy looks at every name for each plugin anew
vars(_SPECS).update({hook: getattr(hookspecs, hook) for hook in _BASES})


def one_line(error: BaseException) -> str:
    """Return an error's text on one line, without the paths that pluggy's messages end with."""
    return " ".join(str(error).split()) or type(error).__name__
