"""Where tables lie: addresses, the interface of sources, and files in object stores."""

from __future__ import annotations

from fairkit.sources.address import Address, order_notes
from fairkit.sources.interface import DataSource, Files, Records
from fairkit.sources.reach import check_reachable
from fairkit.sources.secrets import masked, said
from fairkit.sources.stored import StoredFile
from fairkit.sources.stores import STORES, files_at, found_files, origin_of, secret_host, server_of, store

__all__ = [
    "STORES",
    "Address",
    "DataSource",
    "Files",
    "Records",
    "StoredFile",
    "check_reachable",
    "files_at",
    "found_files",
    "masked",
    "order_notes",
    "origin_of",
    "said",
    "secret_host",
    "server_of",
    "store",
]
