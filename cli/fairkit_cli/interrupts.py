"""Ctrl-C that lasts: extension modules may swallow a KeyboardInterrupt, above all while they are imported."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

AGAIN = 0.5
"""Seconds after which an interrupt that nobody acts on is sent again."""


@contextmanager
def lasting_interrupts() -> Iterator[None]:
    """Within the block, repeat Ctrl-C until a KeyboardInterrupt leaves it or is being dealt with.

    What tidies up after an interrupt is not interrupted by the repetition, only by another Ctrl-C. Outside the main
    thread, or where somebody else handles the signal, nothing changes.
    """
    main = threading.main_thread()
    ordinary = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if threading.current_thread() is not main or not ordinary:
        yield
        return
    left, repeated = threading.Event(), threading.Event()

    def repeat() -> None:
        if not left.wait(AGAIN) and main.ident is not None:
            repeated.set()
            signal.pthread_kill(main.ident, signal.SIGINT)

    def interrupt(number: int, frame: Any) -> None:
        own = repeated.is_set()
        repeated.clear()
        threading.Thread(target=repeat, daemon=True).start()
        if not (own and isinstance(sys.exc_info()[1], KeyboardInterrupt)):
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        left.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
