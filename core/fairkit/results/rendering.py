"""Results that show themselves: in a notebook, as a page, as Markdown, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import FairkitError, MissingExtraError, ParameterError, PluginError
from fairkit.installed import entry_points
from fairkit.support.escaping import json_text
from fairkit.support.files import check_writable, write_atomic
from fairkit.support.lazy_package import imported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    import pyarrow as pa


FORMATS, PLOTS = "fairkit.formats", "fairkit.plots"
"""The groups of entry points whose functions take a result and return its text in a format, or an Altair chart."""

SUFFIXES = {".html": "html", ".htm": "html", ".md": "markdown", ".xml": "junit", ".json": "json"}
"""What a file's name says about the format of a result in it."""


class Shown:
    """A result that has a page, and that a notebook shows as such."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        raise NotImplementedError

    def to_html(self) -> str:
        """Return the page of ``--format html``: one self-contained document.

        Raises
        ------
        FairkitError
            The extra ``html`` is not installed.
        """
        return rendered(self, "html")

    def _repr_height(self) -> str:
        """Return how high the frame in a notebook is."""
        return "42em"

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own for notebooks; plain text where the extra ``html`` is absent."""
        import html

        try:
            page = self.to_html()
        except (FairkitError, MissingExtraError):
            return f"<pre>{html.escape(str(self))}</pre>"
        style = f"width:100%;height:{self._repr_height()};border:1px solid #8884;border-radius:4px"
        return (
            f'<iframe sandbox="allow-scripts" style="{style}" title="{html.escape(repr(self))}" '
            f'srcdoc="{html.escape(page)}"></iframe>'
        )


class Saved(Shown):
    """A result that can be written in several formats."""

    __slots__ = ()

    def to_markdown(self) -> str:
        """Return the result as Markdown: verdict, rules, disparities and groups as tables.

        Raises
        ------
        ParameterError
            This kind of result has no such form.
        """
        return rendered(self, "markdown")

    def save(self, path: str | Path) -> Path:
        """Write the result to a file, in the format that its name ends in: .html, .md, .json or .xml (JUnit).

        Returns
        -------
        Path
            The file, which is whole or not there.

        Raises
        ------
        FairkitError
            The name ends otherwise, the file cannot be written, or the extra ``html`` is not installed.
        """
        target = Path(path)
        form = format_of(target)
        check_writable(target)
        write_atomic(target, rendered(self, form))
        return target


def format_of(path: Path) -> str:
    """Return the format that a file's name ends in."""
    form = SUFFIXES.get(path.suffix.lower())
    if form is None:
        raise ParameterError(
            f"{path.name!r} does not say its format; end the name in one of {', '.join(sorted(SUFFIXES))}"
        )
    return form


def rendered(result: Any, form: str) -> str:
    """Return a result's text in a format: ``json``, or one that an installed package renders."""
    if form == "json":
        return json_text(result.to_dict()) + "\n"
    formats = {entry_point.name: entry_point.value for entry_point in entry_points(FORMATS)}
    if form not in formats:
        raise ParameterError(f"there is no format {form!r}; there are: {', '.join(sorted({'json', *formats}))}")
    render: Callable[[Any], str] = imported(formats[form])
    return render(result)


def plotted(result: Any, name: str, of: str | None) -> Any:
    """Return a chart of a result's page as Altair's."""
    chart = next((entry_point for entry_point in entry_points(PLOTS) if entry_point.name == "chart"), None)
    if chart is None:
        raise PluginError("no installed package draws charts; fix it with: pip install --force-reinstall fairkit")
    return imported(chart.value)(result, name, of)


# Results as tables: pandas frames, and Arrow for polars, DuckDB and everybody else.


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
