"""The plugin `sensei`: tables to files, frontiers, clear refusals, and Adult in a small form."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fairkit
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.mitigators import Run, Table
from fairkit_onnx.write.export import export
from fairkit_repair.mitigation.choose import split_dataset
from fairkit_sensei import SenSeI
from fairkit_similarity import learn
from fairkit_testing.samples import sample_data

QUICK = {"epochs": 8, "batch": 32, "rate": 0.005, "hidden": (16,)}


def fitted(values=None, task="binary", rows=600, **given):
    parameters = SenSeI.Parameters(**(QUICK | (values or {})))
    table = Table.from_dataset(sample_data(task, rows=rows))
    return SenSeI(parameters, **given).fit(table, Run(seed=1)), table


@pytest.mark.long
@pytest.mark.parametrize(
    "values",
    [
        {"fair_metric": "face", "sensitive": ("sex",)},
        {"fair_metric": "explore", "sensitive": ("sex", "race")},
        {"method": "clp", "sensitive": ("sex+race",)},
        {"method": "sensr"},
        {"hidden": ()},
        {"epsilon": 0.0},
    ],
)
def test_every_method_and_metric_gives_a_file_that_is_less_sensitive(values):
    model, table = fitted(values | {"rho": 20.0})
    plain, _ = fitted({"method": "erm", "hidden": values.get("hidden", (16,))})
    flipped = dict(table.columns)
    flipped["sex"] = np.where(flipped["sex"] == "male", "female", "male").astype(object)

    def change(one):
        return np.abs(one.predict(table.columns).score - one.predict(flipped).score).mean()

    assert change(model) < 0.5 * change(plain)


@pytest.mark.long
@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_several_classes_and_numbers_are_learned(task):
    model, table = fitted({"epochs": 20, "rho": 1.0}, task)
    score = model.predict(table.columns).score
    if task == "regression":
        assert np.corrcoef(score, table.target)[0, 1] > 0.3
        assert abs(score.mean() - table.target.mean()) < 0.5 * table.target.std()
    else:
        assert (score.argmax(axis=1) == table.target).mean() > 0.4


@pytest.mark.long
def test_a_frontier_over_rho_shows_how_alike_similar_people_are_treated():
    sweep = fairkit.Sweep(plugin="sensei", vary={"rho": [0.0, 1.0, 20.0]}, fixed=QUICK)
    axes = {"performance": "balanced_accuracy", "disparity": "dif"}
    found = fairkit.frontier([sweep], sample_data(rows=400), parameters={"dif": {"epsilon": 0.1}}, **axes, jobs=1)
    gaps = [found.axes(point)[0].value for point in found.points[1:]]
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2]
    assert [item.metric for item in found.test.findings if item.auditor == "dif"] == ["dif"]


@pytest.mark.long
def test_the_same_seed_gives_the_same_file():
    data = sample_data(rows=400)
    one, two = (fairkit.mitigate("sensei", data, seed=3, **QUICK) for _ in range(2))
    assert one.sha256 == two.sha256


@pytest.mark.long
def test_a_metric_from_a_file_and_from_python(tmp_path):
    data = sample_data(rows=500)
    table = Table.from_dataset(data)
    metric = learn.subspace({name: table.columns[name] for name in table.features}, ["sex", "race"])
    metric.save(tmp_path / "metric.json")
    model, _ = fitted({"fair_metric": str(tmp_path / "metric.json")}, rows=500)
    other, _ = fitted(metric=metric, rows=500)
    assert model.details["metric_sha256"] == metric.sha256
    assert model.details["history"] == other.details["history"]


@pytest.mark.long
def test_directions_choose_whose_predictor_is_ignored():
    table = Table.from_dataset(sample_data(rows=500))
    every, one, none = (fitted({"directions": names}, rows=500)[0] for names in (None, ["sex"], []))
    free = [model.details["free_directions"] for model in (every, one, none)]
    assert free[0] > free[1] == free[2] + 1
    columns = {name: table.columns[name] for name in table.features}
    wanted = learn.subspace(columns, ["sex", "race"], directions=["sex"], strength=1e-6)
    assert one.details["metric_sha256"] == wanted.sha256
    with pytest.raises(fairkit.ParameterError, match="directions belongs to fair_metric=subspace"):
        SenSeI(SenSeI.Parameters(directions=("sex",), fair_metric="face", sensitive=("sex",)))


@pytest.mark.long
def test_a_module_of_one_s_own():
    torch = pytest.importorskip("torch")

    class Residual(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inner, self.out = torch.nn.Linear(width, width), torch.nn.Linear(width, 1)

        def forward(self, x):
            return self.out(x + torch.nn.functional.silu(self.inner(x))).squeeze(1)

    table = Table.from_dataset(sample_data(rows=400))
    width = len(fitted(rows=400)[0].encoder.names)
    torch.manual_seed(0)
    method = SenSeI(SenSeI.Parameters(**QUICK), module=Residual(width))
    result = fairkit.mitigate(method, sample_data(rows=400))
    assert result.after.find("balanced_accuracy").value > 0.5
    assert len(table) == 400


def test_one_group_of_everybody_is_the_plain_network():
    x = np.random.default_rng(0).normal(size=(200, 3))
    model = fairkit.mitigator("sensei")(epochs=2).fit(x, (x[:, 0] > 0).astype(int))
    assert "plain network was trained" in model.model_.notes[0]


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ({"rho": float("inf")}, ParameterError, "rho must be a finite number"),
        ({"method": "clp"}, ParameterError, "needs counterfactuals"),
        ({"fair_metric": "face"}, ParameterError, "needs counterfactuals"),
        ({"fair_metric": "subspce"}, ParameterError, "nor a file"),
        ({"batch": 1}, ParameterError, "batch of 1 rows cannot hold 2 classes"),
        ({"method": "clp", "sensitive": ("sexx",)}, ParameterError, "reads no column"),
        ({"device": "cuda"}, ParameterError, "finds no GPU"),
        ({"fair_metric": "face", "sensitive": ("sex",), "rank": 99}, DataError, "rank=99"),
    ],
)
def test_bad_parameters_are_refused(values, error, says):
    torch = pytest.importorskip("torch")

    if values.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(error, match=says):
        fitted(values)


@pytest.mark.long
def test_a_metric_of_other_columns_and_a_module_of_another_shape():
    torch = pytest.importorskip("torch")

    table = Table.from_dataset(sample_data(rows=300))
    metric = learn.euclidean({"hours": table.columns["hours"]})
    with pytest.raises(DataError, match="another width than the features"):
        fitted(metric=metric)
    with pytest.raises(ModelError, match="must give"):
        fitted(module=torch.nn.Linear(len(fitted()[0].encoder.names), 7))


def test_one_class_and_no_sensitive_column():
    table = Table.from_dataset(sample_data(rows=300))
    with pytest.raises(DataError, match="the same class"):
        SenSeI().fit(table.take(table.target == 1), Run())
    with pytest.raises(DataError, match="name some with `sensitive`"):
        SenSeI().fit(Table.from_dataset(sample_data(rows=300, sensitive=())), Run())


@pytest.mark.long
def test_the_command_refuses_with_exit_code_2(tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"sex": ["f", "m"] * 30, "good": ["y", "y", "n"] * 20})
    frame[["a", "b", "c"]] = np.random.default_rng(0).normal(size=(60, 3))
    frame.to_csv(tmp_path / "t.csv", index=False)
    command = [
        sys.executable,
        "-c",
        "from fairkit_cli.main import run; run()",
        "mitigate",
        "--plugin",
        "sensei",
        "--data",
        "t.csv",
    ]
    command += ["--label", "good", "--favorable", "y", "--sensitive", "sex", "--output", "fair.onnx"]
    done = subprocess.run([*command, "--set", "batch=1"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stderr
    assert "a batch of 1 rows cannot hold 2 classes" in done.stderr
    assert not (tmp_path / "fair.onnx").exists()


@pytest.mark.long
@pytest.mark.parametrize(("seed", "summed"), [(0, False), (1, False), (2, True), (3, True)])
def test_adult_in_a_small_form(public_data, seed, summed):
    """A sixth of the rows and few epochs: more spouses are treated alike, `dif` falls, accuracy is kept in balance.

    With the penalty on the summed loss (``strength=0.1 / n``) the metric ignores almost every trace of the sensitive
    columns, and nearly all spouses are treated alike.
    """
    import pandas as pd

    frame = pd.read_parquet(public_data / "adult.parquet").dropna()
    frame = frame.sample(7_000, random_state=seed)
    frame["white"] = np.where(frame["race"] == "White", "yes", "no")
    numbers = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
    texts = ["workclass", "marital-status", "occupation", "relationship", "sex", "white"]
    data = fairkit.load_data(
        frame[[*numbers, *texts, "income"]], label="income", favorable=">50K", sensitive=["sex", "white"]
    )
    train, test = split_dataset(data, 0.3, seed)
    table = Table.from_dataset(train)
    strength = {"strength": 0.1 / len(table)} if summed else {}
    method = SenSeI(SenSeI.Parameters(rho=5.0, epochs=4, rate=0.005, batch=128, **strength))
    flips = {"sensitive": ["relationship"], "values": {"relationship": ["Husband", "Wife"]}}
    how = {"consistency": flips, "dif": {"epsilon": [0.1], "queries": 200, "pairs": 0, **strength}}
    before, after = (
        fairkit.audit(
            export(model, table).SerializeToString(), test, auditors=["group", "consistency", "dif"], parameters=how
        )
        for model in (method.baseline(table, Run(seed=seed)), method.fit(table, Run(seed=seed)))
    )
    assert after.find("consistency").value >= (0.97 if summed else before.find("consistency").value)
    assert after.find("dif").value < (0.5 if summed else 0.1) * before.find("dif").value
    assert after.find("balanced_accuracy").value >= 0.74


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"counterfactuals": "c.csv"}, "counterfactuals is for learning fair_metric=face"),
        ({"method": "clp", "counterfactuals": "c.csv", "sensitive": ["sex"]}, "not both"),
        ({"method": "erm", "counterfactuals": "c.csv"}, "and for method=clp"),
        ({"standardise": False}, "standardise is for learning fair_metric=face"),
        ({"fair_metric": "face", "counterfactuals": "c.csv", "sensitive": ["sex"]}, "not both"),
        ({"fair_metric": "face", "sensitive": ["sex"], "of": "row"}, "of names a column"),
        ({"fair_metric": "face"}, "needs counterfactuals"),
    ],
)
def test_counterfactual_rows_are_never_ignored(values, message):
    with pytest.raises(ParameterError, match=message):
        SenSeI.with_values(values)


def test_logit_pairing_on_the_rows_of_a_file(tmp_path):
    """Embeddings as lists, of which one number tells the group; the file holds each row with both its values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    group = rng.integers(2, size=500)
    y = rng.random(500) < 0.25 + 0.5 * group
    x = np.column_stack([2 * group - 1, y + rng.normal(size=500), rng.normal(size=500)]).astype(np.float32)
    other = x * np.array([-1, 1, 1], np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate([x, other]).ravel()), 3)
    pq.write_table(pa.table({"emb": lists, "of": [*range(500), *range(500)]}), tmp_path / "v.parquet")
    data = fairkit.load_data({"emb": lists[:500], "y": y.astype(int)}, label="y", favorable=1)
    table = Table.from_dataset(data)
    flipped = {f"emb[{k}]": other[:, k].astype(float) for k in range(3)}

    def change(**values):
        method = SenSeI(SenSeI.Parameters(**QUICK | values))
        model = method.fit(table, Run(seed=1))
        return np.abs(model.predict(table.columns).score - model.predict(flipped).score).mean(), model

    plain, _ = change(method="erm")
    paired, model = change(method="clp", counterfactuals=str(tmp_path / "v.parquet"), rho=20.0)
    assert plain > 0.2
    assert paired < 0.1 * plain
    assert not [note for note in model.notes if "paired with themselves" in note]
