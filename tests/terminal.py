"""A pseudo-terminal: what a person sees of a command, and of a page of the documentation that is typed into it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COLUMNS = 80
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def typed(command: str, folder: Path, *, columns: int = COLUMNS, key: bytes = b"\x04", **more: str) -> tuple[str, int]:
    """Run a shell's command on a terminal of so many columns; return what stays on the screen, and the exit code.

    While it is silent a `key` is pressed: a command that asks gets the end of input, and ends with an error.
    """
    size = struct.pack("HHHH", 50, columns, 0, 0)
    child, screen = pty.fork()
    if child == 0:  # pragma: no cover -- another process
        fcntl.ioctl(0, termios.TIOCSWINSZ, size)
        os.chdir(folder)
        os.environ.pop("COLUMNS", None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what runs in the background stays when this terminal is gone
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.environ |= {"TERM": "xterm-256color", "PATH": path, **more}
        os.execvp("bash", ["bash", "-ec", command])
    shown, status = b"", None
    with contextlib.suppress(OSError):  # the other side is closed
        while True:
            if select.select([screen], [], [], 0.3)[0]:
                shown += os.read(screen, 1 << 16)
            elif status is not None:
                break
            elif (done := os.waitpid(child, os.WNOHANG))[0]:  # what it left in the background keeps the terminal open
                status = done[1]
            else:
                os.write(screen, key)
    os.close(screen)
    status = os.waitpid(child, 0)[1] if status is None else status
    return _settled(shown.decode("utf-8", "replace")), os.waitstatus_to_exitcode(status)


def assert_readable(shown: str) -> None:
    """Refuse codes on the screen and lines that are longer than it."""
    assert not re.search(r"\x1b|\[\d+m", shown), shown
    # who types ahead sees the answer's line end before the question
    lines = re.sub("^  Number or name: ", "", shown, flags=re.MULTILINE).splitlines()
    wide = [line for line in lines if len(line) > COLUMNS and max(map(len, line.split())) < 60]
    assert wide == [], wide  # an address is not broken


_BLOCK = re.compile(r"^```(sh|python|toml)(?: exit=(\d+))?\n(.*?)^```", re.DOTALL | re.MULTILINE)


def typed_page(
    page: str, folder: Path, *, kinds: Sequence[str] = ("sh", "python"), cumulative: bool = False, follow: bool = True,
    demo: Path | None = None, **more: Any,
) -> list[str]:  # fmt: skip
    """Run a page's blocks in order, each with the exit code that it states; return what each of the shell's shows.

    Python blocks see what those before them did, if they are `cumulative`; a block of `kinds` that is TOML becomes
    fairkit.toml, and is audited. Blocks `follow` a shell to where it went. Where there is a `demo`, that
    folder is what `fairkit demo --keep` makes. A passphrase is read from a
    file, so that none is asked for.
    """
    python, screens, here = "", [], folder / ".here"
    here.write_text(str(folder))
    (folder / ".passphrase").write_text("a long passphrase")
    (folder / ".passphrase").chmod(0o600)
    more |= {"FAIRKIT_KEY_PASSPHRASE_FILE": str(folder / ".passphrase"), "XDG_STATE_HOME": str(folder / ".state")}
    blocks = [one for one in _BLOCK.findall((ROOT / page).read_text("utf-8")) if one[0] in kinds]
    assert blocks, page
    for kind, code, text in blocks:
        at = Path(here.read_text().strip()) if follow else folder
        if kind == "python":
            python = python + text if cumulative else text
            run = [sys.executable, "-W", "ignore", "-c", python]
            env = os.environ | {name: text for name, text in more.items() if name.isupper()}
            done = subprocess.run(run, cwd=at, env=env, capture_output=True, text=True, check=False)
            shown, ended = done.stdout + done.stderr, done.returncode
        else:
            if kind == "toml":
                (at / "fairkit.toml").write_text(text)
            shell = re.sub(r"^pip install .*$", "", "fairkit audit" if kind == "toml" else text, flags=re.MULTILINE)
            if demo is not None:
                shell = re.sub(r"^fairkit demo --keep (\w+)$", rf"cp -r {demo} \1", shell, flags=re.MULTILINE)
            shown, ended = typed(f"trap 'pwd > {here}' EXIT\n{shell}", at, **more)
            assert_readable(shown)
            screens.append(shown)
        assert ended == int(code or 0), f"{text}\nexit code {ended}\n{shown}"
        assert "Traceback" not in shown, shown
    return screens


def _settled(shown: str) -> str:
    """Return the lines without colours, and without the bars of progress that were wiped again."""
    lines = []
    for line in shown.replace("\r\n", "\n").split("\n"):
        text = _CODES.sub("", line.rpartition("\x1b[2K")[2]).rpartition("\r")[2]
        if not re.search("━━", text):
            lines.append(text.rstrip())
    return "\n".join(lines).replace("^D\b\b", "").strip("\n")
