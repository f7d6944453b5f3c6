"""Hosts that a configuration names: secrets of the environment go to those only that the user trusts."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairkit.errors import ConfigError, DataError
from fairkit.support.files import read_small

USER_FILE = "config.toml"
"""The user's own settings, in the user's configuration folder of fairkit: ``trusted_hosts = ["db.example.org"]``."""

_typed: list[str] = []


def trust(hosts: Sequence[str]) -> None:
    """Trust the hosts that the command line names, and no others that it named before."""
    _typed[:] = [one.strip().lower() for one in hosts]


def user_file() -> Path:
    """Return where the user's own settings are."""
    import platformdirs

    return Path(platformdirs.user_config_path("fairkit")) / USER_FILE


def written_by_user(path: Path) -> bool:
    """Tell whether only this user, or the system's administrator, can have written a file."""
    if os.name == "nt":
        return True
    for one in (path, path.parent):
        found = one.stat()
        shared = found.st_mode & stat.S_IWGRP and found.st_gid != os.getgid()
        sticky = one != path and found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.getuid()) or ((found.st_mode & stat.S_IWOTH or shared) and not sticky):
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
    return {*_typed, *(one.strip().lower() for one in hosts)}


def check_host(host: str | None, config: Path | None, what: str) -> None:
    """Refuse to send secrets to a host that only a configuration file names."""
    if host is None or config is None:
        return
    known, name = trusted_hosts(), host.strip().lower()
    if name not in known and _bare(name) not in known:
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
    from fairkit.sources.finders import find_source

    scheme = scheme_of(address)
    source = None if scheme is None else find_source(scheme)
    if source is None:
        return
    try:
        host = source.secret_host(Address.parse(address))
    except DataError:  # reading it says what is wrong with it
        return
    check_host(host, config, "passwords, keys or tokens")
