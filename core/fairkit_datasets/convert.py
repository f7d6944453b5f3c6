"""From the publishers' files to tables: headers added, missing values made null, types settled."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_ADULT = """
    age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain
    capital-loss hours-per-week native-country income
""".split()  # noqa: SIM905 -- a list of names reads as one
_ADULT_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")

_GERMAN = """
    checking_status duration credit_history purpose credit_amount savings_status employment installment_commitment
    personal_status other_parties residence_since property_magnitude age other_payment_plans housing existing_credits
    job num_dependents own_telephone foreign_worker class
""".split()  # noqa: SIM905 -- a list of names reads as one
_GERMAN_NUMBERS = """
    duration credit_amount installment_commitment residence_since age existing_credits num_dependents class
""".split()  # noqa: SIM905 -- a list of names reads as one

_COMPAS_NUMBERS = """
    id age juv_fel_count decile_score juv_misd_count juv_other_count priors_count days_b_screening_arrest
    c_days_from_compas is_recid r_days_from_arrest violent_recid is_violent_recid v_decile_score start end event
    two_year_recid
""".split()  # noqa: SIM905 -- a list of names reads as one
_COMPAS_PERSONAL = ("name", "first", "last", "dob", "c_case_number", "r_case_number", "vr_case_number")

_LAW_WHOLE = ("decile1b", "decile3", "fulltime", "fam_inc", "male", "tier", "pass_bar")

_CREDIT = [
    "ID",
    "LIMIT_BAL",
    "SEX",
    "EDUCATION",
    "MARRIAGE",
    "AGE",
    "PAY_0",
    *(f"PAY_{month}" for month in range(2, 7)),
    *(f"BILL_AMT{month}" for month in range(1, 7)),
    *(f"PAY_AMT{month}" for month in range(1, 7)),
    "default_payment_next_month",
]

_ACS = ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P", "PINCP"]


def adult(contents: Sequence[bytes]) -> pa.Table:
    """Join UCI's two parts; the test part has a comment line and a dot after its labels."""
    import pyarrow as pa

    parts = []
    for split, content in zip(("train", "test"), contents, strict=True):
        lines = content.replace(b", ", b",").replace(b"K.\n", b"K\n")
        if lines.startswith(b"|"):
            lines = lines.split(b"\n", 1)[1]
        part = _read(lines, _ADULT, numbers=_ADULT_NUMBERS, nulls=("?",))
        parts.append(part.append_column("split", pa.array([split] * part.num_rows)))
    return pa.concat_tables(parts).combine_chunks()


def compas(contents: Sequence[bytes]) -> pa.Table:
    """Leave out what identifies people, and the second copies of two columns."""
    header, body = contents[0].split(b"\n", 1)
    names: list[str] = []
    for name in header.decode().strip().split(","):
        names.append(f"{name} again" if name in names else name)
    table = _read(body, names, numbers=_COMPAS_NUMBERS, nulls=("",))
    copies = [name for name in names if name.endswith(" again")]
    for copy in copies:
        if table[copy].cast("int64", safe=False) != table[copy.removesuffix(" again")]:
            raise ValueError(f"the two columns {copy.removesuffix(' again')} differ")
    return table.drop_columns([*_COMPAS_PERSONAL, *copies])


def german(contents: Sequence[bytes]) -> pa.Table:
    """Add the header; columns are separated by blanks."""
    lines = b"\n".join(line.strip() for line in contents[0].splitlines())
    return _read(lines.strip() + b"\n", _GERMAN, numbers=_GERMAN_NUMBERS, nulls=("",), delimiter=" ")


def law_school(contents: Sequence[bytes]) -> pa.Table:
    """Read whole numbers as such: the source writes 10.0."""
    header, body = contents[0].split(b"\n", 1)
    names = header.decode().strip().split(",")
    reals = [name for name in names if name != "race"]
    table = _read(body, names, reals=reals, nulls=("",))
    return table.cast(_whole_numbers(table, _LAW_WHOLE))


def communities_crime(contents: Sequence[bytes]) -> pa.Table:
    """Take the header from the description of the attributes."""
    names = re.findall(r"^@attribute\s+(\S+)", contents[1].decode("latin-1"), flags=re.MULTILINE)
    whole = ("state", "county", "community", "fold")
    reals = [name for name in names if name not in (*whole, "communityname")]
    return _read(contents[0], names, numbers=whole, reals=reals, nulls=("?",))


def credit_default(contents: Sequence[bytes]) -> pa.Table:
    """Replace the publisher's X1 to X23 and Y by the names of its description."""
    _, body = contents[0].split(b"\n", 1)
    table = _read(body, _CREDIT, reals=_CREDIT, nulls=("",))
    return table.cast(_whole_numbers(table, _CREDIT))


def acs_income(contents: Sequence[bytes]) -> pa.Table:
    """Join the test and validation parts; race counts from 0 there and from 1 in the survey."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    parts = []
    for split, content in zip(("test", "validation"), contents, strict=True):
        part = pq.read_table(io.BytesIO(content))
        index = next(name for name in part.column_names if name not in _ACS)
        columns = {name: _whole(part[name]) for name in _ACS}
        columns["RAC1P"] = pc.add(columns["RAC1P"], 1)
        columns["row_index"] = _whole(part[index])
        columns["split"] = pa.array([split] * part.num_rows)
        parts.append(pa.table(columns))
    return pa.concat_tables(parts).combine_chunks()


def _whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    return plain.cast("int64")


def _read(
    content: bytes,
    names: Sequence[str],
    *,
    numbers: Sequence[str] = (),
    reals: Sequence[str] = (),
    nulls: Sequence[str] = (),
    delimiter: str = ",",
) -> pa.Table:
    """Read rows without a header: whole numbers, real numbers, the rest text."""
    import pyarrow.csv as pacsv

    kinds: dict[str, Any] = dict.fromkeys(names, "string")
    kinds |= dict.fromkeys(numbers, "int64") | dict.fromkeys(reals, "float64")
    return pacsv.read_csv(
        io.BytesIO(content),
        read_options=pacsv.ReadOptions(column_names=list(names)),
        parse_options=pacsv.ParseOptions(delimiter=delimiter),
        convert_options=pacsv.ConvertOptions(column_types=kinds, null_values=list(nulls), strings_can_be_null=True),
    )


def _whole_numbers(table: pa.Table, names: Sequence[str]) -> pa.Schema:
    """Return the table's schema with whole numbers in these columns."""
    import pyarrow as pa

    return pa.schema([(f.name, pa.int64() if f.name in names else f.type) for f in table.schema])
