"""Group probabilities from surnames, first names and places (BISG, BIFSG), and how well they are calibrated.

For a person with surname s, first name f and place g, BIFSG (Voicu 2018, eq. 2) takes name and place as independent
given the group r::

    p(r | s, f, g)  ∝  p(r | s) p(f | r) p(g | r)

Without first names that is BISG (Elliott et al. 2009). p(r | s) is from the Census Bureau's surname list, p(f | r)
from a list of first names with shares and counts (Tzioumis 2018), p(g | r) from counts of people by place. A part that
is not in its list is left out of the product; without a surname the shares of all listed people stand in for p(r | s).
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError
from fairkit.intervals import two_sided
from fairkit.limits.shares import wilson

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

GROUPS = ("white", "black", "api", "aian", "two_or_more", "hispanic")
"""The groups of the Census list; all but the last are not Hispanic."""
PREFIX = "bifsg_"
"""What the columns of probabilities begin with; the data layer refuses to split people by such a column."""
_PERCENTS = ("pctwhite", "pctblack", "pctapi", "pctaian", "pct2prace", "pcthispanic")
_SUPPRESSED = "(S)"
_SUFFIXES = ("JR", "SR", "II", "III", "IV")
CENSUS = {
    "licence": "public domain in the United States (17 U.S.C. 105)",
    "address": "https://www.census.gov/topics/population/genealogy/data/2010_surnames.html",
}
_CENSUS_COLUMNS = frozenset({"name", "rank", "count", "prop100k", "cum_prop100k", *_PERCENTS})
BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTable:
    """A list that was read."""

    path: str  # the file, the digest of its bytes, its licence as stated (None: nobody did), and where it is from
    sha256: str  # the file, the digest of its bytes, its licence as stated (None: nobody did), and where it is from
    licence: str | None
    address: str | None
    index: Mapping[str, int]  # the row of each name or place
    values: Array  # shape [n, 6]: p(r | name), or for places and first names p(place | r), p(name | r)
    totals: Array  # shape [6]: the share of each group among all people of the list

    def to_dict(self) -> dict[str, Any]:
        """Return the table's record: path, content, licence, address and rows."""
        keys = ("path", "sha256", "licence", "address")
        return {key: getattr(self, key) for key in keys} | {"rows": len(self.index)}


def read_surnames(path: str | Path, licence: str | None = None) -> NameTable:
    """Read the Census list of surnames: name, count and six percentages; ``(S)`` is a percentage that is suppressed.

    What the known percentages leave of 100 is divided equally among the suppressed ones, as the Bureau's users do.
    """
    table, digest = _read(path)
    names = _column(table, "name", path)
    shares = _shares(table, path)
    counts = _numbers(table, "count", path)
    census = frozenset(table.column_names) >= _CENSUS_COLUMNS
    return NameTable(
        path=str(path),
        sha256=digest,
        licence=licence or (CENSUS["licence"] if census else None),
        address=CENSUS["address"] if census else None,
        index=_index([plain_name(one) for one in names], path),
        values=shares,
        totals=_normed(counts @ shares),
    )


def read_first_names(path: str | Path, licence: str | None = None) -> NameTable:
    """Read a list of first names (firstname, obs and six percentages), as p(f | r)."""
    table, digest = _read(path)
    names = _column(table, "firstname", path)
    people = _shares(table, path) * _numbers(table, "obs", path)[:, None]
    return _conditional(path, digest, licence, [plain_name(one) for one in names], people)


def read_places(path: str | Path, licence: str | None = None) -> NameTable:
    """Read counts of people by place (place and the six groups of `GROUPS`), as p(g | r)."""
    table, digest = _read(path)
    people = np.stack([_numbers(table, group, path) for group in GROUPS], axis=1)
    return _conditional(path, digest, licence, _column(table, "place", path), people)


def _conditional(path: str | Path, digest: str, licence: str | None, names: Sequence[str], people: Array) -> NameTable:
    whole = people.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(whole > 0, people / whole, 0.0)
    index = _index(names, path)
    return NameTable(
        path=str(path), sha256=digest, licence=licence, address=None, index=index, values=values,
        totals=_normed(whole),
    )  # fmt: skip


def _read(path: str | Path) -> tuple[pa.Table, str]:
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    file = Path(path)
    try:
        raw = file.read_bytes()
        if file.suffix == ".parquet":
            table = pq.read_table(file)
        else:
            strings = pacsv.ConvertOptions(strings_can_be_null=False, column_types=_as_text(raw))
            table = pacsv.read_csv(file, convert_options=strings)
    except (OSError, ValueError) as error:
        raise DataError(f"the list {str(path)!r} cannot be read: {error}") from error
    return table, hashlib.sha256(raw).hexdigest()


def _as_text(raw: bytes) -> dict[str, str]:
    """Return the type text for every column: a place such as 02138 keeps its zero, and (S) is no number."""
    header = raw.split(b"\n", 1)[0].decode("utf-8-sig", "replace")
    return {name.strip().strip('"'): "string" for name in header.split(",")}


def _column(table: pa.Table, name: str, path: str | Path) -> list[str]:
    if name not in table.column_names:
        raise DataError(f"the list {str(path)!r} has no column {name!r}; it has {', '.join(table.column_names[:12])}")
    return [str(one) for one in table.column(name).to_pylist()]


def _numbers(table: pa.Table, name: str, path: str | Path) -> Array:
    try:
        found = np.array([float(one) for one in _column(table, name, path)])
    except ValueError:
        found = np.array([math.nan])
    if not np.isfinite(found).all() or (found < 0).any():
        raise DataError(f"column {name!r} of the list {str(path)!r} takes numbers of at least 0")
    return found


def _shares(table: pa.Table, path: str | Path) -> Array:
    """Return the six percentages as shares that add up to 1, suppressed ones filled."""
    cells = [_column(table, name, path) for name in _PERCENTS]
    try:
        percentages = np.array(
            [[math.nan if cell == _SUPPRESSED else float(cell) for cell in column] for column in cells]
        ).T
    except ValueError as error:
        raise DataError(f"the list {str(path)!r} has a percentage that is no number: {error}") from None
    absent = np.isnan(percentages)
    left = 100 - np.nansum(percentages, axis=1)
    odd = (left < -1) | ((np.abs(left) > 1) & ~absent.any(axis=1)) | (np.nan_to_num(percentages) < 0).any(axis=1)
    if odd.any():
        at = int(np.argmax(odd))
        raise DataError(f"row {at + 1} of the list {str(path)!r} has percentages that do not add up to 100")
    filled = np.maximum(left, 0) / np.maximum(absent.sum(axis=1), 1)
    values = np.where(absent, filled[:, None], percentages)
    return np.asarray(values / values.sum(axis=1, keepdims=True))


def _index(names: Sequence[str], path: str | Path) -> dict[str, int]:
    found = {name: at for at, name in enumerate(names)}
    if len(found) < len(names):
        raise DataError(f"the list {str(path)!r} has a name or place twice")
    return found


def _normed(weights: Array) -> Array:
    return np.asarray(weights / weights.sum())


def plain_name(text: str) -> str:
    """Return a name as the lists have it: capital letters alone, without accents, spaces, JR, SR, II, III or IV."""
    letters = unicodedata.normalize("NFKD", text.upper()).encode("ascii", "ignore").decode("ascii")
    words = [word for word in re.split(r"[\s.,]+", letters) if word]
    while len(words) > 1 and words[-1] in _SUFFIXES:
        words.pop()
    return re.sub("[^A-Z]", "", "".join(words))


@dataclass(frozen=True, slots=True, kw_only=True)
class Probabilities:
    """Group probabilities of people."""

    values: Array  # shape [n, 6], in the order of `GROUPS`; each row adds up to 1, or is NaN where nothing is known
    matched: Mapping[str, int]  # people whose surname, first name and place are in the lists
    conflicts: int  # parts that were left out, because they exclude every group that the parts before them allow


def probabilities(
    people: Mapping[str, Sequence[str | None]],
    surnames: NameTable,
    first_names: NameTable | None = None,
    places: NameTable | None = None,
) -> Probabilities:
    """Compute p(r | surname, first name, place) for each person (Voicu 2018, eq. 2)."""
    rows = len(people["surname"])
    at = {"surname": _rows_of(people["surname"], surnames, name=True)}
    values = np.where((at["surname"] >= 0)[:, None], surnames.values[at["surname"]], surnames.totals)
    parts: list[tuple[str, NameTable]] = []
    if first_names is not None:
        parts.append(("first", first_names))
    if places is not None:
        parts.append(("place", places))
    conflicts = 0
    for part, table in parts:
        at[part] = _rows_of(people[part], table, name=part == "first")
        factor = np.where((at[part] >= 0)[:, None], table.values[at[part]], 1.0)
        product = values * factor
        excluded = product.sum(axis=1) == 0
        conflicts += int(excluded.sum())
        values = np.where(excluded[:, None], values, product)
        values = values / values.sum(axis=1, keepdims=True)
    nothing = np.all([one < 0 for one in at.values()], axis=0)
    values = np.where(nothing[:, None], np.nan, values)
    matched = {part: int((one >= 0).sum()) for part, one in at.items()}
    return Probabilities(values=values.reshape(rows, len(GROUPS)), matched=matched, conflicts=conflicts)


def _rows_of(texts: Sequence[str | None], table: NameTable, *, name: bool) -> NDArray[np.intp]:
    """Return each text's row in a list; -1 where it has none. A double surname that is not listed takes its parts."""
    row_of: dict[str | None, int] = {None: -1}
    lengths = {len(one) for one in table.index}
    zeros = lengths.pop() if not name and len(lengths) == 1 else 0
    for text in set(texts) - {None}:
        tried = [plain_name(str(text)), *map(plain_name, re.split(r"[\s-]+", str(text)))] if name else [str(text)]
        if not name and str(text).isdigit():
            tried.append(str(text).zfill(zeros))  # 2138 is 02138 where every place has five digits
        row_of[text] = next((table.index[one] for one in tried if one in table.index), -1)
    return np.array([row_of[text] for text in texts], dtype=np.intp)


def calibration(values: Array, truth: Sequence[str | None], confidence: float = 0.95) -> list[dict[str, Any]]:
    """Return for each group how the probabilities compare with the known groups."""
    odd = sorted({str(one) for one in truth if one is not None} - set(GROUPS))
    if odd:
        raise DataError(f"the known groups are {', '.join(GROUPS)}; {', '.join(odd[:6])} is none of them")
    labels = np.array(["" if one is None else one for one in truth])
    there = (labels != "") & ~np.isnan(values).any(axis=1)
    if not there.any():
        raise DataError("nobody's group is known: a calibration needs people whose group is known")
    z = two_sided(confidence)
    records = []
    for at, group in enumerate(GROUPS):
        p, y = values[there, at], (labels[there] == group).astype(float)
        error = z * float((y - p).std()) / math.sqrt(len(y))
        gap = float((y - p).mean())
        place = np.minimum((p * BINS).astype(int), BINS - 1)
        bins = [
            {"from": one / BINS, "to": (one + 1) / BINS, **_observed(p[place == one], y[place == one], z)}
            for one in range(BINS)
            if (place == one).any()
        ]
        whole = _observed(p, y, z)
        records.append(
            {
                "group": group, "people": whole["people"], "expected": whole["expected"], "observed": whole["observed"],
                "observed_interval": whole["interval"], "difference": gap,
                "difference_interval": [gap - error, gap + error], "brier": float(((y - p) ** 2).mean()), "bins": bins,
            }
        )  # fmt: skip
    return records


def _observed(p: Array, y: Array, z: float) -> dict[str, Any]:
    low, high = wilson(np.array([y.mean()]), np.array([float(len(y))]), z)
    return {
        "people": len(y),
        "expected": float(p.mean()),
        "observed": float(y.mean()),
        "interval": [float(low[0]), float(high[0])],
    }
