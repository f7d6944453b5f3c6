"""The `fairkit` command."""

import time

BEGUN = time.perf_counter()
"""When the command began: before anything heavier than this was imported."""
