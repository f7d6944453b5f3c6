"""Settings from `fairkit.toml`, or from `[tool.fairkit]` in pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairkit.errors import ConfigError, did_you_mean
from fairkit.results.policy import Rule

NAME = "fairkit.toml"

KEYS: Mapping[str, frozenset[str]] = {
    "data": frozenset(
        {"path", "label", "favorable", "sensitive", "features", "drop", "weights", "missing", "train", "test"}
    ),
    "audit": frozenset({"auditors", "confidence", "seed", "task", "adjust"}),
    "model": frozenset({"score_output", "decision_output", "score_kind", "favorable_class", "threshold"}),
    "sandbox": frozenset({"memory", "timeout", "allow_domain"}),
    "mitigate": frozenset({"plugin", "output", "holdout", "learner", "seed", "repeats"}),
    "registry": frozenset({"path", "witness"}),
    "policy": frozenset({"metric", "sensitive", "max", "min", "support"}),
}
"""The tables of the file and their keys."""

_NESTED = frozenset({"audit", "mitigate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of one file; every table may be absent.

    Attributes
    ----------
    path
        The file; None where there is none. Relative paths in it start from its folder.
    data, audit, model, sandbox, mitigate, registry
        The tables of these names, without the tables inside them.
    auditors, mitigators
        Parameters by auditor and by plugin: the tables ``[audit.NAME]`` and ``[mitigate.NAME]``.
    policy
        The rules.
    """

    path: Path | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    audit: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    mitigate: Mapping[str, Any] = field(default_factory=dict)
    registry: Mapping[str, Any] = field(default_factory=dict)
    auditors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mitigators: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy: tuple[Rule, ...] = ()

    def file(self, path: str) -> Path:
        """Return a path that stands in the file, relative to the file's folder."""
        return Path(path) if self.path is None else self.path.parent / path


def find_config(start: Path | None = None) -> Path | None:
    """Find the nearest `fairkit.toml`, or pyproject.toml with `[tool.fairkit]`, in a folder or above it."""
    folder = (start or Path.cwd()).resolve()
    for here in (folder, *folder.parents):
        if (here / NAME).is_file():
            return here / NAME
        project = here / "pyproject.toml"
        if project.is_file() and "fairkit" in _toml(project).get("tool", {}):
            return project
    return None


def load_config(path: Path | None = None, *, start: Path | None = None) -> Config:
    """Read the settings, by default from the nearest file; without one all tables are empty.

    Raises
    ------
    ConfigError
        The file does not exist, is not TOML, or has an unknown key; the message says which, and near names.
    """
    chosen = path or find_config(start)
    if chosen is None:
        return Config()
    if not chosen.is_file():
        raise ConfigError(f"there is no configuration file {str(chosen)!r}; fairkit init writes one")
    tables = _toml(chosen)
    if chosen.name == "pyproject.toml":
        tables = tables.get("tool", {}).get("fairkit", {})
    return read_config(tables, chosen)


def read_config(tables: Mapping[str, Any], path: Path | None = None) -> Config:
    """Check tables and return them the form of `Config`.

    Raises
    ------
    ConfigError
        See `load_config`.
    """
    where = "the settings" if path is None else path.name
    for table in tables:
        if table not in KEYS:
            raise ConfigError(
                f"{where}: there is no table [{table}]. {did_you_mean(table, KEYS, what='tables')}"
            )
    plain = {name: _plain(name, tables.get(name, {}), where) for name in KEYS if name != "policy"}
    inner = {
        name: {key: value for key, value in tables.get(name, {}).items() if isinstance(value, Mapping)}
        for name in _NESTED
    }
    rules = tables.get("policy", [])
    if not isinstance(rules, list):
        raise ConfigError(f"{where}: the policy is a list of rules; begin each with [[policy]]")
    return Config(
        path=path,
        **plain,
        auditors=inner["audit"],
        mitigators=inner["mitigate"],
        policy=tuple(_rule(rule, where) for rule in rules),
    )


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read: {error.strerror}") from error


def _plain(name: str, table: Any, where: str) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: [{name}] is a table; write its keys below that heading")
    known = KEYS[name]
    for key, value in table.items():
        if key not in known and not (name in _NESTED and isinstance(value, Mapping)):
            hint = did_you_mean(key, known, what=f"keys of [{name}]")
            raise ConfigError(f"{where}: [{name}] has no key {key!r}. {hint}")
    return {key: value for key, value in table.items() if key in known}


def _rule(rule: Any, where: str) -> Rule:
    if not isinstance(rule, Mapping):
        raise ConfigError(f"{where}: a policy rule is a table; begin it with [[policy]]")
    for key in rule:
        if key not in KEYS["policy"]:
            hint = did_you_mean(key, KEYS["policy"], what="keys of [[policy]]")
            raise ConfigError(f"{where}: a [[policy]] rule has no key {key!r}. {hint}")
    if not isinstance(rule.get("metric"), str):
        raise ConfigError(f'{where}: a [[policy]] rule needs a metric, such as metric = "accuracy"')
    for key in ("max", "min"):
        if key in rule and (isinstance(rule[key], bool) or not isinstance(rule[key], int | float)):
            raise ConfigError(f"{where}: {key} of the rule on {rule['metric']!r} must be a number")
    support = rule.get("support")
    if support is not None and (isinstance(support, bool) or not isinstance(support, int) or support < 1):
        raise ConfigError(
            f"{where}: support of the rule on {rule['metric']!r} is a number of people, as in support = 1000"
        )
    return Rule(
        metric=rule["metric"],
        sensitive=rule.get("sensitive"),
        maximum=None if rule.get("max") is None else float(rule["max"]),
        minimum=None if rule.get("min") is None else float(rule["min"]),
        support=rule.get("support"),
    )
