"""Settings from `fairkit.toml`, or from `[tool.fairkit]` in pyproject.toml."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fairkit.errors import ConfigError, DataError, FairkitError, ParameterError, did_you_mean
from fairkit.results.findings import facts_of
from fairkit.results.rules import SCENARIO, Rule
from fairkit.settings import declared
from fairkit.support.files import read_small
from fairkit.support.lazy_dataclass import dataclass, field

NAME = "fairkit.toml"
MOST_SHOWN = 80
"""Characters of a wrong value in a message."""

Kind = Literal["text", "number", "integer", "value", "names", "path", "columns", "flag"]

FACTS = ("intended_use", "owner", "contact", "version", "period")
"""The keys of ``[model]`` that are facts."""

KEYS: Mapping[str, Mapping[str, Kind]] = {
    "data": {
        "path": "path",
        "label": "text",
        "favorable": "value",
        "sensitive": "names",
        "features": "names",
        "drop": "names",
        "weights": "text",
        "missing": "text",
        "reference": "names",
        "within": "names",
        "cluster": "text",
        "query": "text",
        "sensitive_probability": "names",
        "counts_from": "integer",
        "labelled": "text",
        "refused": "text",
        "train": "path",
        "test": "path",
        "predictions": "columns",
        "join": "columns",
    },
    "audit": {each.key: each.kind for each in declared() if each.table == "audit"},
    "model": {**{each.key: each.kind for each in declared() if each.table == "model"}, **dict.fromkeys(FACTS, "text")},
    "endpoint": {"url": "text", "model_name": "text", "model_version": "text", "timeout": "number", "rate": "number"},
    "sandbox": {"memory": "value", "timeout": "number", "allow_domain": "names"},
    "mitigate": {
        "plugin": "text",
        "output": "path",
        "holdout": "number",
        "learner": "text",
        "seed": "integer",
        "repeats": "integer",
        "sure": "number",
        "budget": "number",
        "methods": "names",
        "blind": "flag",
        "deterministic": "flag",
    },
    "registry": {"path": "path", "witness": "names"},
    "watch": {
        "id": "text",
        "day": "text",
        "horizon": "integer",
        "selective": "value",
        "labelled": "text",
        "review_rows": "integer",
        "run_length": "integer",
        "since": "text",
    },
    "policy": {
        "metric": "text",
        "sensitive": "text",
        "max": "number",
        "min": "number",
        "support": "integer",
        "within": "names",
        "hazard": "text",
        "mitigation": "text",
        "review": "text",
    },
}
"""The tables of the file, their keys, and what each key takes (see `KINDS`)."""

KINDS: Mapping[Kind, str] = {
    "text": "text",
    "number": "a finite number",
    "integer": "a whole number",
    "value": "text, a number, true or false",
    "names": "a list of texts",
    "path": "a path",
    "columns": "a table of columns",
    "flag": "true or false",
}
"""What the keys take, in words."""

_LARGEST = 2**63
"""A whole number beyond this is a mistake, and no seed or class of a model."""

_NESTED = frozenset({"audit", "mitigate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of one file; every table may be absent."""

    path: Path | None = None  # the file; None where there is none. Relative paths in it start from its folder
    data: Mapping[str, Any] = field(default_factory=dict)  # the table [data], without the tables inside it
    audit: Mapping[str, Any] = field(default_factory=dict)  # the same of [audit]
    model: Mapping[str, Any] = field(default_factory=dict)  # the same of [model]
    endpoint: Mapping[str, Any] = field(default_factory=dict)
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    mitigate: Mapping[str, Any] = field(default_factory=dict)
    registry: Mapping[str, Any] = field(default_factory=dict)
    watch: Mapping[str, Any] = field(default_factory=dict)  # the tables of these names, without the tables inside them
    auditors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mitigators: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy: tuple[Rule, ...] = ()  # the rules
    about: Mapping[str, str] = field(default_factory=dict)  # facts that the report states as they stand

    def file(self, path: str) -> Path:
        """Return a path that stands in the file, relative to the file's folder."""
        return Path(path) if self.path is None else self.path.parent / path

    def registry_folder(self, option: Path | None = None) -> Path:
        """Return the registry's folder: the option's, else that of the environment, of the file, or the default one."""
        from fairkit_registry.store.registry import locate

        path = self.registry.get("path")
        return locate(option, configured=None if path is None else self.file(path))

    def witnesses(self) -> tuple[str, ...]:
        """Return the files and addresses that remember the registry's newest event."""
        from fairkit_registry.store.registry import witnesses

        return witnesses(self.registry.get("witness"), folder=self.path and self.path.parent)

    def table(self, text: str) -> str:
        """Return a table that stands in the file: a path, or an address, whose path is relative to the file's folder.

        ``duckdb:loans.db?query=...`` has such a path; ``s3://bucket/...`` has none.
        """
        from fairkit.sources.interface import is_address

        if not is_address(text) or (self.path is not None and (self.path.parent / text).exists()):
            return str(self.file(text))
        scheme, _, rest = text.partition(":")
        location, mark, options = rest.partition("?")
        check_table(text, self.path)
        return text if "//" in location else f"{scheme}:{self.file(location)}{mark}{options}"


def find_config(start: Path | None = None) -> Path | None:
    """Find the nearest `fairkit.toml`, or pyproject.toml with `[tool.fairkit]`, in a folder or above it.

    The search ends at the repository's root, or at the user's home; outside of both only the folder itself counts.
    """
    folder = (start or Path.cwd()).resolve()
    for here in _searched(folder):
        project = here / "pyproject.toml"
        if (here / NAME).is_file():
            path = here / NAME
        elif project.is_file() and _section(_toml(project)) is not None:
            path = project
        else:
            continue
        if not written_by_user(path):
            raise ConfigError(
                f"{path} could have been written by others than you, so its settings are not taken unasked; name it "
                "with --config, or let only you write it (chmod go-w)"
            )
        return path
    return None


def _searched(folder: Path) -> list[Path]:
    """Return the folders in which settings are looked for."""
    above = [folder, *folder.parents]
    root = next((index for index, here in enumerate(above) if (here / ".git").exists()), None)
    try:
        home = above.index(Path.home().resolve())
    except (ValueError, RuntimeError, OSError):
        home = 0
    return above[: (home if root is None else root) + 1]


def load_announced(path: Path | None = None) -> Config:
    """Read the settings as `load_config` does, and say on standard error where they come from and what they hold."""
    from fairkit_cli.terminal.output import say

    config = load_config(path)
    if config.path is not None:
        tables = ("model", "audit", "endpoint", "sandbox")
        entries = [f"{key} {value}" for table in tables for key, value in getattr(config, table).items()]
        entries += [
            f"{name}.{key} {value}" for name, values in config.auditors.items() for key, value in values.items()
        ]
        rules = len(config.policy)
        entries += [f"{rules} rule{'s' * (rules > 1)}"] if rules else []
        say(f"settings from {config.path}{': ' * bool(entries)}{', '.join(entries)}")
    return config


def load_config(path: Path | None = None, *, start: Path | None = None) -> Config:
    """Read the settings, by default from the nearest file; without one all tables are empty."""
    chosen = path or find_config(start)
    if chosen is None:
        return Config()
    if not chosen.is_file():
        raise ConfigError(f"there is no configuration file {str(chosen)!r}; fairkit init writes one")
    tables = _toml(chosen)
    if chosen.name == "pyproject.toml":
        tables = _section(tables) or {}
    return read_config(tables, chosen)


def _section(project: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return ``[tool.fairkit]`` of a pyproject.toml; None where it has no such table."""
    tool = project.get("tool")
    section = tool.get("fairkit") if isinstance(tool, Mapping) else None
    return dict(section) if isinstance(section, Mapping) else None


def read_config(tables: Mapping[str, Any], path: Path | None = None) -> Config:
    """Check tables and return them the form of `Config`."""
    where = "the settings" if path is None else path.name
    for table in tables:
        if table not in (*KEYS, "about"):
            raise ConfigError(f"{where}: there is no table [{table}]. {did_you_mean(table, KEYS, what='tables')}")
    about = tables.get("about", {})
    if not isinstance(about, Mapping):
        raise ConfigError(f"{where}: [about] is a table of facts; write its keys below that heading")
    try:
        about = facts_of(about)
    except ParameterError as error:
        raise ConfigError(f"{where}: {error}") from error
    plain = {name: _plain(name, tables.get(name, {}), where) for name in KEYS if name != "policy"}
    inner = {
        name: {key: dict(value) for key, value in tables.get(name, {}).items() if isinstance(value, Mapping)}
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
        about=about,
    )


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_small(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read: {error.strerror}") from error


def _plain(name: str, table: Any, where: str) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: [{name}] is a table; write its keys below that heading")
    keys = KEYS[name]
    inner = {key for key, value in table.items() if name in _NESTED and isinstance(value, Mapping)}
    for key, value in table.items():
        if key not in inner - keys.keys():
            _check(f"[{name}]", key, value, keys, where)
    return {key: value for key, value in table.items() if key not in inner}


def _check(heading: str, key: str, value: Any, kinds: Mapping[str, Kind], where: str) -> None:
    """Refuse an unknown key and a value of another kind than the key takes."""
    if key not in kinds:
        hint = did_you_mean(key, kinds, what=f"keys of {heading}")
        raise ConfigError(f"{where}: {heading} has no key {key!r}. {hint}")
    if not _fits(value, kinds[key]):
        shown = repr(value) if len(repr(value)) < MOST_SHOWN else f"{repr(value)[:MOST_SHOWN]}..."
        raise ConfigError(f"{where}: {key} in {heading} takes {KINDS[kinds[key]]}, not {shown}")


def _fits(value: Any, kind: Kind) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "columns":
        return isinstance(value, Mapping)
    if kind == "names":
        return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))
    if kind == "number":
        return number and abs(value) < _LARGEST
    if kind == "integer":
        return number and isinstance(value, int) and abs(value) < _LARGEST
    if kind in ("flag", "value"):
        return isinstance(value, bool) or (
            kind == "value" and (isinstance(value, str) or (number and abs(value) < _LARGEST))
        )
    return isinstance(value, str) and (kind == "text" or (value != "" and "\0" not in value))


def _rule(rule: Any, where: str) -> Rule:
    if not isinstance(rule, Mapping):
        raise ConfigError(f"{where}: a policy rule is a table; begin it with [[policy]]")
    for key, value in rule.items():
        _check("[[policy]]", key, value, KEYS["policy"], where)
    if "metric" not in rule:
        raise ConfigError(f'{where}: a [[policy]] rule needs a metric, such as metric = "accuracy"')
    if rule.get("support", 1) < 1:
        raise ConfigError(
            f"{where}: support of the rule on {rule['metric']!r} is a number of people, as in support = 1000"
        )
    return Rule(
        metric=rule["metric"],
        sensitive=rule.get("sensitive"),
        max=None if "max" not in rule else float(rule["max"]),
        min=None if "min" not in rule else float(rule["min"]),
        support=rule.get("support"),
        within=tuple([rule["within"]] if isinstance(rule.get("within"), str) else rule.get("within", ())),
        **{key: rule[key] for key in rule if key in SCENARIO},
    )


# Hosts that a configuration names: secrets of the environment go to those only that the user trusts.


USER_FILE = "config.toml"
"""The user's own settings, in the user's configuration folder of fairkit: ``trusted_hosts = ["db.example.org"]``."""

_typed: list[str] = []


def trust(hosts: Sequence[str]) -> None:
    """Trust the hosts that the command line names, and no others that it named before."""
    _typed[:] = [host.strip().lower() for host in hosts]


def user_file() -> Path:
    """Return where the user's own settings are."""
    import platformdirs

    return Path(platformdirs.user_config_path("fairkit")) / USER_FILE


def written_by_user(path: Path) -> bool:
    """Tell whether only this user, or the system's administrator, can have written a file."""
    if os.name == "nt":
        return True
    for path_or_parent in (path, path.parent):
        status = path_or_parent.stat()
        shared = status.st_mode & stat.S_IWGRP and status.st_gid != os.getgid()
        sticky = path_or_parent != path and status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.getuid()) or ((status.st_mode & stat.S_IWOTH or shared) and not sticky):
            return False
    return True


def trusted_hosts() -> set[str]:
    """Return the hosts that the command line and the user's own settings trust."""
    path = user_file()
    hosts: Any = []
    if path.is_file():
        try:
            record = tomllib.loads(read_small(path))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
        hosts = record.get("trusted_hosts", [])
        if set(record) - {"trusted_hosts"} or not isinstance(hosts, list) or not all(isinstance(h, str) for h in hosts):
            raise ConfigError(f'{path} holds one thing: trusted_hosts = ["host", ...]')
        if not written_by_user(path):
            raise ConfigError(f"{path} could have been written by others than you; let only you write it (chmod go-w)")
    return {*_typed, *(host.strip().lower() for host in hosts)}


def check_host(host: str | None, config: Path | None, what: str) -> None:
    """Refuse to send secrets to a host that only a configuration file names."""
    if host is None or config is None:
        return
    trusted, name = trusted_hosts(), host.strip().lower()
    if name not in trusted and _bare(name) not in trusted:
        raise ConfigError(
            f"{config} names the host {host}, and {what} of yours would be sent there. If you trust it: "
            f'fairkit --trust-host {_bare(name)} ..., or trusted_hosts = ["{_bare(name)}"] in {user_file()}'
        )


def _bare(host: str) -> str:
    """Return a host without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (":" not in name or name.endswith("]")) else host


def check_table(address: str, config: Path | None) -> None:
    """Refuse a table that a configuration names on a host that nobody trusts; see `check_host`."""
    from fairkit.sources.address import Address, scheme_of
    from fairkit.sources.interface import find_source

    scheme = scheme_of(address)
    source = None if scheme is None else find_source(scheme)
    if source is None:
        return
    try:
        host = source.secret_host(Address.parse(address))
    except DataError:  # reading it says what is wrong with it
        return
    check_host(host, config, "passwords, keys or tokens")


# A model on the command line: a file, or a name in the registry.


def refuse_remote(text: str) -> None:
    """Refuse the address of an OCI registry: its usual tools carry archives there and back."""
    if text.startswith(("oci:/", "oci+http:/")):
        raise FairkitError(
            f"{text} is in an OCI registry, which is not read: `skopeo copy docker://HOST/REPOSITORY:TAG "
            "oci-archive:FILE.tar` brings it here, and `fairkit registry import FILE.tar --key PUB` takes it in"
        )


def model_file(model: str, config: Config) -> Path:
    """Find the file behind a path or a registry name such as ``credit@production``; a path that exists wins."""
    from fairkit_registry.jsonio import is_reference

    refuse_remote(model)
    path = Path(model)
    if path.exists() or not is_reference(model):
        return path
    from fairkit_registry.errors import RegistryError
    from fairkit_registry.store.registry import resolve

    try:
        return resolve(model, config.registry_folder(), witnesses=config.witnesses())
    except RegistryError:
        if path.suffix and "@" not in model:
            return path  # a file's name, mistyped
        raise
