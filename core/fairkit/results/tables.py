"""Results as tables: pandas frames, and Arrow for polars, DuckDB and everybody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import pyarrow as pa


class Tabular:
    """A result that has a line for each of its numbers."""

    __slots__ = ()

    def records(self) -> list[dict[str, Any]]:
        """Return the lines, all with the same keys."""
        raise NotImplementedError

    def to_arrow(self) -> pa.Table:
        """Return the lines of `records` as a pyarrow Table; ``polars.DataFrame(result)`` takes the result itself."""
        return arrow_table(self.records())

    def to_frame(self) -> pd.DataFrame:
        """Return the lines of `records` as a pandas data frame.

        Raises
        ------
        MissingExtraError
            pandas is not installed.
        """
        return pandas_frame(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the lines in Arrow's own exchange form."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def arrow_table(records: Sequence[dict[str, Any]]) -> pa.Table:
    """Return lines with the same keys as a table; a key that is nowhere set is a column of no values."""
    import pyarrow as pa

    return pa.Table.from_pylist(list(records))


def pandas_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table as a pandas data frame."""
    try:
        import pandas  # noqa: F401 -- pyarrow's message names no extra
    except ImportError as error:
        raise MissingExtraError("pandas", "pandas") from error
    return table.to_pandas()


def ends(interval: tuple[float, float] | None) -> dict[str, float | None]:
    """Return an interval as two columns."""
    low, high = (None, None) if interval is None else interval
    return {"low": low, "high": high}


def place_words(subject: Any) -> str | None:
    """Say between which groups, as ``sex``, ``sex against male`` or ``sex | department``; None over all rows."""
    if subject.sensitive is None:
        return None
    against = "" if subject.reference is None else f" against {subject.reference}"
    inside = f" | {'+'.join(subject.within)}" if subject.within else ""
    return f"{subject.sensitive}{against}{inside}"


def place(subject: Any) -> dict[str, Any]:
    """Return which groups a finding or a change is about, as columns; ``class`` is a class of several, or None."""
    return {
        "metric": subject.metric,
        "sensitive": subject.sensitive,
        "reference": subject.reference,
        "within": "+".join(subject.within) or None,
        "class": subject.parameters.get("class"),
    }
