"""Causes by enumeration and by walks: they add up to the gap."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import fairkit
from fairkit.settings import ModelOptions
from fairkit_onnx.file import OnnxModel
from fairkit_why import exact_trees as exact
from fairkit_why import kernels
from fairkit_why.exact_trees import cut_trees
from fairkit_why.permutation_walks import walk


def tree_score(ensemble, fringes, players):
    model = SimpleNamespace(ensemble=ensemble, encoding=lambda doubles: None)
    return exact._TreeScore(model, fringes, 1.0, players)


@pytest.mark.parametrize("seed", range(200))
def test_random_ensembles_are_divided_as_by_enumeration(oracle, seed):
    rng = np.random.default_rng(seed)
    width = int(rng.integers(1, 7))
    players = int(rng.integers(1, width + 1))
    player = rng.integers(0, players, size=width)
    if seed % 5 == 0:
        player[rng.integers(width)] = -1  # a constant feature
    ensemble = oracle.random_ensemble(rng, width, int(rng.integers(1, 4)), int(rng.integers(1, 6)))
    n, m = int(rng.integers(1, 8)), int(rng.integers(1, 8))
    rows = rng.integers(-1, 5, size=(n + m, width)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.15] = np.nan
    rows[:, player < 0] = rows[0, player < 0]
    a, b = rows[:n], rows[n:]
    columns = [np.flatnonzero(player == p).tolist() for p in range(players)]
    pairs = oracle.shapley_of_pairs(lambda some: oracle.score(ensemble, some), a, b, columns)
    weights = (None, None) if seed % 2 else (rng.random(n) + 0.1, rng.random(m) + 0.1)
    fringes = cut_trees(ensemble, player, rows[:1], bits=int(rng.integers(1, 11)))

    def codes(some):
        out = np.empty((len(fringes.coding.feature), len(some)), np.uint16)
        fringes.coding.code(some, out)
        return out

    score = tree_score(ensemble, fringes, players)
    found = score.attribution(codes(a), codes(b), weights, (np.arange(n), np.arange(m)))
    u = [np.ones(k) / k if w is None else w / w.sum() for w, k in zip(weights, (n, m), strict=True)]
    assert found.values == pytest.approx(np.einsum("x,z,xzp->p", u[0], u[1], pairs), abs=1e-12)
    assert found.rows[0] == pytest.approx(np.einsum("z,xzp->xp", u[1], pairs), abs=1e-12)
    assert found.rows[1] == pytest.approx(np.einsum("x,xzp->zp", u[0], pairs), abs=1e-12)
    gap = u[0] @ oracle.score(ensemble, a) - u[1] @ oracle.score(ensemble, b)
    assert found.values.sum() == pytest.approx(gap, abs=1e-12)
    swapped = score.attribution(codes(b), codes(a), weights[::-1], (np.arange(0), np.arange(0)))
    assert swapped.values == pytest.approx(-found.values, abs=1e-12)


@pytest.mark.long
def test_keys_of_many_bits_are_those_of_few(oracle):
    rng = np.random.default_rng(7)
    ensemble = oracle.random_ensemble(rng, 12, 2, 11)
    rows = rng.integers(0, 5, size=(60, 12)).astype(np.float32)
    found = []
    for bits in (3, 18):  # with 18 a fringe's keys no longer fit into 16 bits
        fringes = cut_trees(ensemble, np.arange(12), rows[:1], bits=bits)
        out = np.empty((len(fringes.coding.feature), len(rows)), np.uint16)
        fringes.coding.code(rows, out)
        score = tree_score(ensemble, fringes, 12)
        found.append(
            score.attribution(out[:, :40].copy(), out[:, 40:].copy(), (None, None), (np.arange(5), np.arange(5)))
        )
    assert fringes.arrays[3].max() > 16
    assert found[0].values == pytest.approx(found[1].values, abs=1e-12)
    assert found[0].rows[0] == pytest.approx(found[1].rows[0], abs=1e-12)


def test_codes_count_thresholds_below():
    values = np.array([-np.inf, -1.0, 0.0, 0.5, 1.0, np.inf, np.nan])
    for size in range(6):
        cuts = np.linspace(-1, 1, size)
        out = np.empty(len(values), np.uint16)
        kernels.code_numbers(values, cuts, 99, out)
        assert out.tolist() == [*np.searchsorted(cuts, values[:-1], side="left").tolist(), 99]


NUMBERS, TEXTS, TOWNS = ["income", "debt", "years"], ["town"], ["oslo", "rome", "york"]


def people(seed=0, rows=240, missing=False):
    import pandas as pd

    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.integers(0, 6, rows).astype(np.float32) for name in NUMBERS})
    frame["town"] = rng.choice(TOWNS, rows)
    frame["sex"] = rng.choice(["f", "m"], rows)
    frame["y"] = (frame["income"] - frame["debt"] + (frame["town"] == "oslo") + rng.normal(size=rows) > 0).astype(int)
    if missing:
        frame.loc[rng.random(rows) < 0.15, "income"] = np.nan
    return frame


def pipeline(estimator, *, numbers="passthrough", encoder=None, missing=False, task="classification", doubles=False):
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    encoder = encoder or OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    frame = people(missing=missing)
    columns = make_column_transformer((encoder, TEXTS), (numbers, NUMBERS))
    y = {"number": frame["debt"], "shares": np.stack([1.0 - frame["y"], frame["y"]], axis=1)}
    fitted = make_pipeline(columns, estimator).fit(frame[TEXTS + NUMBERS], y.get(task, frame["y"]))
    kind = DoubleTensorType if doubles else FloatTensorType
    types = [(c, StringTensorType([None, 1])) for c in TEXTS] + [(c, kind([None, 1])) for c in NUMBERS]
    options = {id(estimator): {"zipmap": False}} if task == "classification" else {}
    return to_onnx(
        fitted, initial_types=types, options=options, target_opset={"": 15, "ai.onnx.ml": 3}
    ).SerializeToString()


def _models():
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        GradientBoostingClassifier,
        GradientBoostingRegressor,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer, MinMaxScaler, OrdinalEncoder, StandardScaler
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    small = {"n_estimators": 6, "max_depth": 3, "random_state": 0}
    filled = make_pipeline(SimpleImputer(), StandardScaler())
    return {
        "boosting": (GradientBoostingClassifier(**small), {}),
        "boosting scaled": (GradientBoostingClassifier(**small), {"numbers": StandardScaler()}),
        "boosting min-max": (GradientBoostingClassifier(**small), {"numbers": MinMaxScaler()}),
        "boosting imputed": (GradientBoostingClassifier(**small), {"numbers": filled, "missing": True}),
        "boosting ordinal": (GradientBoostingClassifier(**small), {"encoder": OrdinalEncoder()}),
        "boosting of bins": (GradientBoostingClassifier(**small), {"numbers": KBinsDiscretizer(3, encode="ordinal")}),
        "forest of two targets": (RandomForestRegressor(**small), {"task": "shares"}),
        "forest of doubles": (RandomForestClassifier(**small), {"numbers": StandardScaler(), "doubles": True}),
        "forest": (RandomForestClassifier(**small), {}),
        "forest scaled": (RandomForestClassifier(**small), {"numbers": StandardScaler()}),
        "forest of numbers": (RandomForestRegressor(**small), {"task": "number"}),
        "extra trees": (ExtraTreesClassifier(**small), {}),
        "tree": (DecisionTreeClassifier(max_depth=4), {}),
        "tree of numbers": (DecisionTreeRegressor(max_depth=4), {"task": "number"}),
        "boosting of numbers": (GradientBoostingRegressor(**small), {"task": "number"}),
        "logistic": (LogisticRegression(), {"numbers": StandardScaler()}),
        "logistic imputed": (LogisticRegression(), {"numbers": filled, "missing": True}),
        "linear": (LinearRegression(), {"task": "number"}),
        "linear min-max": (LinearRegression(), {"task": "number", "numbers": MinMaxScaler()}),
    }  # fmt: skip


PIPELINES = (
    "boosting|boosting of bins|forest of two targets|forest of doubles|boosting scaled|boosting min-max|"
    "boosting imputed|boosting ordinal|forest|forest scaled|forest of numbers|extra trees|tree|tree of numbers|"
    "boosting of numbers|logistic|logistic imputed|linear|linear min-max"
)


@pytest.mark.parametrize("name", PIPELINES.split("|"))
@pytest.mark.filterwarnings("ignore")
def test_pipelines_are_divided_as_by_enumeration_through_onnxruntime(oracle, name):
    estimator, told = _models()[name]
    check_file(oracle, pipeline(estimator, **told), missing=told.get("missing", False), task=told.get("task"))


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost", "catboost"])
@pytest.mark.filterwarnings("ignore")
def test_boosters_files_are_divided_as_by_enumeration(oracle, kind, tmp_path):
    frame = people(missing=kind != "catboost")
    x = frame[NUMBERS].to_numpy()
    if kind == "catboost":
        from catboost import CatBoostClassifier

        booster = CatBoostClassifier(iterations=6, depth=3, verbose=False, boost_from_average=False).fit(x, frame["y"])
        booster.save_model(str(tmp_path / "m.onnx"), format="onnx")
        raw = (tmp_path / "m.onnx").read_bytes()
    else:
        from fairkit.data.loading import load_data
        from fairkit.data.table import Table
        from fairkit.fitted import Run
        from fairkit_repair.learners import fit_learner

        data = load_data(frame, label="y", favorable=1, sensitive=["sex"], features=NUMBERS + TEXTS)
        settings = {"n_estimators": 6}
        raw = fit_learner(kind, Table.from_dataset(data), Run(seed=0, threads=1), settings=settings).to_onnx()
        raw = raw.SerializeToString()
    check_file(oracle, raw, missing=kind != "catboost", features=NUMBERS if kind == "catboost" else None)


def before_the_link(raw):
    """Return a file without its logistic function, and whether it had one."""
    import onnx

    model, stripped = onnx.load_from_string(bytes(raw)), False
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "post_transform" and attribute.s == b"LOGISTIC":
                attribute.s, stripped = b"NONE", True
        if node.op_type == "Sigmoid":
            node.op_type, stripped = "Identity", True
        if node.op_type == "ZipMap":
            model.graph.node.remove(node)
            del model.graph.output[:]
            tensor = onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, [None, 2])
            model.graph.output.append(tensor)
    return model.SerializeToString(), stripped


def check_file(oracle, raw, *, missing, task=None, features=None):
    """Compare with every coalition, each hybrid scored by the file itself, without its link."""
    import onnxruntime
    import pandas as pd

    frame = people(5, 60, missing)
    number = task == "number"
    frame["y"] = frame["debt"] if number else frame["y"]
    roles = {"label": "y", "sensitive": ["sex"], "features": features or NUMBERS + TEXTS}
    data = fairkit.load_data(frame, **roles, **({} if number else {"favorable": 1}))
    options = ModelOptions(favorable_class=None if number else 1, task="regression" if number else None)
    scorer = OnnxModel.load(raw).bind(data, options)
    columns = data.read(list(scorer.columns)).columns(list(scorer.columns))
    names = list(columns)
    codes = {name: pd.factorize(pd.Series(columns[name]), use_na_sentinel=False) for name in names}
    table = np.stack([codes[name][0] for name in names], axis=1)
    bare, stripped = before_the_link(raw)
    session = onnxruntime.InferenceSession(bare)

    def f(rows):
        hybrids = {name: np.asarray(codes[name][1])[rows[:, j]] for j, name in enumerate(names)}
        if not stripped:
            return scorer.predict(hybrids).score
        kinds = {"tensor(string)": object, "tensor(double)": np.float64, "tensor(float)": np.float32}
        matrix = np.stack(list(hybrids.values()), axis=1).astype(object)
        feeds = {
            i.name: hybrids[i.name][:, None].astype(kinds[i.type]) if i.name in hybrids else matrix.astype(np.float32)
            for i in session.get_inputs()
        }
        outputs = [output.name for output in session.get_outputs()]
        sums = session.run(["score" if "score" in outputs else outputs[-1]], feeds)[0]
        return sums.astype(np.float64).reshape(len(rows), -1)[:, -1]

    score = exact.read_exact(scorer, columns, [(name,) for name in names])
    assert not isinstance(score, str), score
    prepared = score.prepare(columns)
    a, b = np.arange(6), np.arange(6, 13)
    found = score.attribution(prepared[:, a].copy(), prepared[:, b].copy(), (None, None), (np.arange(6), np.arange(7)))
    pairs = oracle.shapley_of_pairs(f, table[a], table[b], [[j] for j in range(len(names))])
    assert found.values == pytest.approx(pairs.mean(axis=(0, 1)), rel=1e-6, abs=1e-6)
    assert found.rows[0] == pytest.approx(pairs.mean(axis=1), rel=1e-6, abs=2e-6)


def test_of_a_file_that_could_be_read_in_two_ways_nothing_is_exact():
    from onnx import parser

    proto = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
      g (float[N,1] a, float[N,1] b) => (float[N,1] score) { x = Concat<axis = 1>(a, b)
      w = Constant<value = float[2,1] {1.0, -2.0}>() s = MatMul(x, w) score = Sigmoid(s) }""")
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=60), "b": rng.normal(size=60)}
    table = columns | {"y": np.arange(60) % 2, "sex": np.arange(60) % 3}
    data = fairkit.load_data(table, label="y", favorable=1, sensitive=["sex"], features=["a", "b"])
    plain, twice = proto.SerializeToString(), proto.SerializeToString() + b"\x08\x08"  # its version a second time
    read = [
        exact.read_exact(OnnxModel.load(raw).bind(data, ModelOptions(favorable_class=1)), columns, [("a",), ("b",)])
        for raw in (plain, twice)
    ]
    assert not isinstance(read[0], str)
    assert "no plain file, and only such are read exactly: reading and writing it again gives other bytes" in read[1]


def test_values_that_share_a_code_are_one_column(oracle):
    """As encoders of rare values write them: the codes of several values are added up."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("OneHotEncoder", ["town"], ["codes"], domain="ai.onnx.ml", cats_strings=TOWNS),
        helper.make_node("Reshape", ["codes", "flat"], ["columns"]),
        helper.make_node("Gather", ["columns", "rare"], ["some"], axis=1),
        helper.make_node("ReduceSum", ["some", "along"], ["other"], keepdims=1),
        helper.make_node("Concat", ["other", "income"], ["matrix"], axis=1),
        helper.make_node(
            "TreeEnsembleRegressor", ["matrix"], ["y"], domain="ai.onnx.ml", n_targets=1,
            nodes_treeids=[0] * 5, nodes_nodeids=[0, 1, 2, 3, 4], nodes_featureids=[0, 1, 0, 0, 0],
            nodes_modes=["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"], nodes_values=[0.5, 2.5, 0.0, 0.0, 0.0],
            nodes_truenodeids=[1, 2, 0, 0, 0], nodes_falsenodeids=[4, 3, 0, 0, 0],
            target_treeids=[0, 0, 0], target_nodeids=[2, 3, 4], target_ids=[0, 0, 0], target_weights=[1.0, 2.0, 5.0],
        ),
    ]  # fmt: skip
    constants = [
        helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
        for name, values in (("flat", [-1, 3]), ("rare", [1, 2]), ("along", [1]))
    ]
    inputs = [helper.make_tensor_value_info("town", TensorProto.STRING, [None, 1]),
              helper.make_tensor_value_info("income", TensorProto.FLOAT, [None, 1])]  # fmt: skip
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])]
    graph = helper.make_graph(nodes, "rare", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    check_file(oracle, model.SerializeToString(), missing=False, task="number", features=["town", "income"])


# Walks: what they add up to, whether they are right, and whether their variance is.
class Table:
    """A model of rows in memory."""

    def __init__(self, f, a, b):
        self.f, self.a, self.b, self.asked = f, a, b, 0

    def differ(self, x, z):
        return self.a[x] != self.b[z]

    def mixed(self, x, z, from_x):
        self.asked += len(x)
        return self.f(np.where(from_x, self.a[x], self.b[z]))

    @property
    def known(self):
        return self.f(self.a), self.f(self.b)


def decided(rows):
    return ((rows[:, 0] * rows[:, 1] - rows[:, 2] + 0.3 * rows[:, 3]) > 0.5).astype(float)


def groups(seed, n, m):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, (n, 4)).astype(float) + 0.4, rng.integers(0, 3, (m, 4)).astype(float)


def run(table, calls=200_000, weights=(None, None), clusters=None, seed=0):
    rng = np.random.default_rng(seed)
    return walk(table, table.known, weights, clusters, 4, calls=calls, rng=rng)


def test_walks_find_what_enumeration_finds_and_add_up_to_the_gap(oracle):
    a, b = groups(0, 12, 9)
    found = run(Table(decided, a, b))
    truth = oracle.shapley_of_pairs(decided, a, b, [[j] for j in range(4)]).mean(axis=(0, 1))
    assert found.values == pytest.approx(truth, abs=0.035)
    assert found.values.sum() == pytest.approx(decided(a).mean() - decided(b).mean(), abs=1e-12)


def test_weighted_walks_add_up_to_the_weighted_gap(oracle):
    a, b = groups(1, 12, 9)
    rng = np.random.default_rng(5)
    w = rng.random(12) + 0.2, rng.random(9) + 0.2
    found = run(Table(decided, a, b), weights=w)
    u = [one / one.sum() for one in w]
    pairs = oracle.shapley_of_pairs(decided, a, b, [[j] for j in range(4)])
    assert found.values == pytest.approx(np.einsum("x,z,xzp->p", *u, pairs), abs=0.035)
    assert found.values.sum() == pytest.approx(u[0] @ decided(a) - u[1] @ decided(b), abs=1e-12)


def test_the_variance_is_that_of_new_rows_and_new_walks():
    a, b = groups(2, 4000, 4000)
    rng, found = np.random.default_rng(0), []
    for seed in range(120):
        x, z = rng.integers(0, 4000, 150), rng.integers(0, 4000, 90)
        found.append(run(Table(decided, a[x], b[z]), calls=4_000, seed=seed))
    spread = np.var([one.values for one in found], axis=0, ddof=1)
    stated = np.mean([one.variance for one in found], axis=0)
    assert stated == pytest.approx(spread, rel=0.45)
    assert all(0 < one.sampling < 1 for one in found)


def test_rows_in_copies_have_a_larger_variance_with_clusters():
    a, b = groups(3, 60, 60)
    table = Table(decided, a.repeat(5, axis=0), b.repeat(5, axis=0))
    clusters = np.arange(60.0).repeat(5), 500 + np.arange(60.0).repeat(5)
    plain, dependent = run(table, 40_000), run(table, 40_000, clusters=clusters)
    assert (dependent.variance > 2.5 * plain.variance)[plain.variance > 1e-9].all()


def test_the_budget_is_kept_and_equal_values_cost_nothing():
    a, b = groups(4, 500, 500)
    table = Table(decided, a, b)
    found = run(table, calls=10_000)
    assert table.asked == found.calls <= 10_000 + 4 * 2_000
    same = Table(decided, b, b[::-1].copy())
    same.a[:, 1:] = same.b[:, 1:] = 1.0  # one column differs: nothing between z and x
    assert run(same).calls == 0
