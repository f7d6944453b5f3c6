"""Files that decide by a threshold for each group: flips against every input of the domain, run through the file."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest

import fairkit
from fairkit.errors import FairkitError, ModelError
from fairkit.settings import ModelOptions
from fairkit_all_inputs import findings
from fairkit_all_inputs.bounds import problem
from fairkit_onnx.write.compose import ScoreHead, compose
from fairkit_onnx.write.export import embed_settings
from fairkit_onnx.write.rules import GroupColumn, GroupKeys, GroupRule, Piece

from .test_all_inputs import CHANCE, FLIP, SCORE, trusted

AGES = np.arange(18, 31)
SEXES, REGIONS = ("female", "male"), ("east", "north", "west")
SEX = GroupColumn(name="sex", keys=SEXES)
REGION = GroupColumn(name="region", keys=REGIONS)
AGE = GroupColumn(name="age", edges=(21.0, 27.0))
SHARE = "all_inputs_flippable"


def every_input():
    import pandas as pd

    return pd.DataFrame(list(itertools.product(SEXES, REGIONS, AGES.astype(float))), columns=["sex", "region", "age"])


def table():
    import pandas as pd

    rows = pd.concat([every_input()] * 5, ignore_index=True)
    rng = np.random.default_rng(0)
    chance = 0.2 + 0.04 * (rows["age"] - 18) + 0.1 * (rows["region"] == "west") + 0.05 * (rows["sex"] == "male")
    return rows.assign(y=np.where(rng.random(len(rows)) < chance, "yes", "no"))


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """By kind, an ONNX file without a rule."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rows, found = table(), {}
    for name, model in {
        "trees": GradientBoostingClassifier(n_estimators=5, max_depth=3, random_state=0),
        "linear": LogisticRegression(),
    }.items():
        columns = make_column_transformer(
            (OneHotEncoder(sparse_output=False), ["sex", "region"]), (StandardScaler(), ["age"])
        )
        pipe = make_pipeline(columns, model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pipe.fit(rows[["sex", "region", "age"]].astype({"age": np.float32}), rows["y"])
        types = [(c, StringTensorType([None, 1])) for c in ("sex", "region")] + [("age", FloatTensorType([None, 1]))]
        proto = convert_sklearn(
            pipe, initial_types=types, target_opset={"": 15, "ai.onnx.ml": 3}, options={id(model): {"zipmap": False}}
        )
        found[name] = proto
    return found


def ruled(base, path, columns, thresholds, pieces=None):
    """Write a file in which each combination of cells of some columns has a threshold; unknown ones have .5."""
    cells = list(itertools.product(*(range(1, column.size + 1) for column in columns)))
    keys = GroupKeys(columns=columns, names=tuple(map(str, cells)), cells=tuple(cells))
    pieces = pieces or [(Piece(float(one)),) for one in thresholds]
    rule = GroupRule(keys=keys, pieces=(*pieces, (Piece(0.5),)))
    head = ScoreHead(output="probabilities", width=2, place=1)
    proto = compose(base, head, rule, inputs={name: name for name in ("sex", "region", "age")})
    embed_settings(proto, {"label": "y", "favorable": "yes"})
    onnx.save(proto, path)
    return path


def audit(path, rows=None, **settings):
    data = fairkit.load_data(table() if rows is None else rows, label="y", favorable="yes", sensitive=["sex"])
    report = fairkit.audit(
        trusted(path),
        data,
        auditors=["all-inputs"],
        parameters={"all-inputs": {"columns": "sex", **settings}},
        options=ModelOptions(decision_output="decision"),
    )
    return {finding.metric: finding for finding in report.findings}


def run(path, output="decision"):
    """What the file says of every input, by sex, shape [2, n]."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rows = every_input()
    feeds = {name: rows[name].to_numpy(object).reshape(-1, 1) for name in ("sex", "region")}
    feeds["age"] = rows["age"].to_numpy(np.float32).reshape(-1, 1)
    return session.run([output], feeds)[0].reshape(2, -1)


@pytest.mark.parametrize("kind", ["trees", "linear"])
@pytest.mark.parametrize(
    "columns",
    [
        pytest.param((SEX,), id="sex"),
        pytest.param((SEX, AGE), id="sex and age", marks=pytest.mark.long),
        pytest.param((AGE, REGION), id="age and region", marks=pytest.mark.long),
        pytest.param((SEX, REGION, AGE), id="all", marks=pytest.mark.long),
    ],
)
def test_flips_of_thresholds_by_group_are_those_of_every_input(bases, tmp_path, kind, columns):
    rng = np.random.default_rng(7)
    scores = run(ruled(bases[kind], tmp_path / "m.onnx", (SEX,), [0.5, 0.5]), "score")
    count = int(np.prod([column.size for column in columns]))
    gaps = []
    for turn, width in enumerate((0.02, 0.6)):
        thresholds = np.quantile(scores, 0.5) + width * (rng.random(count) - 0.5)
        path = ruled(bases[kind], tmp_path / f"{turn}.onnx", columns, thresholds)
        said = run(path)
        flips = bool((said[0] != said[1]).any())
        found = audit(path)
        assert found[FLIP].interval == (float(flips), float(flips))
        assert found[SHARE].value == pytest.approx((said[0] != said[1]).mean())
        gaps.append(found[CHANCE].interval)
    apart = np.abs(scores[0].astype(float) - scores[1]).max()
    for low, high in gaps:  # the thresholds are no part of the score
        assert low <= apart + 1e-5
        assert high >= apart - 1e-6


@pytest.mark.long
@pytest.mark.parametrize("kind", ["trees", "linear"])
def test_a_threshold_by_group_can_take_every_flip_away_or_make_all(bases, tmp_path, kind):
    """A model that never reads sex: only the rule makes flips; equal thresholds are proved to make none."""
    none = audit(ruled(bases[kind], tmp_path / "none.onnx", (SEX,), [0.001, 0.001]))
    assert none[FLIP].interval == (0.0, 0.0)
    assert none[FLIP].evidence["decided"]
    everyone = audit(ruled(bases[kind], tmp_path / "all.onnx", (SEX,), [1.5, -1.0]))
    assert everyone[FLIP].interval == (1.0, 1.0)
    assert everyone[SHARE].interval == (1.0, 1.0)
    assert everyone[SCORE].interval == pytest.approx(none[SCORE].interval)


@pytest.mark.long
def test_a_rule_alone_flips_where_the_model_does_not_read_the_column(bases, tmp_path):
    base = bases["trees"]
    path = ruled(base, tmp_path / "m.onnx", (REGION,), [0.3, 0.5, 0.7])
    found = audit(path, columns="region")
    assert found[FLIP].interval == (1.0, 1.0)


def test_a_rule_that_is_no_threshold_is_refused_by_name(bases, tmp_path):
    """Favorable between two scores: no order; and a rule that chance decides."""
    band = [(Piece(0.4), Piece(0.6, weight=-1.0))] * 2
    with pytest.raises(ModelError, match="after the sum is not understood"):
        audit(ruled(bases["trees"], tmp_path / "band.onnx", (SEX,), (), band))
    with pytest.raises(FairkitError, match="draws"):
        audit(ruled(bases["trees"], tmp_path / "drawn.onnx", (SEX,), (), [(Piece(0.4, 0.2),)] * 2))


def test_a_score_that_depends_on_the_group_is_refused(bases, tmp_path):
    proto = bases["trees"]
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    helper = onnx.helper
    changed.graph.node.extend([helper.make_node("Mul", ["probabilities", "age"], ["scaled"])])
    changed.graph.output.append(helper.make_tensor_value_info("scaled", onnx.TensorProto.FLOAT, [None, 2]))
    del changed.graph.output[1]
    onnx.save(changed, tmp_path / "m.onnx")
    data = fairkit.load_data(table(), label="y", favorable="yes", sensitive=["sex"])
    with pytest.raises(ModelError, match="the score itself depends on 'age'"):
        fairkit.audit(
            trusted(tmp_path / "m.onnx"),
            data,
            auditors=["all-inputs"],
            parameters={"all-inputs": {"columns": "sex"}},
            options=ModelOptions(score_output="scaled", score_kind="logit"),
        )


@pytest.mark.long
def test_a_certificate_of_a_rule_is_checked_without_a_search(bases, tmp_path, monkeypatch):
    path = ruled(bases["trees"], tmp_path / "m.onnx", (SEX, AGE), np.full(6, 0.001))
    data = fairkit.load_data(table(), label="y", favorable="yes", sensitive=["sex"])
    asked = {
        "auditors": ["all-inputs"],
        "parameters": {"all-inputs": {"columns": "sex"}},
        "options": ModelOptions(decision_output="decision"),
    }
    first = fairkit.audit(trusted(path), data, **asked)
    assert {one.metric: one.interval for one in first.findings}[FLIP] == (0.0, 0.0)
    searched = []
    search = findings.answer

    def counted(problem, kind, **settings):
        searched.append(kind)
        return search(problem, kind, **settings)

    monkeypatch.setattr(findings, "answer", counted)  # witnesses are somebody's, and are searched for again
    again = fairkit.audit(trusted(path), data, signed=first, **asked)
    assert problem.FLIP not in searched
    assert [one.interval for one in again.findings] == [one.interval for one in first.findings]
    with pytest.raises(FairkitError, match="threshold for each group"):
        audit(path, save_proof=str(tmp_path / "proof.json"))
