"""Signals that end a command as Ctrl-C does, and last: extension modules may swallow a KeyboardInterrupt."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

AGAIN = 0.5
"""Seconds after which an interrupt that nobody acts on is sent again."""

CODE = 130

_handled: list[signal.Signals] = []
"""The signals that `lasting_interrupts` handles now."""


_ENDING = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
"""Ctrl-C, the request to end, the terminal that was closed."""


def _end(number: int, frame: Any) -> None:
    """End the process with the code of an interrupt."""
    os._exit(CODE)


def _ordinary() -> list[signal.Signals]:
    """Return the signals that nobody else handles."""
    usual = (signal.default_int_handler, signal.SIG_DFL, _end)
    return [one for one in _ENDING if signal.getsignal(one) in usual]


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
        own = repeated.is_set()
        repeated.clear()
        threading.Thread(target=repeat, daemon=True).start()
        if not (own and isinstance(sys.exc_info()[1], KeyboardInterrupt)):
            raise KeyboardInterrupt

    before = {one: signal.signal(one, interrupt) for one in handled}
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
    for one in _handled:
        signal.signal(one, signal.SIG_IGN)


def end_at_once() -> None:
    """From here on, let a signal end the process with the code of an interrupt: only its last steps are left."""
    if threading.current_thread() is not threading.main_thread():
        return
    for one in _ordinary():
        signal.signal(one, _end)
