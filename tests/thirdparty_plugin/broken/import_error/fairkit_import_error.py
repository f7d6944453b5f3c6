"""Breaks when it is imported."""

from __future__ import annotations

from fairkit.metrics import NoSuchName  # noqa: F401
