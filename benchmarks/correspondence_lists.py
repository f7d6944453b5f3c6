"""Make the lists of names that fairkit brings, from the files that their publishers offer.

    python benchmarks/correspondence_lists.py names.zip Names_2010Census.csv

`names.zip` is the Social Security Administration's national file: `yobYYYY.txt` with rows `name,sex,births`.
`Names_2010Census.csv` is the Census Bureau's table of surnames that 100 people or more have. What is kept stands in
`plugins/fairkit_correspondence/lists/README.md`; equal files in give equal bytes out.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import lzma
import zipfile
from collections import Counter
from pathlib import Path

LISTS = Path(__file__).parents[1] / "plugins" / "fairkit_correspondence" / "lists"
YEARS, PER_DECADE = range(1930, 2020), 500
PER_GROUP, SHARE = 1_000, 70.0
SHARES = ("pctwhite", "pctblack", "pctapi", "pctaian", "pcthispanic")


def first_names(path: Path) -> list[list[object]]:
    """Return the 500 most frequent first names of either sex and each decade of birth, with the births of each year."""
    births: dict[tuple[str, str], Counter[int]] = {}
    decades: dict[tuple[str, int], Counter[str]] = {}
    with zipfile.ZipFile(path) as archive:
        for year in YEARS:
            for line in archive.read(f"yob{year}.txt").decode("ascii").split():
                name, sex, count = line.split(",")
                births.setdefault((sex, name), Counter())[year] = int(count)
                decades.setdefault((sex, year // 10), Counter())[name] += int(count)
    kept = {
        (sex, name)
        for (sex, _), names in decades.items()
        for name, _ in sorted(names.items(), key=lambda pair: (-pair[1], pair[0]))[:PER_DECADE]
    }
    # the other sex's births of a name are kept, too: they say how clearly a name is of one sex
    kept |= {("F" if sex == "M" else "M", name) for sex, name in kept}
    rows = [[name, sex, *(births[sex, name][year] for year in YEARS)] for sex, name in sorted(kept & births.keys())]
    return [["name", "sex", *YEARS], *rows]


def surnames(path: Path) -> list[list[object]]:
    """Return the 1,000 most frequent surnames, and those of which 70 of 100 bearers are of one group."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.DictReader(file) if row["rank"] != "0"]
    rows.sort(key=lambda row: (-int(float(row["count"])), row["name"]))
    kept = {row["name"] for row in rows[:PER_GROUP]}
    for share in SHARES:
        clear = [row["name"] for row in rows if row[share] not in ("(S)", "") and float(row[share]) >= SHARE]
        kept |= set(clear[:PER_GROUP])
    columns = ("name", "count", *SHARES)
    return [list(columns), *([row[key].replace("(S)", "") for key in columns] for row in rows if row["name"] in kept)]


def write(name: str, rows: list[list[object]]) -> None:
    """Write a compressed table, and print its digest."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    raw = lzma.compress(text.getvalue().encode(), preset=9 | lzma.PRESET_EXTREME)
    (LISTS / name).write_bytes(raw)
    print(f"{name}: {len(rows) - 1:,} rows, {len(raw):,} bytes, {hashlib.sha256(raw).hexdigest()}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", type=Path)
    options.add_argument("surnames", type=Path)
    named = options.parse_args()
    write("ssa-2024.csv.xz", first_names(named.names))
    write("census-2010.csv.xz", surnames(named.surnames))


if __name__ == "__main__":
    main()
