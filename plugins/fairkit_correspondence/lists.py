"""Names of a plan: read from published lists and files of one's own, and made whole."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import lzma
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.parameters.declare import parameter
from fairkit_correspondence.published import BLOOMBERG, CENSUS, LISTS, SSA, fetch
from fairkit_correspondence.stimuli import NAME_COLUMNS, Name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]

_RACES = {"A": "asian", "B": "black", "H": "hispanic", "W": "white"}
_SHARES = {"pctwhite": "white", "pctblack": "black", "pctapi": "asian", "pctaian": "american indian",
           "pcthispanic": "hispanic"}  # fmt: skip
_SEXES = {"men": ("he", "his"), "women": ("she", "her")}
_LETTERS = {"M": "men", "F": "women"}
FREQUENT, CLEAR, MOST = 500, 0.9, 0.7
"""First names of either sex; shares of births and of bearers that make a name a sex's or a group's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameList:
    """Where names come from, and which are taken."""

    file: str = parameter(help="A CSV file, names.zip of the SSA, or a published list.")
    sha256: str | None = parameter(None, help="What the file must have.")
    column: str = parameter("group", help="The column of the group; the answers have it, too.")
    groups: tuple[str, ...] = parameter((), help="These groups only.")
    per_group: int | None = parameter(None, help="Names of each group.", minimum=2)
    match: tuple[str, ...] = parameter((), help="Numbers in which the groups' names are made alike.")
    born: tuple[int, ...] = parameter((), help="The first and the last year of birth, for names of the SSA.")
    surnames: str | None = parameter(None, help="A list of surnames, the same for every group.")
    first_names: str | None = parameter(None, help="A list of first names, the same for every group.")
    placebo: str = parameter("", help="A neutral edit of another group, as PLACEBO=GROUP.")


def read_names(wanted: NameList, folder: Path) -> list[Name]:
    """Read the names of all groups: from a table (CSV), a published list, or the SSA's names.zip."""
    if wanted.born and (len(wanted.born) != 2 or wanted.born[0] > wanted.born[1]):
        raise ParameterError(f"born = {list(wanted.born)} is not the first and the last year, such as [1970, 1999]")
    if wanted.file == CENSUS and wanted.first_names is None:
        raise ParameterError(
            f"{CENSUS!r} has surnames alone; name `first_names`, too, such as {SSA!r}, or name it as `surnames`, "
            "beside first names"
        )
    if wanted.surnames is not None and wanted.first_names is not None:
        raise ParameterError(
            "[names] has `surnames` and `first_names`; the groups differ in the other one: leave one out"
        )
    if wanted.born and not any(map(_has_years, filter(None, (wanted.file, wanted.surnames, wanted.first_names)))):
        raise ParameterError(
            f"born is for first names of the SSA ({SSA!r} or names.zip); match a number of {wanted.file}"
        )
    return list(_read(wanted.file, wanted, folder))


def whole(names: Sequence[Name], wanted: NameList, folder: Path) -> list[Name]:
    """Return names with first names and surnames; what the list lacks is the same for every group.

    The first name of each group gets the first of the other list, and so on: groups differ in their own names alone.
    """
    source = wanted.surnames or wanted.first_names
    if source is None:
        return list(names)
    shared = _in_turns(list(_read(source, wanted, folder, shared=True)))
    used: dict[str, int] = {}
    joined = []
    for name in names:
        place = used[name.group] = used.get(name.group, -1) + 1
        pair = (name, shared[place % len(shared)])
        first, last = pair if wanted.first_names is None else pair[::-1]
        slots = {**first.slots, "name": f"{first.text} {last.text}"}
        joined.append(Name(name.group, slots, name.numbers))
    return joined


def _in_turns(names: Sequence[Name]) -> list[Name]:
    """Return names so that their groups (men and women) take turns."""
    groups: dict[str, list[Name]] = {}
    for name in names:
        groups.setdefault(name.group, []).append(name)
    return [name for turn in zip_longest(*groups.values()) for name in turn if name is not None]


def _has_years(source: str) -> bool:
    return source == SSA or source.endswith(".zip")


def _read(source: str, wanted: NameList, folder: Path, *, shared: bool = False) -> Iterator[Name]:
    """Read one list; `shared` names need no group, and are the most frequent where the Census says their groups."""
    if source not in LISTS:
        path = folder / source
        raw = _bytes(path, None if shared else wanted.sha256)
        if zipfile.is_zipfile(io.BytesIO(raw)):
            return _ssa(_births_of_years(raw), wanted.born)
        return _table(raw, path, wanted.column, grouped=not shared)
    if not shared and wanted.sha256 is not None:
        raise ParameterError(f"fairkit knows the SHA-256 of {source!r}; leave `sha256` out, or name a file")
    files = fetch(source)
    if source == BLOOMBERG:
        return _bloomberg(files)
    raw = lzma.decompress(files[0])
    if source == SSA:
        return _ssa(_births_of_table(raw), wanted.born)
    return _census(csv.DictReader(io.StringIO(raw.decode())), shared=shared)


def _bytes(path: Path, sha256: str | None) -> bytes:
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:  # or a name that no system takes
        lists = did_you_mean(path.name, LISTS, what="published lists")
        said = getattr(error, "strerror", None) or error
        raise DataError(f"cannot read the names {str(path)!r}: {said}. {lists}") from error
    digest = hashlib.sha256(raw).hexdigest()
    if sha256 is not None and digest != sha256:
        raise DataError(f"{path} has the SHA-256 {digest}, and the plan names {sha256}: it is another list of names")
    return raw


def _rows(raw: bytes, path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(io.StringIO(raw.decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a CSV file in UTF-8: {error}") from None
    if not rows or not set(needed) <= set(rows[0]):
        raise DataError(f"{path} needs the columns {' and '.join(map(repr, needed))}, one row for each name")
    return rows


def _table(raw: bytes, path: Path, column: str, *, grouped: bool) -> Iterator[Name]:
    for row in _rows(raw, path, (column, "name") if grouped else ("name",)):
        numbers = {k: float(v) for k, v in row.items() if k not in (*NAME_COLUMNS, column) and _is_number(v)}
        slots = {k: row[k].strip() for k in NAME_COLUMNS if (row.get(k) or "").strip()}
        group = (row.get(column) or "").strip()
        if not slots.get("name") or (grouped and not group):
            raise DataError(f"{path}: a row has no name or no {column}: {dict(row)}")
        slots.setdefault("first", slots["name"].split(" ")[0])
        yield Name(group, slots, numbers)


def _births_of_years(raw: bytes) -> Iterator[tuple[list[str], Indices, Indices]]:
    """Read the SSA's national file: one text for each year of birth, with rows `name,sex,births`."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        for member in archive.namelist():
            if (year := re.fullmatch(r"yob(\d{4})\.txt", Path(member).name)) is not None:
                rows = archive.read(member).decode("ascii", "replace").split()
                keys, counts = zip(*(row.rsplit(",", 1) for row in rows), strict=True)
                yield list(keys), np.array([int(year[1])]), np.array(counts, dtype=np.int64)[:, None]


def _births_of_table(raw: bytes) -> Iterator[tuple[list[str], Indices, Indices]]:
    """Read a row for each name and sex with a column for each year."""
    header, *rows = (line.split(",", 2) for line in raw.decode().splitlines())
    counts = np.fromstring(",".join(row[2] for row in rows), dtype=np.int64, sep=",")
    years = np.array(header[2].split(","), dtype=np.int64)
    yield [f"{name},{sex}" for name, sex, _ in rows], years, counts.reshape(len(rows), len(years))


def _ssa(parts: Iterable[tuple[list[str], Indices, Indices]], born: Sequence[int]) -> Iterator[Name]:
    """Yield the most frequent first names of either sex among births of these years, without those of both sexes."""
    first, last = born or (0, 9999)
    births: dict[str, tuple[int, int]] = {}  # and the sum of their years
    for keys, years, counts in parts:
        wanted = (first <= years) & (years <= last)
        sums = counts[:, wanted] @ np.stack([np.ones_like(years), years], axis=1)[wanted]
        for key, (n, moment) in zip(keys, sums.tolist(), strict=True):
            before = births.get(key, (0, 0))
            births[key] = before[0] + n, before[1] + moment
    if not births:
        raise DataError("the zip file has no yobYYYY.txt; download names.zip from the Social Security Administration")
    total: Counter[str] = Counter()
    for key, (n, _) in births.items():
        total[key[:-2]] += n
    for sex, group in _LETTERS.items():
        own = {key[:-2]: (n, moment) for key, (n, moment) in births.items() if key[-1] == sex and n}
        mine = {name: one for name, one in own.items() if one[0] >= CLEAR * total[name]}
        for name in sorted(mine, key=lambda name: (-mine[name][0], name))[:FREQUENT]:
            n, moment = mine[name]
            numbers = {"born": moment / n, "births": float(n), "share": n / total[name]}
            yield Name(group, _sexed(name, group), numbers)
        if not mine:
            raise ParameterError(f"born = {[first, last]}: the list has no names of {group} born in these years")


def _census(rows: Iterable[Mapping[str, str]], *, shared: bool) -> Iterator[Name]:
    """Yield the surnames of each group with its share of the bearers, or the most frequent of all."""
    for place, row in enumerate(rows):
        name, bearers = row["name"].title(), float(row["count"])
        shares = {group: float(row[key]) / 100 for key, group in _SHARES.items() if row[key]}
        group = max(shares, key=lambda one: shares[one])
        if shared and place < 2 * FREQUENT:
            yield Name("", {"name": name, "first": name}, {"bearers": bearers})
        elif not shared and shares[group] >= MOST:
            yield Name(group, {"name": name, "first": name}, {"bearers": bearers, "share": shares[group]})


def _bloomberg(files: Sequence[bytes]) -> Iterator[Name]:
    for raw, sex in zip(files, _SEXES, strict=True):
        for race, texts in json.loads(raw).items():
            for text in texts:
                yield Name(f"{_RACES[race]} {sex}", _sexed(text.title(), sex))


def _sexed(name: str, sex: str) -> dict[str, str]:
    pronoun, possessive = _SEXES[sex]
    return {"name": name, "first": name.split(maxsplit=1)[0], "pronoun": pronoun, "possessive": possessive}


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except (TypeError, ValueError):
        return False
    return True
