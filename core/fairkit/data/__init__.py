"""Data: tables with roles, read in batches from files, folders and frames; groups, profiles and digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.lazy_package import lazy_names

if TYPE_CHECKING:
    from fairkit.data.arrow_types import Batch
    from fairkit.data.dataset import Dataset
    from fairkit.data.loading import load_data
    from fairkit.data.roles import Roles, Sensitive

__all__ = ["Batch", "Dataset", "Roles", "Sensitive", "load_data"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {"Batch": ".dataset", "Dataset": ".dataset", "Roles": ".roles", "Sensitive": ".roles", "load_data": ".dataset"},
)
