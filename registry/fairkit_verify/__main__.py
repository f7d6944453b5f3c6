"""`python -m fairkit_verify`."""

from fairkit_verify.command import run

run()
