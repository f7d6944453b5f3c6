"""Where tables lie: addresses, and the interface of sources."""

from __future__ import annotations

from fairkit.sources.address import Address, check_reachable, masked, order_notes, said
from fairkit.sources.interface import Counting, DataSource, Files, Records, StoredFile

__all__ = [
    "Address", "Counting", "DataSource", "Files", "Records", "StoredFile", "check_reachable", "masked", "order_notes",
    "said",
]  # fmt: skip
