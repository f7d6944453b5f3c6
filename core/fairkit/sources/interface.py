"""The interface of sources: where tables lie that are named by an address, such as ``s3://bucket/loans.parquet``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from fairkit.sources.address import Address
    from fairkit.sources.stored import StoredFile


def _nothing() -> None:
    """Close nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A table that is files: they are read where they lie, as often as needed, each time checked to be unchanged.

    Attributes
    ----------
    name
        What reports call the table.
    files
        Its files in the order of their rows: Parquet, or CSV.
    origin
        What a report and a certificate say about where the table is: JSON values, no secret.
    notes
        Sentences that a report keeps beside the data.
    schema
        The columns of the whole table, where files may lack some (which are then missing values); None where all
        files have all columns.
    constants
        For each file the values of columns that do not stand in it; empty where there are none.
    """

    name: str
    files: Sequence[StoredFile]
    origin: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    schema: pa.Schema | None = None
    constants: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Counting:
    """Where the rows of a query can be counted, so that totals travel and rows do not (engine ``sql``).

    `dialect`: the SQL of the engine, by the name that ibis gives it, such as ``postgres``; `query`: the SELECT whose
    rows are the table; `run`: runs one SELECT, in the transaction in which the rows would be read, and returns its
    rows.
    """

    dialect: str
    query: str
    run: Callable[[str], pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """A table that may look otherwise when it is read again: it is read once, to a snapshot in a temporary file.

    Attributes
    ----------
    name
        What reports call the table.
    schema
        Its columns.
    batches
        Its rows, in order; all have the schema.
    origin
        What a report and a certificate say about where the table is: JSON values, no secret.
    notes
        Sentences that a report keeps beside the data.
    close
        Called when the rows were read, or when that failed.
    counting
        Where its rows can be counted instead; `batches` are then asked for late, or never. None: nowhere.
    """

    name: str
    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    origin: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    close: Callable[[], None] = field(default=_nothing)
    counting: Any = None


class DataSource(ABC):
    r"""Where tables are that an address names: ``--data SCHEME:LOCATION?OPTION=VALUE``, and `fairkit.load_data`.

    A complete plugin, in a module ``my_source.py`` whose distribution declares the entry point
    ``[project.entry-points.fairkit] my-source = "my_source"``::

        from __future__ import annotations

        import fairkit
        from fairkit.sources import DataSource, Records


        class JsonLines(DataSource):
            "A file with a JSON record in each line: jsonl:people.jsonl."

            name = "json-lines"
            schemes = ("jsonl",)

            def open(self, address):
                import pyarrow.json

                table = pyarrow.json.read_json(address.location)
                origin = {"kind": self.name, "address": address.text}
                return Records(
                    name=address.location, schema=table.schema, batches=table.to_batches(), origin=origin
                )

            @classmethod
            def example(cls, folder):
                (folder / "people.jsonl").write_text('{"sex": "f", "hired": 1}\n{"sex": "m", "hired": 0}\n')
                return f"jsonl:{folder / 'people.jsonl'}"


        @fairkit.hookimpl
        def fairkit_sources():
            return [JsonLines]

    Attributes
    ----------
    name
        Lower case words joined by hyphens.
    schemes
        What its addresses begin with, in lower case, of two letters or more.
    options
        The names that may follow ``?`` in an address, each with what it means; others are refused before `open`.
    """

    name: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    options: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def open(self, address: Address) -> Files | Records:
        """Return the table, or raise.

        What a library raises becomes one message without secrets. Reading the rows comes later: here it is found out
        whether the table is there, within ten seconds.

        Parameters
        ----------
        address
            With one of `schemes`, and with `options` only.

        Raises
        ------
        DataError
            There is no such table, or it cannot be reached.
        """

    @classmethod
    def secret_host(cls, address: Address) -> str | None:
        """Return the host that the address names and that secrets of the environment would be sent to; None: no such.

        A configuration file may name such a host only if the user trusts it. By default: any host behind ``//``.
        """
        if address.slashes:
            return address.host()[1]
        return address.location.partition("://")[2].partition("/")[0] or None

    @classmethod
    def example(cls, folder: Path) -> str | None:
        """Make a small table in a folder and return its address, for the contract checks; None: it needs a server."""
        return None
