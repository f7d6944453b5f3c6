"""Credentials for OCI registries, from where docker, podman and skopeo keep them."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairkit_registry.errors import RegistryError

_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HUB = ("docker.io", "registry-1.docker.io", "index.docker.io")
_TOKEN_USER = "<token>"  # noqa: S105 -- the name that helpers give where the secret is an identity token


@dataclass(frozen=True, slots=True)
class Login:
    """A user's name and password, or an identity token."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The value of a header ``Authorization``."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode("ascii")


def files() -> list[Path]:
    """Return the files that are asked, in this order: ``REGISTRY_AUTH_FILE``, podman's, docker's."""
    named = os.environ.get("REGISTRY_AUTH_FILE")
    running = os.environ.get("XDG_RUNTIME_DIR")
    folder = os.environ.get("DOCKER_CONFIG")
    found = [Path(named)] if named else []
    found += [Path(running) / "containers" / "auth.json"] if running else []
    return [*found, (Path(folder) if folder else Path.home() / ".docker") / "config.json"]


def find(host: str) -> Login | None:
    """Return the login for a host; None where there is none."""
    for path in files():
        record = _read(path)
        if record is not None:
            login = _of(record, host, path)
            if login is not None:
                return login
    return None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RegistryError(f"cannot read the credentials in {path}: {error}") from None
    if not isinstance(record, dict):
        raise RegistryError(f"the credentials in {path} are no JSON object")
    return record


def _of(record: dict[str, Any], host: str, path: Path) -> Login | None:
    try:
        helper = record.get("credHelpers", {}).get(host)
        if helper:
            return _ask(helper, host)
        for key, entry in record.get("auths", {}).items():
            if _host_of(key) in (_HUB if host in _HUB else (host,)) and entry:
                return _entry(entry)
        return _ask(record["credsStore"], host) if record.get("credsStore") else None
    except (AttributeError, TypeError, ValueError, KeyError, binascii.Error):
        raise RegistryError(f"the credentials for {host} in {path} are not understood; log in again") from None


def _host_of(key: str) -> str:
    return key.removeprefix("https://").removeprefix("http://").partition("/")[0]


def _entry(entry: dict[str, str]) -> Login | None:
    if entry.get("identitytoken"):
        return Login(identity_token=entry["identitytoken"])
    if entry.get("auth"):
        user, _, password = base64.b64decode(entry["auth"]).decode("utf-8").partition(":")
        return Login(user, password.rstrip("\x00"))
    return Login(entry["username"], entry["password"]) if entry.get("username") else None


def _ask(helper: str, host: str) -> Login | None:
    """Ask a credential helper, as docker does; what it knows nothing of is no error."""
    if not _HELPER.fullmatch(helper):
        raise ValueError(helper)
    command = [f"docker-credential-{helper}", "get"]
    try:
        done = subprocess.run(command, input=host, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RegistryError(f"the credential helper {command[0]} does not answer: {error}") from None
    if done.returncode:
        return None
    found = json.loads(done.stdout)
    if found["Username"] == _TOKEN_USER:
        return Login(identity_token=found["Secret"])
    return Login(found["Username"], found["Secret"])
