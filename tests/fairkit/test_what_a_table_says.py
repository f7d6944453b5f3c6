"""What a table says, stays: digits are text until they are used as numbers; a column without a role stops nothing."""

from __future__ import annotations

import decimal
import gzip
import sqlite3
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper

import fairkit
from fairkit.data.sources import open_source
from fairkit.settings import ModelOptions

A, B = "0111", "0011"
"""Decisions of the people of a group: three of four, two of four."""


def lines(one: str, other: str, sign: str = ",", head: str = "g,d") -> str:
    """A CSV table of eight people in two groups."""
    rows = [f"{one}{sign}{d}" for d in A] + [f"{other}{sign}{d}" for d in B]
    return "\n".join([head.replace(",", sign), *rows]) + "\n"


def rates(data: Any, group: str = "g", **roles: Any) -> dict[str, float]:
    roles = {"sensitive": [group], "predictions": {"decision": "d"}} | roles
    report = fairkit.audit(None, fairkit.load_data(data, **roles))
    return {g.group: g.value for g in report.find("demographic_parity_difference", report_group(roles)).groups}


def report_group(roles: dict[str, Any]) -> str:
    return str(roles["sensitive"][0]).split(":")[0]


SPELLINGS = {
    "01 and 1": ("01", "1"),
    "0012 and 12": ("0012", "12"),
    "quoted": ('"01"', '"1"'),
    "00 and 0": ("00", "0"),
    "with a space": (" 01", " 1"),
    "hexadecimal": ("0x1", "0x10"),
    "capital hexadecimal": ("0X0A", "10"),
    "1.1 and 1.10": ("1.1", "1.10"),
    "1e3 and 1000.5": ("1e3", "1000.5"),
    "1e3 and 1000.": ("1e3", "1000.00"),
    "+1.5 and 1.5": ("+1.5", "1.5"),
    "true and True": ("true", "True"),
    "true and TRUE": ("true", "TRUE"),
    "1 and true": ("1", "true"),
    "0 and false": ("0", "false"),
    "beyond 2^63": ("10000000000000000000", "10000000000000000001"),
    "beyond -2^63": ("-10000000000000000000", "-10000000000000000001"),
    "beyond 2^53": ("9007199254740992", "9007199254740993"),
    "of 40 digits": ("1" * 40, "1" * 39 + "2"),
}


@pytest.mark.parametrize("form", ["csv", "semicolons", "tabs", "parquet"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_groups_are_as_they_are_spelled(name: str, form: str, tmp_path: Path) -> None:
    pair = SPELLINGS[name]
    one, other = (text.strip('" ') if form == "parquet" else text for text in pair)
    if form == "parquet":
        groups = pa.array([one] * 4 + [other] * 4)
        data: Any = tmp_path / "t.parquet"
        pq.write_table(pa.table({"g": groups, "d": [int(d) for d in A + B]}), data)
    else:
        data = tmp_path / "t.csv"
        data.write_text(lines(one, other, {"csv": ",", "semicolons": ";", "tabs": "\t"}[form]))
    found = rates(data)
    assert sorted(found.values()) == [0.5, 0.75]
    if not (form != "parquet" and name in ("1e3 and 1000.5", "with a space")):  # numbers that are spelled in one way
        assert found == {one.strip('"'): 0.75, other.strip('"'): 0.5}


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("1", " 1"), ("1.5", "1.50 "), ("-1", "-1.0")])
def test_one_number_in_two_forms(one: str, other: str, tmp_path: Path) -> None:
    """1 and 1.0 are one number wherever numbers are read; a space before a number says nothing."""
    path = tmp_path / "t.csv"
    path.write_text(lines(one, other) + lines("2", "2").partition("\n")[2])
    expected = 2 if one != "1.5" else 3  # 1.50 is not how 1.5 is spelled
    assert len(rates(path)) == expected


def test_a_code_that_comes_late(tmp_path: Path) -> None:
    """The first block of a file shows numbers only, the second has a zero before one, in another spelling of 7."""
    path, many = tmp_path / "t.csv", 500_000
    path.write_text("n,g,d\n" + "".join(f"{n},{5 + n % 2},1\n" for n in range(many)) + "1,05,0\n" * 400)
    assert path.stat().st_size > 1 << 22
    assert rates(path) == {"05": 0.0, "5": 1.0, "6": 1.0}
    source = open_source(path)
    with pytest.raises(fairkit.DataError, match="leading zeros"):
        list(source.batches(["g"], 65_536))


def test_parts_of_a_table(tmp_path: Path) -> None:
    """Codes in one file and numbers in the other, and flags that each spells in its way."""
    (tmp_path / "1.csv").write_text("g,f,d\n" + "01,true,1\n" * 4)
    (tmp_path / "2.csv").write_text("g,f,d\n" + "1,True,0\n" * 4)
    assert rates(tmp_path) == {"01": 1.0, "1": 0.0}
    assert rates(tmp_path, sensitive=["f"]) == {"true": 1.0, "True": 0.0}


WIDE: dict[str, Callable[[], Any]] = {
    "uint64": lambda: np.array([2**63] * 4 + [2**63 + 1] * 4, np.uint64),
    "decimal": lambda: pa.array([decimal.Decimal(10**30)] * 4 + [decimal.Decimal(10**30 + 1)] * 4),
    "decimals beyond 2^53": lambda: pa.array(
        [decimal.Decimal(2**53)] * 4 + [decimal.Decimal(2**53 + 1)] * 4, pa.decimal128(38)
    ),
    "python's integers": lambda: [2**70] * 4 + [2**70 + 1] * 4,
    "intervals": lambda: pd.Series(pd.cut([1] * 4 + [2] * 4, [0, 1, 2])),
    "plain intervals": lambda: pd.Series(pd.arrays.IntervalArray.from_breaks([0, 1, 2]).repeat(4)),
    "periods": lambda: pd.Series(pd.PeriodIndex(["2020"] * 4 + ["2021"] * 4, freq="Y")),
    "numbers and text": lambda: np.array([1] * 4 + ["other"] * 4, dtype=object),
    "enum": lambda: pl.Series(["a"] * 4 + ["b"] * 4, dtype=pl.Enum(["a", "b"])),
    "polars' categories": lambda: pl.Series(["a"] * 4 + ["b"] * 4, dtype=pl.Categorical),
    "polars' days": lambda: pl.Series([1] * 4 + [2] * 4).cast(pl.Date),
    "pandas' categories of numbers": lambda: pd.Series([1] * 4 + [2] * 4).astype("category"),
    "views of text": lambda: pa.array(["a"] * 4 + ["b"] * 4, pa.string_view()),
    "dictionaries of views": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0] * 4 + [1] * 4), pa.array(["a", "b"], pa.string_view())
    ),
    "int128": lambda: pl.Series([2**80] * 4 + [2**80 + 1] * 4, dtype=pl.Int128),
    "flags": lambda: np.array([True] * 4 + [False] * 4),
}


@pytest.mark.parametrize("beside", [False, True], ids=["frame", "beside"])
@pytest.mark.parametrize("name", WIDE)
def test_groups_of_every_type_are_counted(name: str, beside: bool) -> None:
    column, d = WIDE[name](), [int(d) for d in A + B]
    if beside:
        data = fairkit.load_data(pd.DataFrame({"d": d}), y=d, favorable=1, sensitive_features={"g": column})
        assert sorted(data.learn().groups["g"].values()) == [4, 4]
        return
    if isinstance(column, pl.Series):
        frame: Any = pl.DataFrame({"g": column, "d": d})
    elif isinstance(column, pa.Array):
        frame = pa.table({"g": column, "d": d})
    else:
        frame = pd.DataFrame({"g": column, "d": d})
    assert list(rates(frame).values()) in ([0.75, 0.5], [0.5, 0.75])


def test_small_unsigned_numbers_are_numbers() -> None:
    """As before: they have the digest of other whole numbers, and are no text."""
    plain, unsigned = ({"a": np.array([1, 2, 3], kind)} for kind in (np.int64, np.uint64))
    assert fairkit.load_data(unsigned).learn().sha256 == fairkit.load_data(plain).learn().sha256


UNREAD: dict[str, Callable[[int], Any]] = {
    "struct": lambda n: pa.array([{"a": 1}] * n),
    "map": lambda n: pa.array([[("a", 1)]] * n, pa.map_(pa.string(), pa.int64())),
    "months": lambda n: pa.array([pa.scalar((1, 2, 3), pa.month_day_nano_interval())] * n),
    "bytes": lambda n: pa.array([b"\xff\xfe"] * n),
    "fixed bytes": lambda n: pa.array([b"ab"] * n, pa.binary(2)),
    "views of bytes": lambda n: pa.array([b"\xff"] * n, pa.binary_view()),
    "lists of two lengths": lambda n: pa.array([[1], [1, 2]] * (n // 2)),
    "lists of text": lambda n: pa.array([["a"]] * n),
    "lists without a first": lambda n: pa.array([None, *[[1]] * (n - 1)]),
    "empty lists": lambda n: pa.array([[]] * n, pa.list_(pa.int64())),
    "runs": lambda n: pa.RunEndEncodedArray.from_arrays(pa.array([n], pa.int32()), pa.array(["x"])),
    "objects": lambda n: [object()] * n,
    "dictionaries": lambda n: [{"a": 1}, 3] * (n // 2),
    "complex numbers": lambda n: np.ones(n) * 1j,
    "uuid": lambda n: [uuid.UUID(int=k) for k in range(n)],
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_column_without_a_role_stops_nothing(name: str) -> None:
    column = UNREAD[name](8)
    base = {"g": ["a"] * 4 + ["b"] * 4, "d": [int(d) for d in A + B]}
    frame: Any = (
        pa.table(base | {"odd": column}) if isinstance(column, pa.Array) else pd.DataFrame(base | {"odd": column})
    )
    assert rates(frame) == {"a": 0.75, "b": 0.5}
    data = fairkit.load_data(frame, sensitive=["g"], drop=["odd"])
    data.learn()
    assert data.features == ("g", "d")
    assert data.info().notes[0].startswith("The column 'odd' was not read")
    with pytest.raises(fairkit.DataError, match="column 'odd'"):
        fairkit.load_data(frame, sensitive=["g"], features=["odd"]).read()
    with pytest.raises(fairkit.DataError, match="'odd'"):
        fairkit.load_data(frame, sensitive=["odd"]).learn()


def test_a_csv_column_of_other_bytes_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    head, _, rows = lines("a", "b").partition("\n")
    path.write_bytes(
        f"{head},name\n{rows}".replace("\n", ",M\xfcller\n").replace("name,M\xfcller", "name").encode("latin-1")
    )
    assert rates(path) == {"a": 0.75, "b": 0.5}


# keys

PEOPLE = [("0012", "f"), ("12", "m"), ("10000000000000000000", "f"), ("10000000000000000001", "m")]


@pytest.mark.parametrize("there", ["csv", "parquet"])
@pytest.mark.parametrize("here", ["csv", "parquet"])
def test_keys_are_compared_as_spelled(here: str, there: str, tmp_path: Path) -> None:
    log = pa.table({"id": [key for key, _ in PEOPLE] + ["012"], "d": [1, 0, 1, 0, 1]})
    people = pa.table({"id": [key for key, _ in PEOPLE], "sex": [sex for _, sex in PEOPLE]})
    for table, name, form in ((log, "log", here), (people, "people", there)):
        if form == "csv":
            table.to_pandas().to_csv(tmp_path / f"{name}.csv", index=False)
        else:
            pq.write_table(table, tmp_path / f"{name}.parquet")
    data = fairkit.load_data(
        tmp_path / f"log.{here}", join=tmp_path / f"people.{there}", on="id", sensitive=["sex"],
        predictions={"decision": "d"},
    )  # fmt: skip
    report = fairkit.audit(None, data)
    assert {g.group: g.value for g in report.find("demographic_parity_difference", "sex").groups}["f"] == 1.0
    assert report.data.joined["unmatched"] == 1


KEYS: dict[str, tuple[Any, Any, int]] = {
    "beyond 2^53, one missing": (pa.array([2**53, 2**53 + 1, None]), pa.array([2**53, 2**53 + 2]), 1),
    "unsigned and signed": (pa.array([2**63, 5], pa.uint64()), pa.array([5, 6]), 1),
    "unsigned and text": (pa.array([2**63, 5], pa.uint64()), pa.array([str(2**63), "05"]), 1),
    "decimals and text": (pa.array([decimal.Decimal(10**25), decimal.Decimal(1)]), pa.array([str(10**25), "2"]), 1),
    "fractions and whole numbers": (pa.array([12.0, 12.5, None]), pa.array([12, 13]), 1),
    "whole numbers and fractions": (pa.array([2**53 + 1, 3]), pa.array([float(2**53), 3.0]), 1),
    "numbers and text": (pa.array([12, 13]), pa.array(["12", "013"]), 1),
    "text and numbers": (pa.array(["12", "013"]), pa.array([12, 13]), 1),
    "flags and text": (pa.array([True, False]), pa.array(["True", "false"]), 1),
    "categories": (pa.array(["a", "b"]).dictionary_encode(), pa.array(["a", "c"]), 1),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_all_types(name: str) -> None:
    here, there, matched = KEYS[name]
    log = pa.table({"id": here, "d": [1, 0, 1][: len(here)]})
    people = pa.table({"id": there, "sex": ["f", "m"]})
    data = fairkit.load_data(log, join=people, on="id", predictions={"decision": "d"})
    assert data.learn().joined["matched"] == matched


def test_keys_of_two_columns() -> None:
    log = pa.table({"a": ["01", "1", "1"], "b": [1, 1, 2], "d": [1, 0, 1]})
    people = pa.table({"a": ["01", "1"], "b": ["1", "1"], "sex": ["f", "m"]})
    data = fairkit.load_data(log, join=people, on=["a", "b"], predictions={"decision": "d"})
    assert data.learn().joined["matched"] == 2


# clusters and strata

UNITS = {
    "beyond 2^63": [str(10**19 + k) for k in range(300)],
    "zeros before them": [f"{'0' * (k % 3)}{k // 3 + 1}" for k in range(300)],
    "fractions": [f"{k % 5}.1{'0' * (k % 2)}" for k in range(300)],
    "flags and numbers": ["1", "true", "0", "false"] * 75,
}


@pytest.mark.parametrize("name", UNITS)
def test_clusters_and_strata_are_as_they_are_spelled(name: str, tmp_path: Path) -> None:
    path, units = tmp_path / "t.csv", UNITS[name]
    path.write_text("u,g,d\n" + "".join(f"{u},{'fm'[k % 2]},{k % 2}\n{u},f,1\n{u},m,0\n" for k, u in enumerate(units)))
    roles: dict[str, Any] = {"sensitive": ["g"], "predictions": {"decision": "d"}}
    assert fairkit.load_data(path, **roles, cluster="u").learn().clusters == len(set(units))
    assert set(fairkit.load_data(path, **roles, within=["u"]).learn().strata["u"]) == set(units)


# labels and decisions


def labelled(labels: list[str], decisions: list[str], **roles: Any) -> fairkit.Report:
    """An audit of six people, each as often as a number has groups enough."""
    table = pa.table({"y": labels * 2, "d": decisions * 2, "g": ["f"] * len(labels) + ["m"] * len(labels)})
    predictions = {"decision": "d"} | roles.pop("said", {})
    return fairkit.audit(None, fairkit.load_data(table, label="y", sensitive=["g"], predictions=predictions, **roles))


def test_labels_that_differ_by_a_mark() -> None:
    report = labelled([">50K", ">50K.", "<=50K", "<=50K."], ["1", "1", "0", "0"], favorable=">50K")
    said = " ".join(report.warnings)
    assert "'>50K' and '>50K.' of the column 'y' look the same" in said
    assert "'y' has 4 values" in said
    assert "'>50K' in 2 rows" in said
    assert "'>50K' counts as favorable and the 3 others as unfavorable" in said
    assert report.find("accuracy").value == 0.75


def test_a_third_decision_is_told() -> None:
    report = labelled(
        ["1", "0", "1"], ["approved", "denied", "withdrawn"], favorable="1", said={"favorable": "approved"}
    )
    said = " ".join(report.warnings)
    assert "'d' has 3 values ('approved' in 2 rows, 'denied' in 2 rows, 'withdrawn' in 2 rows)" in said


@pytest.mark.parametrize("favorable", ["01", "1"])
def test_the_favorable_label_is_the_one_that_is_spelled_so(favorable: str) -> None:
    report = labelled(["01", "1", "1"], ["1", "1", "0"], favorable=favorable)
    assert report.find("true_positive_rate").value == {"01": 1.0, "1": 0.5}[favorable]
    assert "they differ in leading zeros" in " ".join(report.warnings)


@pytest.mark.parametrize(("flag", "favorable"), [("true", True), ("True", "true"), ("TRUE", "True")])
def test_flags_as_labels_mean_what_they_say(flag: str, favorable: Any, tmp_path: Path) -> None:
    path, no = tmp_path / "t.csv", {"true": "false", "True": "False", "TRUE": "FALSE"}[flag]
    path.write_text("y,d,g\n" + f"{flag},1,f\n{no},1,m\n{flag},0,m\n{no},0,f\n" * 3)
    data = fairkit.load_data(path, label="y", favorable=favorable, sensitive=["g"], predictions={"decision": "d"})
    assert fairkit.audit(None, data).find("true_positive_rate").value == 0.5


def test_two_values_are_no_news() -> None:
    report = labelled(["yes", "no"], ["1", "0"], favorable="yes")
    assert not any("values (" in text for text in report.warnings)


# numbers that are used as such


def numbers_model(path: Path, kind: int, name: str = "x") -> Path:
    """A model whose score is 1 where its input is 7, or the text 07."""
    value = helper.make_tensor("seven", kind, [1], [b"07"] if kind == TensorProto.STRING else [7.0])
    graph = helper.make_graph(
        [
            helper.make_node("Equal", [name, "seven"], ["is"]),
            helper.make_node("Cast", ["is"], ["p"], to=TensorProto.FLOAT),
        ],
        "seven",
        [helper.make_tensor_value_info(name, kind, ["n", 1])],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 1])],
        [value],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path)
    return path


@pytest.mark.parametrize(
    ("kind", "cells", "rate"),
    [
        (TensorProto.STRING, ("07", "7"), {"a": 1.0, "b": 0.0}),  # a model of text gets what the table says
        (TensorProto.FLOAT, ("07", "7"), {"a": 1.0, "b": 1.0}),  # a model of numbers gets numbers
        (TensorProto.FLOAT, ("007.0", "8"), {"a": 1.0, "b": 0.0}),
        (TensorProto.STRING, ("07", "7.5"), {"a": 1.0, "b": 0.0}),
    ],
)
def test_models_of_text_and_of_numbers(
    kind: int, cells: tuple[str, str], rate: dict[str, float], tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,g,y\n" + f"{cells[0]},a,1\n{cells[1]},b,0\n{cells[0]},a,0\n{cells[1]},b,1\n" * 3)
    data = fairkit.load_data(path, label="y", favorable=1, sensitive=["g"], features=["x"])
    report = fairkit.audit(numbers_model(tmp_path / "m.onnx", kind), data, options=ModelOptions(task="binary"))
    found = report.find("demographic_parity_difference", "g").groups
    assert {g.group: g.value for g in found} == rate


def test_weights_bins_scores_and_shares_of_digits(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [("01", "020", "0.25", 1), ("02", "045", "0.75", 0), ("1", "30", "0.5", 1), ("01", "070", "0.125", 0)]
    path.write_text("w,age,p,d\n" + "".join(f"{w},{age},{p},{d}\n" for w, age, p, d in rows * 3))
    assert rates(path, sensitive=["age:40"], weights="w") == {"< 40": 1.0, ">= 40": 0.0}
    assert fairkit.audit(None, fairkit.load_data(path, predictions={"decision": "d"}, weights="w")).find(
        "selection_rate"
    ).value == pytest.approx(2 / 5)


def test_a_decimal_comma_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("g;p;d\n" + "a;0,75;1\nb;0,25;0\na;1;1\nb;0;1\n")
    (batch,) = open_source(path).batches(["p"], 10)
    assert batch.column(0).to_pylist() == [0.75, 0.25, 1.0, 0.0]
    assert rates(path) == {"a": 1.0, "b": 0.5}


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_every_usual_sign_parts_cells(sign: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf" + lines("a", '"b,;|"', sign).encode())
    assert rates(path) == {"a": 0.75, "b,;|": 0.5}


def test_one_column_with_other_signs(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a|b\nx\ny\n")
    assert open_source(path).columns == ["a|b"]


# files that are something else


def workbook(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("xl/workbook.xml", "<x/>")


def database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (g TEXT)")


FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "utf-16": (lambda p: p.write_text(lines("a", "b"), "utf-16"), "UTF-16"),
    "utf-16 without a mark": (lambda p: p.write_text(lines("a", "b"), "utf-16-le"), "UTF-16"),
    "json lines": (lambda p: p.write_text('{"g": "a", "d": 1}\n' * 8), "JSON"),
    "json": (lambda p: p.write_text('[\n  {"g": "a", "d": 1}\n]'), "JSON"),
    "json by column": (lambda p: p.write_text('{"g": {"0": "a"}}'), "JSON"),
    "feather": (lambda p: pyarrow.feather.write_feather(pa.table({"g": ["a"]}), str(p)), "Feather"),
    "gzip": (lambda p: p.write_bytes(gzip.compress(b"g,d\n")), "no text"),
    "excel": (workbook, "Excel"),
    "sqlite": (database, "is no text"),
    "html": (lambda p: p.write_text("<!DOCTYPE html><table>"), "HTML"),
    "a comment": (lambda p: p.write_text("# exported today\n" + lines("a", "b")), "first line, '# exported today'"),
    "a title": (
        lambda p: p.write_text("Decisions\n" + lines("a", "b")),
        "first line, 'Decisions', is not the names of the 2",
    ),
    "excel's separator": (lambda p: p.write_text("sep=;\n" + "g;d;e\n" + "a;1;2\n" * 8), "first line"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_kinds_are_named(name: str, tmp_path: Path) -> None:
    write, said = FILES[name]
    write(tmp_path / "t.csv")
    with pytest.raises(fairkit.DataError, match=said):
        rates(tmp_path / "t.csv")


# indices and names


@pytest.mark.parametrize("name", ["__index_level_0__", "Unnamed: 0", ""])
def test_the_index_of_pandas_is_no_feature(name: str) -> None:
    table = {name: [3, 1, 2], "a": [1.0, 2.0, 4.0], "y": [0, 1, 1]}
    data = fairkit.load_data(table, label="y", favorable=1)
    assert data.features == ("a",)
    assert name in data.columns
    assert fairkit.load_data(table, label="y", favorable=1, features=[name]).features == (name,)


@pytest.mark.parametrize(
    ("column", "typed", "rule"),
    [
        (" g", " g", " g"),
        (" g", "g", " g"),
        ("g ", "g", "g "),
        ("a,b", '"a,b"', "a,b"),
        ("a|b", "a|b", '"a|b"'),
        ("a=b", "a=b", "a=b"),
        ("a b", "a b", "a b"),
    ],
)
def test_names_that_need_care(column: str, typed: str, rule: str, tmp_path: Path) -> None:
    from fairkit_cli.options.data import split_names

    table = {column: ["f"] * 40 + ["m"] * 40, "d": [1] * 40 + [0] * 40}
    data = fairkit.load_data(table, sensitive=split_names([typed], exact=True) or (), predictions={"decision": "d"})
    report = fairkit.audit(None, data, policy=[fairkit.Rule.parse(f"demographic_parity_difference:{rule}=0.1", "max")])
    assert report.find("demographic_parity_difference", column).value == 1.0
    assert report.verdict == "fail"


def test_a_name_beside_itself_with_a_space() -> None:
    table = {"g": ["f", "m"], " g": ["a", "b"]}
    assert fairkit.load_data(table, sensitive=[" g"]).roles.sensitive[0].columns == (" g",)
    assert fairkit.load_data(table, sensitive=["g"]).roles.sensitive[0].columns == ("g",)
