"""Data in object stores: Parquet and CSV files in S3, Google Cloud Storage and Azure, read where they lie."""

from __future__ import annotations

import fairkit
from fairkit.sources import Address, DataSource, Files
from fairkit_stores import STORES, files_at, origin_of, secret_host

FAIRKIT_INTERFACE = 1


class _Store(DataSource):
    """Files in a bucket."""

    def open(self, address: Address) -> Files:
        """Return the file, the folder's files, or those of a glob, as they are now."""
        files = files_at(address)
        name = address.key.rstrip("/").rpartition("/")[2] or address.bucket
        return Files(name=name, files=files, origin=origin_of(address, self.name, files))

    @classmethod
    def secret_host(cls, address: Address) -> str | None:
        """Return another server than the store's own."""
        return secret_host(address)


class S3(_Store):
    """A file, a folder or a glob in S3 or a store that speaks its protocol: s3://bucket/loans.parquet."""

    name = "s3"
    schemes = ("s3",)
    options = STORES["s3"]


class GoogleStorage(_Store):
    """A file, a folder or a glob in Google Cloud Storage: gs://bucket/loans.parquet."""

    name = "gs"
    schemes = ("gs",)
    options = STORES["gs"]


class AzureStorage(_Store):
    """A file, a folder or a glob in Azure: abfs://container@account.dfs.core.windows.net/loans.parquet."""

    name = "abfs"
    schemes = ("abfs", "abfss")
    options = STORES["abfs"]


@fairkit.hookimpl
def fairkit_sources() -> list[type[DataSource]]:
    """Offer the stores."""
    return [S3, GoogleStorage, AzureStorage]
