"""Is anybody there? A host that does not answer is told about within seconds, whatever its library waits for."""

from __future__ import annotations

import ipaddress
import socket
import threading
from urllib.parse import urlsplit

from fairkit.errors import DataError
from fairkit.support.escaping import visible

PATIENCE = 8.0
"""Seconds until a host counts as unreachable, its name's look-up included."""


def check_reachable(host: str, port: int, *, patience: float = PATIENCE) -> None:
    """Open a connection and close it again."""
    answers: list[str] = []
    asking = threading.Thread(target=_ask, args=(host.strip("[]"), port, patience, answers), daemon=True)
    asking.start()  # a thread: the look-up of a name takes no time limit
    asking.join(patience)
    reason = answers[0] if answers else f"no answer within {patience:g} s"
    if reason:
        raise DataError(
            f"{visible(host)}:{port} cannot be reached ({visible(reason)}); check the name, the port and the network"
        )


def _ask(host: str, port: int, patience: float, answers: list[str]) -> None:
    try:
        socket.create_connection((host, port), timeout=patience).close()
    except (OSError, UnicodeError) as error:
        answers.append(getattr(error, "strerror", None) or str(error) or type(error).__name__)
    else:
        answers.append("")


def is_loopback(host: str) -> bool:
    """Tell whether a host, with or without a port, is this machine."""
    name = urlsplit(f"//{host}").hostname or "" if not host.startswith("::") else host
    if name in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def keeps_secrets(url: str) -> bool:
    """Tell whether a secret may be sent to an address: it is https, or http on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.netloc.rpartition("@")[2]))
