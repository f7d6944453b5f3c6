"""What users get wrong with models, data and rules: one message each that says what, where and how to fix it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper, numpy_helper

import fairkit

N = 200


def _columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "sex": np.array(["f", "m"], dtype=object)[rng.integers(0, 2, N)],
        "age": rng.integers(20, 60, N),
        "income": rng.random(N) * 100,
        "label": np.array(["no", "yes"], dtype=object)[rng.integers(0, 2, N)],
    }


def _data(columns: Mapping[str, Any] | str | Path | None = None, **roles: Any) -> fairkit.Dataset:
    given = {"label": "label", "favorable": "yes", "sensitive": ["sex"], **roles}
    return fairkit.load_data(_columns() if columns is None else columns, **given)


def _graph(
    inputs: Mapping[str, int] | None = None,
    *,
    width: int = 1,
    operator: str = "Sigmoid",
    outputs: tuple[str, ...] = ("probability",),
    ir_version: int = 8,
    opset: int = 17,
) -> onnx.ModelProto:
    """An operator on the sum of the inputs (text inputs are ignored)."""
    given = {"income": TensorProto.FLOAT} if inputs is None else inputs
    nodes = []
    numeric = [name for name, kind in given.items() if kind != TensorProto.STRING]
    for name in numeric:
        nodes.append(helper.make_node("Cast", [name], [f"{name}_f"], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("Sum", [f"{name}_f" for name in numeric], ["sum"]))
    nodes.append(helper.make_node("ReduceSum", ["sum", "axes"], ["total"], keepdims=1))
    nodes += [helper.make_node(operator, ["total"], [name]) for name in outputs]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, [None, width]) for name, kind in given.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 1]) for name in outputs],
        [numpy_helper.from_array(np.array([1], np.int64), "axes")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def _refused(kind: type[fairkit.FairkitError], *said: str, model: Any = None, data: Any = None, **given: Any) -> str:
    with pytest.raises(kind) as caught:
        fairkit.audit(_graph() if model is None else model, data() if callable(data) else data or _data(), **given)
    message = str(caught.value)
    for part in said:
        assert part in message
    assert "\n" not in message
    assert "Traceback" not in message
    return message


# models


def test_no_such_file_lists_the_folders_models(tmp_path: Path) -> None:
    (tmp_path / "credit.onnx").write_bytes(b"x")
    _refused(fairkit.ModelError, "there is no model file", "credit.onnx", model=tmp_path / "cedit.onnx")


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    _refused(fairkit.ModelError, "is a folder; give the .onnx file in it", model=tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip", b"hello, I am text\n" * 20, b"\x00" * 64])
def test_a_file_that_is_no_model(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    _refused(fairkit.ModelError, "m.onnx", "empty (0 bytes)" if not content else "not an ONNX model", model=path)


@pytest.mark.long
def test_every_truncation_is_refused_or_runs(tmp_path: Path) -> None:
    whole = _graph().SerializeToString()
    path = tmp_path / "m.onnx"
    for length in range(1, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(fairkit.FairkitError, match=r"m\.onnx"):
            fairkit.audit(path, _data())


def test_an_operator_that_nobody_knows() -> None:
    _refused(fairkit.ModelError, "operator that onnxruntime does not know", model=_graph(operator="Frobnicate"))


def test_an_opset_from_the_future() -> None:
    message = _refused(fairkit.ModelError, model=_graph(opset=99))
    assert "onnxruntime" in message


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "sub/../../secret.bin"])
def test_tensors_outside_the_models_folder(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\x00" * 64)
    folder = tmp_path / "models"
    (folder / "sub").mkdir(parents=True)
    proto = _graph()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    _refused(fairkit.ModelError, "outside its own folder", location, "is not loaded", model=path)


def test_a_link_out_of_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\x00" * 64)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "weights.bin").symlink_to(tmp_path / "secret.bin")
    proto = _graph()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "weights.bin"
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    _refused(fairkit.ModelError, "outside its own folder", model=path)


def test_inputs_that_the_data_lacks_suggest_near_names() -> None:
    proto = _graph({"agee": TensorProto.FLOAT, "income": TensorProto.FLOAT})
    _refused(fairkit.DataError, "no column for the model's input 'agee'", "Did you mean 'age'?", model=proto)


def test_inputs_that_two_columns_could_be() -> None:
    columns = _columns() | {"debt-ratio": np.ones(N), "debt ratio": np.ones(N)}
    proto = _graph({"debt_ratio": TensorProto.FLOAT, "income": TensorProto.FLOAT})
    _refused(fairkit.DataError, "'debt_ratio' could be any of", "rename", model=proto, data=_data(columns))


def test_a_matrix_of_another_width() -> None:
    proto = _graph({"X": TensorProto.FLOAT}, width=5)
    _refused(fairkit.DataError, "takes 5 columns but gets 3: sex, age, income", "`features`", model=proto)


def test_text_for_a_numeric_input() -> None:
    proto = _graph({"sex": TensorProto.FLOAT})
    _refused(fairkit.DataError, "takes numbers, but column 'sex' holds text", "`drop`", model=proto)


def test_fractions_for_a_whole_input() -> None:
    proto = _graph({"income": TensorProto.INT64})
    _refused(fairkit.DataError, "takes whole numbers", "'income'", "fill or round", model=proto)


def test_fractions_for_a_text_input() -> None:
    proto = _graph({"income": TensorProto.STRING, "age": TensorProto.FLOAT})
    _refused(fairkit.DataError, "takes text, but column 'income' holds fractional numbers", model=proto)


def test_an_input_type_that_no_table_has() -> None:
    proto = _graph({"income": TensorProto.UINT8})
    _refused(fairkit.ModelError, "'income' has the type tensor(uint8)", model=proto)


def test_scores_that_are_not_numbers() -> None:
    columns = _columns()
    columns["income"][3] = np.nan
    _refused(fairkit.ModelError, "NaN or infinite scores for 1 of 200 rows", "features", data=_data(columns))
    later = {name: np.concatenate([np.tile(_columns()[name], 400), columns[name]]) for name in columns}
    _refused(fairkit.ModelError, "NaN or infinite scores", data=_data(later))


def test_scores_that_are_no_probabilities() -> None:
    options = fairkit.ModelOptions(score_kind="probability")
    proto = _graph(operator="Identity")
    _refused(
        fairkit.ModelError,
        "leave [0, 1]",
        "say what they are with `score_kind`: logit, percent",
        model=proto,
        options=options,
    )


def test_several_outputs_that_could_be_the_score() -> None:
    proto = _graph(outputs=("first", "second"))
    _refused(fairkit.ModelError, "several outputs could hold the scores (first, second)", model=proto)
    options = fairkit.ModelOptions(score_output="secnd")
    _refused(fairkit.ModelError, "no output 'secnd'", "Did you mean 'second'?", model=proto, options=options)
    chosen = fairkit.audit(proto, _data(), options=fairkit.ModelOptions(score_output="second"))
    assert chosen.find("mean_prediction").value is not None


def test_an_object_that_is_no_model() -> None:
    _refused(fairkit.ModelError, "a dict has no predict method", model={"a": 1})


def test_options_out_of_range() -> None:
    with pytest.raises(fairkit.ParameterError, match="threshold=nan is not a number that scores can reach"):
        fairkit.ModelOptions(threshold=float("nan"))
    _refused(
        fairkit.ParameterError,
        "threshold=2 is not a probability",
        model=_graph(),
        options=fairkit.ModelOptions(threshold=2),
    )
    with pytest.raises(fairkit.ParameterError, match="task='sorting' is not understood; it is one of binary"):
        fairkit.ModelOptions(task="sorting")  # type: ignore[arg-type]


# data


def test_no_such_data_lists_the_folders_tables(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("a\n1\n")
    with pytest.raises(fairkit.DataError, match=r"there is no data file .*people\.csv"):
        _data(tmp_path / "peple.csv")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.csv", b"", r"empty\.csv is empty \(0 bytes\)"),
        ("header.csv", b"sex,label,income\n", r"header\.csv has a header but no rows"),
        ("ragged.csv", b"sex,label,income\nf,yes,1\nm,no\nf,no,2\n", r"ragged\.csv is not a rectangular CSV table"),
        ("broken.parquet", b"PAR1 and no more", r"broken\.parquet cannot be read as Parquet"),
        ("twice.csv", b"sex,sex,label\nf,f,yes\n", r"two columns have the name 'sex'; rename one"),
        ("latin.csv", b"sex,label,income\nf\xe9,yes,1\nm,no,2\n", r"column 'sex' holds bytes that are no UTF-8 text"),
    ],
)
def test_tables_that_cannot_be_read(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(fairkit.DataError, match=said) as caught:
        _data(path).learn()
    assert "\n" not in str(caught.value)


def test_a_ragged_row_far_down(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    rows = "f,yes,1\nm,no,2\n" * 400_000
    path.write_text(f"sex,label,income\n{rows}f,yes\n{rows[:800]}")
    with pytest.raises(fairkit.DataError, match=r"long\.csv is not a rectangular CSV table.*Expected 3 columns, got 2"):
        _data(path).learn()


def test_a_parquet_file_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(_columns()), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(fairkit.DataError, match=r"t\.parquet cannot be read as Parquet"):
        _data(path)


def test_a_folder_without_tables(tmp_path: Path) -> None:
    with pytest.raises(fairkit.DataError, match=r"holds no \.parquet file"):
        _data(tmp_path)


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ({"label": "lable"}, "has no label column 'lable'. Did you mean 'label'?"),
        ({"sensitive": ["sxe"]}, "there is no sensitive column 'sxe' in the data. Did you mean 'sex'?"),
        ({"sensitive": ["sex", "sex"]}, "the sensitive column 'sex' is named twice"),
        ({"sensitive": ["label"]}, "'label' cannot be the label and a sensitive column at once"),
        ({"sensitive": ["age:old"]}, "are not numbers; write them as column:edge:edge"),
        ({"sensitive": ["age:60:25"]}, "must be finite and increase"),
        ({"features": ["incom"]}, "has no feature column 'incom'. Did you mean 'income'?"),
        ({"drop": ["agee"]}, "has no dropped column 'agee'. Did you mean 'age'?"),
        ({"weights": "w"}, "has no weights column 'w'"),
        ({"missing": "keep"}, "missing='keep' is not understood"),
    ],
)
def test_roles_that_the_table_lacks(roles: dict[str, Any], said: str) -> None:
    with pytest.raises(fairkit.DataError) as caught:
        _data(**roles)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("change", "roles", "said"),
    [
        ({"label": np.array(["yes"] * N, dtype=object)}, {}, "'label' holds one value only, 'yes'"),
        ({}, {"favorable": "Yes!"}, "never has the favorable value 'Yes!'. Did you mean 'yes'?"),
        ({"sex": np.array(["f"] * N, dtype=object)}, {}, "'sex' has one group only (f)"),
        ({"sex": np.array([None] * N, dtype=object)}, {}, "the sensitive column 'sex' has one group only (none)"),
        ({"w": np.full(N, -1.0)}, {"weights": "w"}, "200 weights in column 'w' are negative"),
        ({"w": np.array(["a"] * N, dtype=object)}, {"weights": "w"}, "column 'w' holds text; weights are numbers"),
        ({"w": np.full(N, np.inf)}, {"weights": "w"}, "'w' holds 200 infinite numbers"),
        ({"label": np.where(np.arange(N) == 5, np.inf, np.arange(N))}, {"favorable": None}, "'label' holds 1 infinite"),
        ({}, {"sensitive": ["age:10"]}, "no row has 'age' in the bin '< 10'"),
        ({}, {"sensitive": ["sex:1"]}, "'sex' holds text and cannot be binned"),
        ({}, {"favorable": None}, "which value of 'label' is good for the person?"),
    ],
)
def test_rows_that_do_not_fit_their_roles(change: dict[str, Any], roles: dict[str, Any], said: str) -> None:
    _refused(fairkit.DataError, said, data=_data(_columns() | change, **roles))


def test_an_identifier_is_no_group() -> None:
    columns = {"id": np.array([f"p{i}" for i in range(12_000)], dtype=object), "label": np.arange(12_000) % 2}
    data = fairkit.load_data(columns, label="label", favorable=1, sensitive=["id"])
    with pytest.raises(fairkit.DataError, match="more than 10000 groups; is it an identifier"):
        data.learn()


def test_lists_of_different_lengths_are_refused_where_they_are_features() -> None:
    table = pa.table({"sex": ["f", "m"], "label": [0, 1], "history": [[1], [2, 3]]})
    data = fairkit.load_data(table, label="label", favorable=1, sensitive=["sex"])
    data.learn()
    assert "column 'history' has lists of different lengths: 1 numbers" in data.info().notes[0]
    with pytest.raises(fairkit.DataError, match=r"column 'history' has lists .* 1 numbers .* 2 in row 1 "):
        fairkit.load_data(table, label="label", favorable=1, sensitive=["sex"], features=["history"]).read()


def test_data_of_another_kind() -> None:
    with pytest.raises(fairkit.DataError, match="data of type int is not understood"):
        fairkit.load_data(7)
    with pytest.raises(fairkit.DataError, match="the data frame cannot be read"):
        fairkit.load_data({"a": [1, 2], "b": [1]})


def test_text_scores_and_odd_decisions_in_columns() -> None:
    columns = _columns() | {"s": np.full(N, 1.5), "d": np.full(N, 0.5)}
    text = fairkit.PredictedColumns(score="sex")
    _refused(fairkit.ModelError, "'sex' holds text; scores are numbers", model=text)
    _refused(fairkit.ModelError, "'s' leaves [0, 1]", model=fairkit.PredictedColumns(score="s"), data=_data(columns))
    _refused(
        fairkit.ModelError, "'d' holds fractions", model=fairkit.PredictedColumns(decision="d"), data=_data(columns)
    )
    _refused(fairkit.DataError, "no prediction column 'scr'", model=fairkit.PredictedColumns(score="scr"))
    with pytest.raises(fairkit.ParameterError, match="name a column"):
        fairkit.PredictedColumns()


# rules, auditors and parameters


def test_rules_that_nothing_measured_suggest() -> None:
    rule = fairkit.Rule(metric="demographic_party_difference", max=0.1)
    _refused(
        fairkit.PolicyError, "which no installed auditor measures", "'demographic_parity_difference'", policy=[rule]
    )
    rule = fairkit.Rule(metric="demographic_parity_difference", sensitive="sx", max=0.1)
    _refused(fairkit.PolicyError, "for 'sx', which was not audited", "Did you mean 'sex'?", policy=[rule])


@pytest.mark.parametrize("text", ["demographic_parity_difference", "=0.1", "x:sex=", "x=high", "x=nan", "x=inf"])
def test_rules_that_are_no_rules(text: str) -> None:
    with pytest.raises(fairkit.PolicyError, match="write METRIC:COLUMN=NUMBER"):
        fairkit.Rule.parse(text, "max")


def test_unknown_auditors_and_parameters() -> None:
    _refused(fairkit.PluginError, "there is no auditor 'grup'", "Did you mean 'group'", auditors=["grup"])
    _refused(fairkit.ParameterError, "min_grup", "min_group", parameters={"group": {"min_grup": 5}})
    _refused(fairkit.ParameterError, "min_group", parameters={"group": {"min_group": 0}})
    _refused(
        fairkit.ParameterError, "which is not asked for; name it in `auditors` too", parameters={"dif": {"epsilon": 1}}
    )
    _refused(fairkit.ParameterError, "confidence=95 is not between 0 and 1", confidence=95)
    _refused(fairkit.ParameterError, "seed=-1 is negative", seed=-1)


def test_findings_that_the_report_lacks_suggest() -> None:
    report = fairkit.audit(_graph(), _data())
    with pytest.raises(fairkit.DataError, match=r"no finding 'acuracy'\. Did you mean 'accuracy'"):
        report.find("acuracy")
    with pytest.raises(fairkit.DataError, match="0 findings answer to 'accuracy_difference' for 'race'"):
        report.find("accuracy_difference", "race")


@pytest.mark.parametrize("data", ["loans.csv", Path("loans.csv"), {"sex": ["f"]}, np.zeros((2, 2))])
def test_data_without_roles_says_how_to_load_it(data: Any) -> None:
    for work in (
        lambda: fairkit.audit(_graph(), data),
        lambda: fairkit.mitigate("reweigh", data),
        lambda: fairkit.frontier([fairkit.Sweep(plugin="reweigh")], data),
    ):
        with pytest.raises(fairkit.DataError, match=f"the data is a {type(data).__name__}, not a Dataset; .*load_data"):
            work()


def test_reports_and_findings_print_as_lines() -> None:
    report = fairkit.audit(_graph(), _data())
    lines = str(report).splitlines()
    assert len(lines) <= 25
    assert lines[-1] == f"{len(report.findings) - (len(lines) - 3)} more: report.findings"
    assert lines[0].startswith("The largest disparity: ")
    assert f"{N} rows" in lines[1]
    found = report.find("accuracy_difference", "sex")
    low, high = found.interval or (0.0, 0.0)
    assert str(found) == f"accuracy_difference of sex: {found.value:.4g} [{low:.4g}, {high:.4g}]"
    assert str(found) in lines


WITHOUT_PANDAS = """
import sys

class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

sys.meta_path.insert(0, NoPandas())
import fairkit

class Named:
    feature_names_in_ = ("age",)

    def predict(self, rows):
        return [0] * len(rows)

data = fairkit.load_data({"age": [1.0, 2.0], "y": [0, 1], "s": ["a", "b"]}, label="y", favorable=1, sensitive=["s"])
for call in (lambda: fairkit.datasets.frame("adult"), lambda: fairkit.audit(Named(), data)):
    try:
        call()
    except fairkit.FairkitError as error:
        print(error)
"""


def test_what_needs_pandas_says_so_where_it_is_absent():
    told = subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], capture_output=True, text=True, check=True)
    assert told.stdout == 2 * "pandas is not installed; fix it with: pip install 'fairkit[pandas]'\n"


def test_a_model_that_is_a_pipe_is_refused_at_once(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(fairkit.ModelError, match="no regular file"):
        fairkit.OnnxModel.load(tmp_path / "pipe.onnx")


def test_a_group_whose_rows_weigh_nothing_has_no_distance():
    rng = np.random.default_rng(0)
    sex = np.array(["f", "m"])[rng.integers(0, 2, 400)]
    table = {"s": rng.random(400), "y": rng.integers(0, 2, 400), "sex": sex, "w": np.where(sex == "f", 0.0, 1.0)}
    data = fairkit.load_data(table, label="y", favorable=1, sensitive=["sex"], weights="w")
    report = fairkit.audit(fairkit.PredictedColumns(score="s"), data)
    found = report.find("statistical_parity_ks", "sex")
    assert (found.value, found.interval) == (None, None)
    assert found.inconclusive is not None


def test_a_folder_whose_files_vanish_while_they_are_listed_is_one_message(tmp_path, monkeypatch):
    def vanishing(_self, _pattern):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(type(tmp_path), "rglob", vanishing)
    with pytest.raises(fairkit.FairkitError, match="changed while its files were listed"):
        fairkit.load_data(tmp_path, label="y")
