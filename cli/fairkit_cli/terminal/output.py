"""What a command writes: results to standard output or a file, messages to standard error, and its exit code."""

from __future__ import annotations

import atexit
import errno
import io
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.commands import EXIT_CODES
from fairkit.errors import FairkitError
from fairkit.support.escaping import json_text, visible
from fairkit.support.timings import cpu_seconds, phase, running, timed
from fairkit_cli import BEGUN
from fairkit_cli.terminal.plain import folded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from fairkit.progress import Progress
    from fairkit_registry.evidence.signers import Signer


PASSED, FAILED, USAGE, INCONCLUSIVE, BUG, INTERRUPTED = 0, 1, 2, 3, 70, 130
"""The exit codes of every command."""


class OutputError(FairkitError, OSError):
    """Standard output that does not take what is written to it."""


def exit_code(verdict: str | None) -> int:
    """Return the exit code of a verdict; None is no policy."""
    return EXIT_CODES[verdict]


def echo(*lines: str) -> None:
    """Print lines for people; what acts on a terminal is shown instead, and no name begins a line (see `visible`)."""
    terminal = sys.stdout.isatty()
    put("".join(f"{part}\n" for line in lines or ("",) for part in folded(visible(line), terminal=terminal)))


def record_text(value: Any) -> str:
    """Return a result as JSON, with the timings taken so far where --timings asks for them."""
    taken = running()
    if taken is not None and isinstance(value, dict):
        value = value | {"timings": taken.to_dict()}
    return json_text(value) + "\n"


def print_json(value: Any) -> None:
    """Print a result for programs."""
    put(record_text(value))


def print_as(output_format: str, record: Any, *lines: str) -> None:
    """Print a result for programs where the format is ``json``, else its lines for people."""
    if output_format == "json":
        print_json(record)
    else:
        echo(*lines)


def json_lines(records: Iterable[Any]) -> str:
    """Return records as a JSON list with a line for each: an indented one takes long for thousands."""
    return "[" + ",\n".join(json_text(record.to_dict(), indent=None) for record in records) + "]"


def put(text: str) -> None:
    """Write text to standard output as it is, and flush it: an error is found here, not when the process ends."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        give_up()
        raise _output_error(error) from error


def flush() -> None:
    """Flush standard output."""
    put("")


def give_up() -> None:
    """Throw away what standard output does not take, so that the end of the process does not try it again."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def _output_error(error: OSError) -> OutputError:
    if error.errno == errno.EPIPE:
        return OutputError("the program that reads the output closed it before all was written")
    return OutputError(
        f"the result cannot be written to standard output: {error.strerror or error}; "
        "write it to a file with --output FILE, or check where the output goes"
    )


def write(text: Callable[[bool], str], output: Path | None = None, *, verdict: str | None = None) -> None:
    """Print what is made for a terminal (True) or else (False), or write the latter to a file and tell its verdict."""
    from fairkit.support.files import write_atomic

    with phase("write"):
        if output is None:
            put(text(sys.stdout.isatty()))
            return
        write_atomic(output, text(False))
    say(f"wrote {output}{', verdict ' + verdict if verdict else ''}")


def say(message: str) -> None:
    """Print a message on standard error; its further lines are indented, so that none of them looks like another.

    A standard error that takes nothing is passed over: there is nobody to tell.
    """
    lines = f"fairkit: {visible(message, lines=True)}".replace("\n", "\n  ").split("\n")
    text = "\n".join(part for line in lines for part in folded(line, terminal=sys.stderr.isatty()))
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 -- the one place
    except (OSError, ValueError):
        return


def prepare() -> None:
    """Make the standard streams fit to be written to; once, before anything else.

    A stream that was closed is replaced, so that no file of ours takes its number: what is written to it is an error
    that is noticed. A character that a stream's encoding lacks is written as an escape. Warnings of libraries, which
    may quote names from the data, are shown as messages.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 -- a number, kept open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show


def _show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    say(f"{category.__name__}: {message}")


# Signals that end a command as Ctrl-C does, and last: extension modules may swallow a KeyboardInterrupt.


AGAIN = 0.5
"""Seconds after which an interrupt that nobody acts on is sent again."""

_handled: list[signal.Signals] = []
"""The signals that `lasting_interrupts` handles now."""


_ENDING = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
"""Ctrl-C, the request to end, the terminal that was closed."""


def _end(number: int, frame: Any) -> None:
    """End the process with the code of an interrupt."""
    os._exit(INTERRUPTED)


def _ordinary() -> list[signal.Signals]:
    """Return the signals that nobody else handles."""
    usual = (signal.default_int_handler, signal.SIG_DFL, _end)
    return [number for number in _ENDING if signal.getsignal(number) in usual]


@contextmanager
def lasting_interrupts() -> Iterator[None]:
    """Within the block, repeat an interrupt until a KeyboardInterrupt leaves it or is being dealt with.

    SIGTERM and SIGHUP are taken as Ctrl-C is. What tidies up after an interrupt is not interrupted by the
    repetition, only by another signal. Outside the main thread, or where somebody else handles a signal, nothing
    changes.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main or not (handled := _ordinary()):
        yield
        return
    left, repeated = threading.Event(), threading.Event()

    def repeat() -> None:
        if not left.wait(AGAIN) and main.ident is not None:
            repeated.set()
            signal.pthread_kill(main.ident, handled[0])  # a job in the background may be deaf to SIGINT

    def interrupt(number: int, frame: Any) -> None:
        is_ours = repeated.is_set()
        repeated.clear()
        threading.Thread(target=repeat, daemon=True).start()
        if not (is_ours and isinstance(sys.exc_info()[1], KeyboardInterrupt)):
            raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in handled}
    _handled[:] = handled
    try:
        yield
    finally:
        left.set()
        _handled.clear()
        for one, handler in before.items():
            if not _own_process:
                signal.signal(one, handler)
            elif signal.getsignal(one) is not signal.SIG_IGN:
                signal.signal(one, _end)  # never the default: its exit code would be the signal's


_own_process = False
_PROCESS = os.getpid()


def own_process() -> None:
    """Say that the process is the command's: nothing comes after it, so that what it ignores may stay ignored.

    From here to its end a signal gives the code of an interrupt, or nothing where the result is in place.
    """
    global _own_process  # noqa: PLW0603 -- it is true of the process
    _own_process = True
    end_at_once()
    # run last: the interpreter's own end gives signals their default back
    atexit.register(_deaf)


def _deaf() -> None:
    if hasattr(signal, "pthread_sigmask") and os.getpid() == _PROCESS:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def finished() -> None:
    """From here on, ignore signals: the result is about to be in place, and the exit code shall say what it is.

    What is left must be quick. Ends with the block of `lasting_interrupts`, or with the process where it is the
    command's own.
    """
    for number in _handled:
        signal.signal(number, signal.SIG_IGN)


def end_at_once() -> None:
    """From here on, let a signal end the process with the code of an interrupt: only its last steps are left."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _ordinary():
        signal.signal(number, _end)


# Progress, and what commands of plugins print with.


PAUSE = 15.0
"""Seconds between two lines of progress where there is no terminal."""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Return a function that draws progress on stderr; where that is no terminal, it writes a line now and then."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    from fairkit_cli.terminal.plain import messages, shown

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%", markup=False),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}", markup=False),
    )
    with Progress(*columns, console=messages(), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(doing: str, done: int, total: int, **values: float) -> None:
            now = "  ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in values.items())
            if doing not in tasks:
                tasks[doing] = bar.add_task(shown(doing), total=total or None, now="")
            bar.update(tasks[doing], completed=done, total=total or None, now=shown(now))

        yield show


def _lines() -> Progress:
    """Return a function that says how far long work is, one line in so many seconds (`PAUSE`)."""
    begun = last = time.monotonic()

    def show(doing: str, done: int, total: int, **values: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PAUSE:
            last = now
            say(f"{doing}{f', {done:,} of {total:,}' if total else ''}; {now - begun:,.0f} s so far")

    return show


class Terminal:
    """The console of `fairkit.commands`."""

    def say(self, message: str) -> None:
        """Print a message on standard error."""
        say(message)

    def write(self, text: str) -> None:
        """Print lines of the result on standard output."""
        write(lambda terminal: "\n".join(part for line in text.split("\n") for part in folded(line, terminal=terminal)))

    def json(self, value: Any) -> None:
        """Print the result for programs."""
        print_json(value)

    def progress(self) -> AbstractContextManager[Progress]:
        """Draw progress while something is done."""
        return progress_bar()


# Passphrases of secret keys: from a file or descriptor, else from the terminal.


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

    try:
        return getpass.getpass(visible(text), stream=sys.stderr)
    except EOFError:
        raise FairkitError("no passphrase was typed") from None


# `fairkit --timings COMMAND`: the phases of a run, on stderr and in JSON.


@contextmanager
def told(wanted: bool) -> Iterator[None]:
    """Time what is done meanwhile, and print it; nothing where it is not wanted."""
    if not wanted:
        yield
        return
    with timed() as taken:
        taken.add("start", time.perf_counter() - BEGUN, cpu_seconds())
        try:
            yield
        finally:
            say("\n".join(["timings", *lines(taken.to_dict())]))


def lines(record: dict[str, Any]) -> list[str]:
    """Return timings as lines for a person: each phase with its share of the processor time."""
    whole = max(record["cpu_seconds"], 1e-9)
    told = [f"{'phase':<14}{'wall s':>9}{'cpu s':>9}{'share':>8}"]
    for each in [*record["phases"], {**record, "phase": "all"}]:
        share = f"{each['cpu_seconds'] / whole:.0%}"
        told.append(f"{each['phase']:<14}{each['wall_seconds']:>9.2f}{each['cpu_seconds']:>9.2f}{share:>8}")
    peak = record["peak_memory_mib"]
    return told if peak is None else [*told, f"peak memory {peak:,.0f} MiB"]
