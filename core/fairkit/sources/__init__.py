"""Where tables lie: addresses, and the interface of sources."""

from __future__ import annotations

from fairkit.sources.address import Address, order_notes
from fairkit.sources.interface import Counting, DataSource, Files, Records
from fairkit.sources.reach import check_reachable
from fairkit.sources.secrets import masked, said
from fairkit.sources.stored import StoredFile

__all__ = [
    "Address",
    "Counting",
    "DataSource",
    "Files",
    "Records",
    "StoredFile",
    "check_reachable",
    "masked",
    "order_notes",
    "said",
]
