"""Checks on sources of data: the same table twice, plain options, messages in place of what libraries raise."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from fairkit.data.sources import open_with
from fairkit.errors import DataError, FairkitError
from fairkit.sources import Address
from fairkit_testing.require import require

if TYPE_CHECKING:
    from fairkit.data.source import Source
    from fairkit.sources import DataSource

SECRET = "Open-Sesame-9"  # noqa: S105 -- a word that no message may show
_ROWS = 1_000


def check_source_reads(cls: type[DataSource]) -> None:
    """The example is a table: it can be read again and again, and opened anew it is the same table."""
    with tempfile.TemporaryDirectory(prefix="fairkit-check-") as folder:
        address = cls.example(Path(folder))
        if address is None:
            return
        opened = open_with(cls, address)
        first, again = _content(opened), _content(opened)
        require(first, "the example has no rows; an example shows what is read")
        require(first == again, "the second reading of the opened table gives other rows")
        require(_content(open_with(cls, address)) == first, "opened anew, the example gives other rows")


def check_source_origin(cls: type[DataSource]) -> None:
    """What reports say about the example is JSON, names the address and not what follows its question mark."""
    with tempfile.TemporaryDirectory(prefix="fairkit-check-") as folder:
        address = cls.example(Path(folder))
        if address is None:
            return
        source = open_with(cls, address)
        json.dumps(dict(source.origin), allow_nan=False)
        for key, kept in (("kind", cls.name), ("address", Address.parse(address).text)):
            require(source.origin.get(key) == kept, f"origin[{key!r}] is {source.origin.get(key)!r}, not {kept!r}")
        require(source.name and "?" not in source.name, f"the table's name is {source.name!r}; keep it short")


def check_source_absent(cls: type[DataSource]) -> None:
    """A table that is not there is one DataError, which shows no password."""
    with tempfile.TemporaryDirectory(prefix="fairkit-check-") as folder:
        if cls.example(Path(folder)) is None:
            return
        try:
            _content(open_with(cls, f"{cls.schemes[0]}:{Path(folder) / 'not' / 'there'}"))
        except FairkitError as error:
            require(isinstance(error, DataError), f"it raises {type(error).__name__}; raise fairkit.DataError")
            require("\n" not in str(error), "the message for a table that is not there has several lines")
        else:
            require(False, "a table that is not there was read; raise fairkit.DataError")


def check_source_secrets(cls: type[DataSource]) -> None:
    """An address with a user and a password, or with an option that the source does not have, is refused unshown."""
    scheme = cls.schemes[0]
    for address in (f"{scheme}://me:{SECRET}@host/name", f"{scheme}://host/name?x-{SECRET}=1"):
        try:
            open_with(cls, address)
        except FairkitError as error:
            require(SECRET not in str(error), f"the message shows what stood in the address: {error}")
        else:
            require(False, "an address with a password or an unknown option was opened")
    for option, meaning in cls.options.items():
        require(option == option.lower() and option.isidentifier(), f"the option {option!r} is no lower-case word")
        require(len(meaning) > 5, f"say what the option {option!r} means")


def _content(source: Source) -> list[object]:
    return [batch.to_pylist() for batch in source.batches(source.columns, _ROWS)]


CHECKS = (check_source_reads, check_source_origin, check_source_absent, check_source_secrets)
