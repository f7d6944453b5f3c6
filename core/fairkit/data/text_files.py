"""CSV files: what a file is, what parts its cells, and which columns of digits are text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.data.arrow_types import NULL_SPELLINGS
from fairkit.data.parts import Types, opened, unchanged
from fairkit.errors import DataError
from fairkit.sources.interface import StoredFile
from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_BLOCK = 1 << 22
_PIECE = 1 << 16  # so many bytes stay in the processor's cache
FLAGS = (("True", "False"), ("true", "false"), ("TRUE", "FALSE"))
"""The spellings of true and false; a column with two of them is text."""
_CODE, _HUGE = r"^\s*0[0-9xX]", r"^\s*-?[0-9]{19,}\s*$"
"""Digits that no number gives back: 06037, 0x1F, and whole numbers that no 64 bits hold."""
_OTHERS = (
    (rb"ARROW1|FEA1|\xff\xff\xff\xff", "is a Feather (Arrow) file: write it as Parquet"),
    (rb"\s*(\[\s*)?[{\[]\s*[\"\]}{\[]", "holds JSON: write its table as CSV or Parquet"),
    (rb"PK\x03\x04|\xd0\xcf\x11\xe0", "is an Excel workbook or a zip archive: write its table as CSV or Parquet"),
    (rb"\s*<(!|\?xml|html|table)", "holds HTML or XML: write its table as CSV or Parquet"),
    (rb"\x1f\x8b|BZh[1-9]1AY|\x28\xb5\x2f\xfd|SQLite format 3|\x89HDF|%PDF|\x80[\x02-\x05]", "is no text: write a CSV"),
    (rb"\xff\xfe|\xfe\xff|.{0,64}\0", "holds UTF-16 text or bytes that are no text: save it as UTF-8"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CsvPart:
    """A CSV file, read in blocks."""

    path: Path | StoredFile
    found: pa.Schema  # the columns and their types, as far as the first block shows them
    delimiter: str = ","
    decimal: str = "."
    flags: tuple[tuple[str, str], ...] = FLAGS
    checked: list[bool] = field(default_factory=list, compare=False, repr=False)  # not empty once no code is missed

    @classmethod
    def of(cls, path: Path | StoredFile) -> Self:
        """Look at the first block of a file: later ones may need wider types. Dates are text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        with path.open() if isinstance(path, StoredFile) else pa.input_stream(str(path)) as file:
            head = file.read(_BLOCK)
        if len(head) == _BLOCK:
            head = head[: head.rfind(b"\n") + 1] or head
        delimiter, decimal = separators(head, path.name)
        part = cls(path, pa.schema([]), delimiter, decimal)
        table = part._stream(pa.BufferReader(head), None, None).read_all()
        kinds = {one.name: pa.string() if pa.types.is_temporal(one.type) else one.type for one in table.schema}
        if len(kinds) < table.num_columns:  # two of one name, which is refused
            return cls(path, table.schema)
        large = [n for n, k in kinds.items() if pa.types.is_floating(k) and _beyond(pc.min_max(table[n]).as_py())]
        ends = head, head[-32:] + b"\n"
        whole = any(zero_led(np.frombuffer(end, np.uint8), ord(delimiter)) for end in ends)
        doubtful = [n for n, k in kinds.items() if n in large or (whole and k == pa.int64()) or k == pa.bool_()]
        spelled: set[tuple[str, str]] = set()
        texts = part._stream(pa.BufferReader(head), doubtful, dict.fromkeys(doubtful, pa.string())) if doubtful else ()
        for name, column in zip(doubtful, pa.Table.from_batches(texts).columns if doubtful else (), strict=True):
            pairs = [pair for pair in FLAGS if {*column.unique().to_pylist()} <= {*pair, None}]
            if kinds[name] == pa.bool_() and pairs:
                spelled |= {pairs[0]}
            elif kinds[name] == pa.bool_() or pc.any(pc.match_substring_regex(column, f"{_CODE}|{_HUGE}")).as_py():
                kinds[name] = pa.string()
        return cls(path, pa.schema(list(kinds.items())), delimiter, decimal, tuple(sorted(spelled)) or FLAGS)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def schema(self) -> pa.Schema:
        """Return the types that the first block shows."""
        return self.found

    def rows(self) -> int | None:
        """Unknown until the file was read."""
        return None

    def read(self, columns: Sequence[str], rows: int, types: Types) -> Iterator[pa.RecordBatch]:
        """Read batches; digits that no number gives back, in a column of whole numbers, are an error of conversion."""
        import pyarrow as pa

        with unchanged(self.path), opened(self.path) as file:
            source = file if isinstance(self.path, StoredFile) or self.checked else pa.input_stream(str(file))
            watched = None if self.checked else _Watched(source, ord(self.delimiter))
            with self._stream(source if watched is None else watched, list(columns), types) as stream:
                for batch in stream:
                    if watched is not None and watched.codes:
                        self._check_codes(types)
                        watched = None
                    yield batch
        if watched is not None:
            self.checked.append(True)

    def spells_apart(self, column: str) -> bool:
        """Return whether a column of numbers spells one of them in two ways, as 1.1 and 1.10; 1 and 1.0 are one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        seen: set[str] = set()
        with opened(self.path) as file, self._stream(file, [column], {column: pa.string()}) as stream:
            for batch in stream:
                seen |= {*pc.utf8_trim_whitespace(batch.column(0)).unique().to_pylist()}
        texts = {re.sub(r"\.0*$", "", text) for text in seen - {None}}
        return len({float(text.replace(self.decimal, ".") or 0) for text in texts}) < len(texts)

    def _check_codes(self, types: Types) -> None:
        """Name the column of whole numbers that holds codes, as Arrow does."""
        import pyarrow as pa
        import pyarrow.compute as pc

        whole = [name for name in self.found.names if types.get(name, self.found.field(name).type) == pa.int64()]
        with opened(self.path) as file, self._stream(file, whole, dict.fromkeys(whole, pa.string())) as stream:
            for batch in stream if whole else ():
                for name, column in zip(whole, batch.columns, strict=True):
                    if pc.any(pc.match_substring_regex(column, _CODE)).as_py():
                        index = self.found.get_field_index(name)
                        raise pa.ArrowInvalid(f"In CSV column #{index} ('{name}'): CSV conversion error: leading zeros")
        self.checked.append(True)

    def _stream(self, file: Any, columns: list[str] | None, types: Types | None) -> Any:
        import pyarrow.csv as pacsv

        convert = pacsv.ConvertOptions(
            null_values=list(NULL_SPELLINGS),
            strings_can_be_null=True,
            include_columns=columns,
            column_types=None if types is None else dict(types),
            true_values=[true for true, _ in self.flags],
            false_values=[false for _, false in self.flags],
            decimal_point=self.decimal,
        )
        return pacsv.open_csv(
            file,
            read_options=pacsv.ReadOptions(block_size=_BLOCK),
            parse_options=pacsv.ParseOptions(delimiter=self.delimiter),
            convert_options=convert,
        )


class _Watched:
    """A file that notes, while Arrow reads it, whether a cell is digits that begin with 0."""

    closed = False

    def __init__(self, file: Any, delimiter: int) -> None:
        self.file, self.delimiter, self.codes, self._end = file, delimiter, False, b""

    def read_buffer(self, size: int) -> Any:
        """Return the next bytes."""
        block = self.file.read_buffer(size)
        if not self.codes:
            end = (self._end + bytes(block[-32:]))[-32:]
            borders = self._end + bytes(block[:32]), end + b"\n" if block.size < size else b""
            self.codes = any(zero_led(np.frombuffer(border, np.uint8), self.delimiter) for border in (block, *borders))
            self._end = end
        return block

    read = read_buffer

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def zero_led(content: NDArray[np.uint8], delimiter: int) -> bool:
    """Return whether a cell may be digits that begin with 0, as 06037 does; 08:30 and 01/02/2024 are none."""
    return any(_zero_led(content[at : at + _PIECE + 32], delimiter) for at in range(0, len(content), _PIECE))


def _zero_led(content: NDArray[np.uint8], delimiter: int) -> bool:
    begins = content[:-2] <= 44  # what parts cells, and quotes and spaces before them
    if delimiter > 44:
        begins |= content[:-2] == delimiter
    begins &= content[1:-1] == 48
    begins &= content[2:] >= 48
    if not begins.any():
        return False
    at = np.flatnonzero(begins) + 2
    second = content.take(at)
    if (second | 32 == 120).any():  # the x of 0x1F
        return True
    at = at[second - 48 < 10] + 1
    while len(at := at[at < len(content)]):
        letters = content.take(at)
        if np.isin(letters, [*b'\n\r" ', delimiter]).any():
            return True
        at = at[letters - 48 < 10] + 1
    return False


def separators(head: bytes, name: str) -> tuple[str, str]:
    """Return what parts the cells of a file, and its decimal sign; say what a file is that is no CSV table.

    A comma parts them unless another sign does so in nine of ten of the first lines.
    """
    text = head.removeprefix(b"\xef\xbb\xbf")
    for pattern, what in _OTHERS:
        if re.match(pattern, text, re.DOTALL):
            raise DataError(f"{name} {what}")
    lines = [re.sub(rb'"[^"]*"', b"", line) for line in text[: 1 << 16].splitlines()[:50] if line.strip()]
    counts = {sign: [line.count(sign.encode()) for line in lines] for sign in ",;\t|"}
    steady = [
        s for s, counted in counts.items() if counted and counted[0] and counted.count(counted[0]) >= 0.9 * len(counted)
    ]
    for count in counts.values():
        usual, share = Counter(count[1:] or [0]).most_common(1)[0]
        odd = not steady or lines[0].startswith((b"#", b"sep="))
        if odd and usual and usual != count[0] and share >= 0.9 * (len(count) - 1):
            raise DataError(
                f"{name}: its first line, {lines[0][:40].decode('utf-8', 'replace')!r}, is not the names of the "
                f"{usual + 1} columns below it; delete it"
            )
    sign = steady[0] if steady else ","
    cell = rf"(?:^|{re.escape(sign)})-?\d+,\d+(?:{re.escape(sign)}|\r?$)".encode()
    return sign, "," if sign != "," and re.search(cell, text, re.MULTILINE) else "."


def _beyond(ends: dict[str, Any]) -> bool:
    return any(abs(end or 0) >= 2**63 for end in ends.values())
