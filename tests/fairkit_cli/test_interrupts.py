"""Ctrl-C reaches its end: it is repeated where it was swallowed, and does not disturb tidying up."""

import signal
import subprocess
import sys

import pytest

SWALLOWED = """
import os, signal, time
from fairkit_cli.terminal.output import lasting_interrupts
try:
    with lasting_interrupts():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(20)
        except KeyboardInterrupt:
            pass  # as an extension module does that is being imported
        time.sleep(20)
        print("went on")
except KeyboardInterrupt:
    print("ended")
"""

TIDYING = """
import os, signal, time
from fairkit_cli.terminal.output import AGAIN, lasting_interrupts
try:
    with lasting_interrupts():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(20)
        finally:
            time.sleep(3 * AGAIN)
            print("tidied up")
except KeyboardInterrupt:
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def _printed(script):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split("\n")[:-1]


def test_an_interrupt_that_was_swallowed_comes_again():
    assert _printed(SWALLOWED) == ["ended"]


@pytest.mark.long
def test_tidying_up_is_left_alone():
    assert _printed(TIDYING) == ["tidied up", "True"]


def test_elsewhere_nothing_changes():
    from fairkit_cli.terminal.output import lasting_interrupts

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with lasting_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
