"""Columns of lists, such as embeddings: the list column `emb` of length 3 is read as `emb[0]`, `emb[1]`, `emb[2]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairkit.data.arrow import as_arrow, as_numpy
from fairkit.data.parts import PartOf
from fairkit.data.source import check_names, unreadable
from fairkit.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from fairkit.data.parts import Part, Types

_PLACE = re.compile(r"(.*)\[(\d+)\]", re.DOTALL)


def list_columns(columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns of each list by its name, in order: ``{"emb": ["emb[0]", "emb[1]"]}``.

    Only names whose places are 0, 1, ... without gaps count, and no name of a column.
    """
    lists: dict[str, dict[int, str]] = {}
    for column in columns:
        parts = _PLACE.fullmatch(column)
        if parts is not None and column == f"{parts[1]}[{int(parts[2])}]":
            lists.setdefault(parts[1], {})[int(parts[2])] = column
    return {
        name: [places[place] for place in range(len(places))]
        for name, places in lists.items()
        if max(places) == len(places) - 1 and name not in columns
    }


def spread(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Put the columns of a list in the place of its name; other names stay as they are."""
    lists = list_columns(columns)
    return [column for name in names for column in lists.get(name, [name])]


def shortened(names: Sequence[str], most: int | None = None) -> str:
    """Join names for a message, at most `most`, the columns of a list as ``emb[0] to emb[767]``."""
    lists = list_columns(names)
    of = {column: name for name, places in lists.items() for column in places if len(places) > 2}
    shown = [f"{of[name]}[0] to {lists[of[name]][-1]}" if name in of else name for name in names]
    distinct = list(dict.fromkeys(shown))
    more = f", ... ({len(names)} in all)" if most is not None and len(distinct) > most else ""
    return ", ".join(distinct[:most]) + more


def with_lists(parts: Sequence[Part], table: str) -> tuple[tuple[Part, ...], dict[str, str]]:
    """Return parts whose columns of lists of numbers are columns of numbers, as many as the first list has.

    Beside them: by column of lists that have no such length, why.
    """
    lengths: dict[str, int] = {}
    torn: dict[str, str] = {}
    names = [field.name for field in parts[0].schema() if is_list(field.type)]
    for part in parts:
        for name in names:
            if name not in lengths and name not in torn:
                try:
                    lengths |= _lengths(part, [name])
                except DataError as error:
                    torn[name] = str(error)
    if not lengths:
        return tuple(parts), torn
    wide = tuple(ListPart(part, lengths) for part in parts)
    check_names(table, wide[0].schema())
    return wide, torn


@dataclass(frozen=True, slots=True)
class ListPart(PartOf):
    """A part with columns of lists, each read as a column for each place."""

    lengths: Mapping[str, int]  # the length of the lists, by column

    def schema(self) -> pa.Schema:
        """Return the schema with a column of numbers for each place of a list."""
        import pyarrow as pa

        fields = []
        for field in self.part.schema():
            if field.name not in self.lengths:
                fields.append(field)
                continue
            kind = field.type.value_type if is_list(field.type) else field.type  # as it is: text in one part
            fields += [pa.field(f"{field.name}[{place}]", kind) for place in range(self.lengths[field.name])]
        return pa.schema(fields)

    def split(self, most: int) -> list[ListPart]:
        """Cut as the other part is cut."""
        pieces = self.part.split(most) if hasattr(self.part, "split") else [self.part]
        return [ListPart(piece, self.lengths) for piece in pieces]

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read batches."""
        import pyarrow as pa

        of = {f"{name}[{place}]": name for name, length in self.lengths.items() for place in range(length)}
        stored = list(dict.fromkeys(of.get(column, column) for column in columns))
        start = 0
        for batch in self.part.read(stored, rows, types):
            known = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name in stored:
                if name in self.lengths:
                    known |= self._places(known[name], name, start)
            start += batch.num_rows
            yield pa.RecordBatch.from_arrays([known[column] for column in columns], names=list(columns))

    def _places(self, lists: Any, name: str, start: int) -> dict[str, Any]:
        """Return the columns of one list column, whose first row is number `start`."""
        import numpy as np
        import pyarrow as pa

        length = self.lengths[name]
        _check(lists, length, f"{self.name}: column {name!r}", start)
        cells = lists.flatten()
        if pa.types.is_float16(cells.type):
            cells = cells.cast(pa.float32())
        matrix = np.ascontiguousarray(as_numpy(cells).reshape(-1, length).T)
        return {f"{name}[{place}]": as_arrow(row) for place, row in enumerate(matrix)}


def _check(lists: Any, length: int, where: str, start: int) -> None:
    """Refuse lists that are missing, of another length, or that lack a number, and name the first one."""
    import numpy as np
    import pyarrow.compute as pc

    if lists.null_count:
        row = int(np.flatnonzero(as_numpy(lists.is_null()))[0])
        raise DataError(
            f"{where} has no list in row {start + row} (from 0); fill it in, or leave the row out of the file"
        )
    sizes = as_numpy(pc.list_value_length(lists))
    if (sizes != length).any():
        row = int(np.flatnonzero(sizes != length)[0])
        raise DataError(
            f"{where} has lists of different lengths: {length} numbers in the table's first list, {sizes[row]} in row "
            f"{start + row} (from 0); give all lists one length, or leave the column out of the file"
        )
    cells = lists.flatten()
    if cells.null_count:
        place = int(np.flatnonzero(as_numpy(cells.is_null()))[0])
        raise DataError(
            f"{where} has an empty cell at place {place % length} of the list in row {start + place // length} "
            "(both from 0); fill it in, or leave the row out of the file"
        )


def is_list(kind: pa.DataType) -> bool:
    """Tell whether cells are lists of numbers."""
    import pyarrow as pa

    types = pa.types
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return False
    return bool(types.is_integer(kind.value_type) or types.is_floating(kind.value_type))


def _first(part: Part, name: str) -> pa.RecordBatch | None:
    """Read the first row."""
    import pyarrow as pa

    try:
        return next(iter(part.read([name], 1, {})), None)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise unreadable(part.name, error, "") from error


def _lengths(part: Part, names: Sequence[str]) -> dict[str, int]:
    """Return the length of the lists by column: as the schema says, else that of the first list, if there is one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths, schema = {}, part.schema()
    for name in names:
        kind = schema.field(name).type if name in schema.names else pa.null()
        if pa.types.is_fixed_size_list(kind):
            length = kind.list_size
        else:
            first = _first(part, name) if is_list(kind) else None
            if first is None or not first.num_rows:
                continue
            length = pc.list_value_length(first.column(0))[0].as_py()
        if length is None:
            raise DataError(
                f"{part.name}: column {name!r} has no list in row 0 (from 0); fill it in, or leave the row out of the "
                "file"
            )
        if not length:
            raise DataError(f"{part.name}: the lists of column {name!r} are empty; leave the column out of the file")
        lengths[name] = length
    return lengths
