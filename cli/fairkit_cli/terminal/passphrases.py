"""Passphrases of secret keys: from a file or descriptor, else from the terminal."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit.errors import FairkitError
from fairkit_cli.terminal.output import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairkit_registry.evidence.signers import Signer

FILE = "FAIRKIT_KEY_PASSPHRASE_FILE"
"""The environment variable that names a file with the passphrase in its first line; /dev/fd/3 is a descriptor."""

_LONGEST = 4096


def load_signers(keys: Iterable[str | Path], *, insecure: bool) -> list[Signer]:
    """Open the keys to sign with; the passphrase of an encrypted one is asked for once."""
    from fairkit_registry.evidence.signers import load_secret

    return [load_secret(key, insecure=insecure, passphrase=ask) for key in keys]


def ask(what: str) -> str:
    """Return the passphrase of something: from the file, else asked for on the terminal."""
    if os.environ.get(FILE):
        return _from_file(os.environ[FILE])
    if not _has_terminal():
        raise FairkitError(
            f"{what} needs a passphrase, and there is no terminal to ask for it: set {FILE} to a file that holds "
            "it in its first line (mode 0600), or to a descriptor such as /dev/fd/3"
        )
    return _prompt(f"Passphrase of {what}: ")


def choose(path: Path) -> str | None:
    """Return the passphrase of a new key; None, with a note, where there is neither a file nor a terminal."""
    if os.environ.get(FILE):
        return _from_file(os.environ[FILE])
    if not _has_terminal():
        say(
            f"note: the secret key {path} is written without encryption: there is no terminal to ask for a "
            f"passphrase, and {FILE} names no file. --no-passphrase says that this is meant"
        )
        return None
    typed = _prompt(f"Passphrase for the new key {path}: ")
    if _prompt("Again: ") != typed:
        raise FairkitError("the two passphrases differ; nothing is written")
    return typed


def _has_terminal() -> bool:
    """Whether somebody can be asked: with either of the two redirected, the command runs in a script."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty())


def _prompt(text: str) -> str:
    import getpass

    from fairkit.support.escaping import visible

    try:
        return getpass.getpass(visible(text), stream=sys.stderr)
    except EOFError:
        raise FairkitError("no passphrase was typed") from None


@functools.cache
def _from_file(name: str) -> str:
    """Read the first line, once: a pipe gives it only once, and several keys may ask."""
    from fairkit_registry.evidence.signers import check_private

    path = Path(name)
    try:
        check_private(path, "passphrase file", f"({FILE} names it)")
        with path.open("rb") as handle:
            line = handle.readline(_LONGEST).rstrip(b"\r\n")
        passphrase = line.decode("utf-8")
    except OSError as error:
        raise FairkitError(f"cannot read the passphrase in {path} ({FILE}): {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise FairkitError(f"the passphrase in {path} ({FILE}) is not UTF-8") from None
    if not passphrase:
        raise FairkitError(f"the first line of {path} ({FILE}) is empty; it is to hold the passphrase")
    return passphrase
