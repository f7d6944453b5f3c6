"""Passphrases of secret keys: from a file or descriptor, else from the terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit.errors import FairkitError
from fairkit_cli.terminal.output import say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairkit_registry.evidence.signers import Signer


def load_signers(keys: Iterable[str | Path], *, insecure: bool) -> list[Signer]:
    """Open the keys to sign with; the passphrase of an encrypted one is asked for once."""
    from fairkit_registry.evidence.signers import load_secret

    return [load_secret(key, insecure=insecure, passphrase=ask) for key in keys]


def ask(what: str) -> str:
    """Return the passphrase of something: from the file, else asked for on the terminal."""
    from fairkit_registry.evidence.signers import FILE, written_passphrase

    if os.environ.get(FILE) or not _has_terminal():
        return written_passphrase(what)
    return _prompt(f"Passphrase of {what}: ")


def choose(path: Path) -> str | None:
    """Return the passphrase of a new key; None, with a note, where there is neither a file nor a terminal."""
    from fairkit_registry.evidence.signers import FILE, written_passphrase

    if os.environ.get(FILE):
        return written_passphrase(str(path))
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
