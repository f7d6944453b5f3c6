"""A pseudo-terminal: what a person sees of a command."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

COLUMNS = 80
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def typed(command: str, folder: Path, *, columns: int = COLUMNS) -> tuple[str, int]:
    """Run a shell's command on a terminal of so many columns; return what stays on the screen, and the exit code.

    A command that asks gets the end of input, and ends with an error.
    """
    size = struct.pack("HHHH", 50, columns, 0, 0)
    child, screen = pty.fork()
    if child == 0:  # pragma: no cover -- another process
        fcntl.ioctl(0, termios.TIOCSWINSZ, size)
        os.chdir(folder)
        os.environ.pop("COLUMNS", None)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.environ |= {"TERM": "xterm-256color", "PATH": path}
        os.execvp("bash", ["bash", "-c", command])
    os.write(screen, b"\x04")
    shown = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while chunk := os.read(screen, 1 << 16):
            shown += chunk
    os.close(screen)
    _, status = os.waitpid(child, 0)
    return _settled(shown.decode("utf-8", "replace")), os.waitstatus_to_exitcode(status)


def _settled(shown: str) -> str:
    """Return the lines without colours, and without the bars of progress that were wiped again."""
    lines = []
    for line in shown.replace("\r\n", "\n").split("\n"):
        text = _CODES.sub("", line.rpartition("\x1b[2K")[2]).rpartition("\r")[2]
        if not re.search("━━", text):
            lines.append(text.rstrip())
    return "\n".join(lines).replace("^D\b\b", "").strip("\n")
