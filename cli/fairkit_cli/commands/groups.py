"""`fairkit groups`: group probabilities for people whose group was never asked, with their calibration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairkit.errors import DataError, ParameterError
from fairkit_cli import options as opt
from fairkit_cli.terminal.output import print_as, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

app = typer.Typer(
    help="Group probabilities, for those who may use them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
WARNINGS = (
    "These are probabilities, not groups: name them with --sensitive-probability. Nobody's group is known from them, "
    "and splitting people at a threshold gives biased disparities (Chen et al. 2019).",
    "Not for New York City's Local Law 144: imputed or inferred data cannot be used there (frequently asked questions, "
    "III.6). Whether you may use them at all is a question for a lawyer.",
)


@app.callback()
def _groups() -> None:
    """Group probabilities, for those who may use them."""


@app.command("bifsg")
def bifsg(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="CSV or Parquet, a row for each person.")],
    *,
    surname: Annotated[str, opt.option("--surname", "COL", "Column of the surname.")],
    surnames: Annotated[
        Path, opt.option("--surnames", "FILE", "The Census Bureau's list: name, count, pctwhite, pctblack, ...")
    ],
    first: Annotated[str | None, opt.option("--first", "COL", "Column of the first name.")] = None,
    first_names: Annotated[
        Path | None,
        opt.option("--first-names", "FILE", "A list of first names: firstname, obs, pctwhite, pctblack, ..."),
    ] = None,
    place: Annotated[str | None, opt.option("--place", "COL", "Column of the place, such as a ZIP code.")] = None,
    places: Annotated[
        Path | None,
        opt.option("--places", "FILE", "People by place: place, white, black, api, aian, two_or_more, hispanic."),
    ] = None,
    truth: Annotated[
        str | None,
        opt.option("--truth", "COL", "Column of the group where it is known, else empty: measures the calibration."),
    ] = None,
    label: Annotated[
        list[str] | None, opt.option("--label", "GROUP=VALUE", "How the column of --truth spells a group (repeatable).")
    ] = None,
    licence: Annotated[
        list[str] | None,
        opt.option("--licence", "LIST=TEXT", "Licence of the surnames, first-names or places (repeatable)."),
    ] = None,
    output: Annotated[
        Path,
        opt.option("--output", "FILE", "The table with six more columns, bifsg_white and so on, without the names."),
    ],
    output_format: opt.TableFormat = "table",
) -> None:
    """Write group probabilities from surnames, first names and places (BISG, BIFSG), for --sensitive-probability.

    FILE.bifsg.json beside the output records the method, each list with its digest and licence, how many people were
    found in it, and the calibration where groups are known. Nobody's group is guessed: there is no threshold.
    """
    from fairkit.support.files import check_writable
    from fairkit_datasets import bifsg as method

    if (first is None) != (first_names is None) or (place is None) != (places is None):
        raise ParameterError("--first goes with --first-names FILE, and --place with --places FILE")
    stated = _pairs(licence, "--licence", ("surnames", "first-names", "places"))
    spelled = _pairs(label, "--label", method.GROUPS)
    if spelled and truth is None:
        raise ParameterError("--label says how --truth COL spells a group: name that column")
    record_path = output.with_name(f"{output.name}.bifsg.json")
    for path in (output, record_path):
        check_writable(path)
    people = _read(table, [one for one in (surname, first, place, truth) if one is not None])
    taken = [name for name in people.column_names if name.startswith(method.PREFIX)]
    if taken:
        raise DataError(f"{table} has a column {taken[0]!r} already")
    lists = {
        "surnames": method.read_surnames(surnames, stated.get("surnames")),
        "first-names": None if first_names is None else method.read_first_names(first_names, stated.get("first-names")),
        "places": None if places is None else method.read_places(places, stated.get("places")),
    }
    columns = {
        key: _texts(people, name)
        for key, name in (("surname", surname), ("first", first), ("place", place))
        if name is not None
    }
    estimates = method.probabilities(columns, lists["surnames"], lists["first-names"], lists["places"])  # type: ignore[arg-type]
    record: dict[str, Any] = {
        "method": "BIFSG (Voicu 2018, eq. 2)" if first else "BISG (Elliott et al. 2009)",
        "equation": "p(r | s, f, g) ∝ p(r | s) p(f | r) p(g | r), each part where its list has it",
        "groups": list(method.GROUPS),
        "people": people.num_rows,
        "without_probability": int((estimates.values[:, 0] != estimates.values[:, 0]).sum()),
        "matched": dict(estimates.matched),
        "conflicts": estimates.conflicts,
        "lists": {name: one.to_dict() for name, one in lists.items() if one is not None},
        "calibration": None
        if truth is None
        else method.calibration(estimates.values, _groups_of(people, truth, spelled)),
        "warnings": list(WARNINGS),
    }
    _write(people, {surname, first} - {None}, estimates.values, output, record, record_path)
    for name, one in lists.items():
        if one is not None and one.licence is None:
            say(f"the licence of the {name} is not stated: add --licence {name}=TEXT")
    print_as(output_format, record | {"output": str(output)}, *_lines(record, output))


def _pairs(texts: Sequence[str] | None, option: str, names: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or name not in names or not value.strip() or name in pairs:
            raise ParameterError(f"{option} {text!r} is not understood; write NAME=TEXT once, with {', '.join(names)}")
        pairs[name] = value
    return pairs


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    """Read the people; the columns of names and places are read as text, so that 02138 keeps its zero."""
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path)
        else:
            types = {name: pa.string() for name in columns}
            table = pacsv.read_csv(
                path, convert_options=pacsv.ConvertOptions(column_types=types, strings_can_be_null=True)
            )
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    for name in columns:
        if name not in table.column_names:
            raise DataError(f"{path} has no column {name!r}; it has {', '.join(table.column_names[:12])}")
    if table.num_rows == 0:
        raise DataError(f"{path} has no rows")
    return table


def _texts(table: pa.Table, name: str) -> list[str | None]:
    return [None if one is None or not str(one).strip() else str(one).strip() for one in table.column(name).to_pylist()]


def _groups_of(table: pa.Table, name: str, spelled: dict[str, str]) -> list[str | None]:
    meant = {value: group for group, value in spelled.items()}
    return [None if one is None else meant.get(one, one) for one in _texts(table, name)]


def _write(
    people: pa.Table, names: set[Any], values: Any, output: Path, record: dict[str, Any], record_path: Path
) -> None:
    import io
    import json

    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    from fairkit.support.files import write_atomic
    from fairkit_datasets.bifsg import GROUPS, PREFIX

    table = people.drop_columns(sorted(names))
    for at, group in enumerate(GROUPS):
        table = table.append_column(PREFIX + group, pa.array(values[:, at], from_pandas=True))
    target = io.BytesIO()
    if output.suffix == ".parquet":
        pq.write_table(table, target)
    else:
        pacsv.write_csv(table, target)
    write_atomic(output, target.getvalue())
    write_atomic(record_path, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def _lines(record: dict[str, Any], output: Path) -> list[str]:
    matched = ", ".join(f"{count:,} by {part}" for part, count in record["matched"].items())
    lines = [
        f"{output}: {record['people']:,} people; {matched}; {record['without_probability']:,} without a probability",
        *(_list_line(name, one) for name, one in record["lists"].items()),
    ]
    for one in record["calibration"] or ():
        low, high = one["difference_interval"]
        lines.append(
            f"  {one['group']}: expected {one['expected']:.3f}, observed {one['observed']:.3f} of {one['people']:,}; "
            f"difference {one['difference']:+.3f} [{low:+.3f}, {high:+.3f}]"
        )
    columns = ",".join(f"bifsg_{group}" for group in record["groups"])
    return [*lines, f"  --sensitive-probability race={columns}", *(f"  {text}" for text in record["warnings"])]


def _list_line(name: str, one: dict[str, Any]) -> str:
    licence = one["licence"] or "licence not stated"
    return f"  {name}: {one['path']}, {one['rows']:,} rows, SHA-256 {one['sha256'][:16]}, {licence}"
