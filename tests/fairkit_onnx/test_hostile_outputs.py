"""The author of a model does not choose what is audited: outputs that contradict each other end the audit."""

# ruff: noqa: E501 -- the bodies of graphs are text

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import fairkit
from fairkit.errors import DataError, ModelError, ParameterError
from fairkit_onnx.read.output_meaning import crossed
from fairkit_onnx.read.outputs import add_member_outputs, embed_weights
from fairkit_onnx.write.graph import GraphBuilder

from .hostile import FAIR, UNFAIR, data, disparity, graph, ours, table

LABEL = "output_label = Cast<to = 7>(male)"
DECOYS = "score = Cast<to = 1>(older) decision_probability = Cast<to = 1>(older)"
TYPES = "int64[N,1] output_label, float[N,1] score, float[N,1] decision_probability"


def unaudited(report):
    return set(report.model.serving.get("outputs", ()))


def test_decoys_beside_the_served_label_do_not_hide_it():
    """Two extra outputs made a model count as randomized, and the label that it serves was never read."""
    proto = graph(FAIR + UNFAIR + LABEL + DECOYS, TYPES)
    report = fairkit.audit(proto, data())
    assert report.find("demographic_parity_difference", "sex").value == pytest.approx(1.0)
    assert report.model.outputs == {"score": "score", "decision": "output_label"}
    assert unaudited(report) == {"decision_probability"}


def test_forged_metadata_does_not_hide_the_label_either():
    proto = ours(graph(FAIR + UNFAIR + LABEL + DECOYS + "decision = Cast<to = 7>(older)",
                       TYPES + ", int64[N,1] decision"))  # fmt: skip
    fair = fairkit.audit(proto, data())
    assert fair.model.outputs["decision"] == "decision"
    assert unaudited(fair) == {"output_label"}
    assert any("'output_label'" in note and "not audited" in note for note in fair.model.notes)
    served = fairkit.audit(proto, data(), options=fairkit.ModelOptions(decision_output="output_label"))
    assert served.find("demographic_parity_difference", "sex").value == pytest.approx(1.0)
    assert unaudited(served) == {"decision", "decision_probability"}


def test_a_randomized_model_must_decide_by_its_chances():
    body = (
        FAIR + UNFAIR + DECOYS + "drawn = Less(u, half) male_drawn = Or(male, drawn) decision = Cast<to=7>(male_drawn)"
    )
    proto = ours(graph(body, TYPES.replace("output_label", "decision"),
                       inputs="float[N,1] age, float[N,1] sex, float[N,1] u"))  # fmt: skip
    with pytest.raises(ModelError, match="'decision' is not u < decision_probability"):
        fairkit.audit(proto, data())


def test_a_chance_that_looks_at_the_draw_is_seen():
    """Audits used to draw zeros only: a chance that is fair for u = 0 passed."""
    body = f"""
      {FAIR} {UNFAIR} zero = Constant<value = float[1] {{0.0}}>() awake = Greater(u, zero)
      fair = Cast<to = 1>(older) unfair = Cast<to = 1>(male) score = Where(awake, unfair, fair)
      decision_probability = Identity(score) decision = Cast<to = 7>(score)
    """
    proto = ours(graph(body, TYPES.replace("output_label", "decision"),
                       inputs="float[N,1] age, float[N,1] sex, float[N,1] u"))  # fmt: skip
    assert disparity(proto) == pytest.approx(1.0)


def test_chances_without_a_draw_are_refused():
    body = UNFAIR + "score = Cast<to = 1>(male) point = Constant<value = float[1] {0.3}>() " \
                    "decision_probability = Mul(score, point)"  # fmt: skip
    proto = ours(graph(body, "float[N,1] score, float[N,1] decision_probability"))
    with pytest.raises(ModelError, match=r"no output 'decision'"):
        fairkit.audit(proto, data())


def test_without_our_metadata_u_is_an_input_like_others():
    body = "score = Identity(age) decision_probability = Identity(u)"
    inputs = "float[N,1] age, float[N,1] u"
    with pytest.raises(DataError, match="random draw only in models that fairkit exported"):
        fairkit.audit(graph(body, "float[N,1] score, float[N,1] decision_probability", inputs=inputs), data())


def test_members_that_are_not_drawn_are_seen():
    builder = GraphBuilder()
    age, sex = builder.input("age", "float"), builder.input("sex", "float")
    both = builder.node("Concat", [age, builder.node("Neg", [age])], axis=1)
    add_member_outputs(builder, both, (0.5, 0.5), "regression")
    proto = builder.build()
    embed_weights(proto, (0.5, 0.5))
    columns = table()
    roles = {"label": "y", "sensitive": ["sex"], "features": ["age", "sex"]}
    values = fairkit.load_data(columns | {"y": columns["age"] * 1.5}, **roles)
    assert fairkit.audit(proto, values).model.task == "regression"
    last = next(node for node in proto.graph.node if node.output[0] == "score")
    last.input[0] = sex  # what is served has nothing to do with the members
    with pytest.raises(ModelError, match="does not score as it says"):
        fairkit.audit(proto, values)


BOTH = UNFAIR + FAIR + "probability = Cast<to = 1>(older) label = Cast<to = 7>(male)"
PAIR = "float[N,1] probability, int64[N,1] label"


def test_a_label_and_a_score_of_its_own_are_both_audited():
    report = fairkit.audit(graph(BOTH, PAIR), data())
    assert report.find("demographic_parity_difference", "sex").value == pytest.approx(1.0)
    assert unaudited(report) == set()
    assert any("'label' decides otherwise than 'probability' >= 0.5" in text for text in report.warnings)
    by_score = fairkit.ModelOptions(score_output="probability", threshold=0.5)
    report = fairkit.audit(graph(BOTH, PAIR), data(), options=by_score)
    assert report.find("demographic_parity_difference", "sex").value < 0.2
    assert report.model.outputs == {"score": "probability", "decision": None, "threshold": 0.5} | {
        "rule": "probability >= 0.5"
    }
    assert unaudited(report) == {"label"}


def test_a_label_with_another_threshold_is_reported_with_the_rows():
    """As in a support vector classifier: the label does not follow `score >= 0.5`."""
    body = """
      tenth = Constant<value = float[1] {0.01}>() probability = Mul(age, tenth)
      at = Constant<value = float[1] {0.4}>() taken = Greater(probability, at) label = Cast<to = 7>(taken)
    """
    report = fairkit.audit(graph(body, PAIR), data())
    age = table()["age"]
    rows = int(((age * 0.01 > 0.4) & (age * 0.01 < 0.5)).sum())
    note = next(note for note in report.warnings if "decides otherwise than" in note)
    assert f"On {rows} of 600 rows 'label'" in note
    assert "a threshold of about 0.4" in note
    assert "'label' is audited as the decision" in note
    assert report.find("selection_rate").value == pytest.approx((age > 40).mean())


@pytest.mark.filterwarnings("ignore::FutureWarning")  # scikit-learn will drop the class; models made with it stay
def test_a_real_support_vector_classifier_says_which_rows():
    from skl2onnx import to_onnx
    from sklearn.svm import SVC

    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=400) > 0.4).astype(int)
    model = SVC(probability=True, random_state=0).fit(x, y)
    proto = to_onnx(model, x[:1], target_opset={"": 17, "ai.onnx.ml": 3}, options={"zipmap": False})
    rows = int(((model.predict_proba(x)[:, 1] >= 0.5) != (model.predict(x) == 1)).sum())
    columns = {"a": x[:, 0], "b": x[:, 1], "y": y, "g": (x[:, 1] > 0).astype(int)}
    loaded = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"], features=["a", "b"])
    report = fairkit.audit(proto, loaded)
    assert report.find("selection_rate").value == pytest.approx((model.predict(x) == 1).mean())
    told = [note for note in report.warnings if "decides otherwise than" in note]
    assert bool(told) == (rows > 0)
    if rows:
        assert f"On {rows} of 400 rows" in told[0]


@pytest.mark.parametrize("second", ["float", "double"])
def test_of_two_scores_one_is_audited_and_the_other_named(second):
    kind = {"float": 1, "double": 11}[second]
    body = UNFAIR + FAIR + f"score = Cast<to = 1>(older) probability = Cast<to = {kind}>(male)"
    proto = graph(body, f"float[N,1] score, {second}[N,1] probability")
    (audited,) = {"score", "probability"} - unaudited(report := fairkit.audit(proto, data()))
    assert report.model.outputs["score"] == audited
    assert disparity(proto, fairkit.ModelOptions(score_output="probability")) == pytest.approx(1.0)


def test_a_sequence_or_a_cube_is_named_as_not_audited():
    body = UNFAIR + "score = Cast<to = 1>(male) parts = SequenceConstruct(score, score)"
    proto = graph(body, "float[N,1] score")
    proto.graph.output.append(
        helper.make_value_info(
            "parts", helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
        )
    )
    report = fairkit.audit(proto, data())
    assert any("'parts'" in note and "not audited" in note for note in report.model.notes)


OPTIONS = [
    ({"threshold": 0.4, "decision_output": "label"}, "not from both"),
    ({"decision_output": "lable"}, "no output 'lable'"),
    ({"score_output": "label"}, "name it with `decision_output=label`"),
    ({"favorable_class": 2}, "favorable_class=2"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS)
def test_options_are_honoured_or_refused(options, message):
    with pytest.raises((ModelError, ParameterError), match=message):
        fairkit.audit(graph(BOTH, PAIR), data(), options=fairkit.ModelOptions(**options))


def test_a_threshold_of_a_model_with_labels_only_is_refused():
    proto = graph(UNFAIR + "label = Cast<to = 7>(male)", "int64[N,1] label")
    with pytest.raises(ParameterError, match=r"threshold=0\.4 means nothing here: the model gives no scores"):
        fairkit.audit(proto, data(), options=fairkit.ModelOptions(threshold=0.4))


def test_the_threshold_of_a_randomized_model_is_honoured():
    body = FAIR + "score = Cast<to = 1>(older) decision_probability = Identity(score) drawn = Less(u, score) " \
                  "decision = Cast<to = 7>(drawn)"  # fmt: skip
    outputs = "float[N,1] score, float[N,1] decision_probability, int64[N,1] decision"
    proto = ours(graph(body, outputs, inputs="float[N,1] age, float[N,1] u"))
    rates = [
        fairkit.audit(proto, data(), options=options).find("selection_rate").value
        for options in (None, fairkit.ModelOptions(threshold=0.0), fairkit.ModelOptions(favorable_class=0))
    ]
    older = (table()["age"] > 40).mean()
    assert rates == pytest.approx([older, 1.0, 1 - older])


def test_a_file_of_ours_is_turned_where_the_other_label_is_favorable():
    body = FAIR + "score = Cast<to = 1>(older) decision_probability = Identity(score) decision = Cast<to = 7>(older)"
    outputs = "float[N,1] score, float[N,1] decision_probability, int64[N,1] decision"
    proto = ours(graph(body, outputs, inputs="float[N,1] age"), favorable=0)
    report = fairkit.audit(proto, data())
    assert report.find("selection_rate").value == pytest.approx(1 - (table()["age"] > 40).mean())
    assert any("turned to the favorable label" in note for note in report.model.notes)


def test_crossed_counts_the_rows_that_no_threshold_gives():
    rng = np.random.default_rng(0)
    for _ in range(50):
        score, decision = rng.integers(0, 6, 12) / 6, rng.integers(0, 2, 12).astype(float)
        best = min(int(((score >= cut) != (decision > 0.5)).sum()) for cut in [*np.unique(score), np.inf])
        assert crossed(score, decision) == best


@pytest.mark.parametrize("name", ["score_output", "decision_output"])
def test_columns_of_predictions_refuse_options_of_outputs(name):
    model = fairkit.PredictedColumns(score="s")
    rows = fairkit.load_data(table() | {"s": np.linspace(0, 1, 600)}, label="y", favorable=1, sensitive=["sex"])
    with pytest.raises(ParameterError, match=f"{name}=.* means nothing here"):
        fairkit.audit(model, rows, options=fairkit.ModelOptions(**{name: "label"}))


def test_outputs_that_could_decide_and_were_not_audited_are_named_in_the_record():
    """Texts and three numbers a row: each could be served."""
    body = f"""{FAIR} {UNFAIR} label = Cast<to = 7>(older) sure = Cast<to = 1>(male) score = Cast<to = 1>(older)
      segment = Concat<axis = 1>(sure, age, age) noise = Mul(age, age) words_ = Add(noise, sure) words = Cast<to = 8>(words_)"""
    columns = table(4_000)
    columns["age"] = np.random.default_rng(0).uniform(20, 60, 4_000)
    proto = graph(body, "int64[N,1] label, float[N,1] score, float[N,3] segment, string[N,1] words")
    found = fairkit.audit(proto, data(columns)).model.serving["outputs"]
    assert set(found) == {"segment", "words"}


def test_an_input_with_a_default_that_is_never_fed_is_named():
    body = f"{FAIR} {UNFAIR} a = Cast<to = 1>(older) b = Cast<to = 1>(male) chosen = Where(mode, a, b) label = Cast<to = 7>(chosen)"
    proto = graph(body, "int64[N,1] label", inputs="float[N,1] age, float[N,1] sex, bool[1] mode")
    proto.graph.initializer.append(helper.make_tensor("mode", TensorProto.BOOL, [1], [True]))
    report = fairkit.audit(proto, data())
    assert list(report.model.serving["inputs"]) == ["mode"]
    assert any("never fed: 'mode' (its default has 1 numbers)" in note for note in report.model.notes)


def test_a_favorable_value_that_hardly_ever_comes_is_doubted():
    body = f"""{FAIR} {UNFAIR} sixty = Constant<value = float[1] {{59.9999}}>() few = Greater(age, sixty)
      two = Constant<value = int64[1] {{2}}>() one = Constant<value = int64[1] {{1}}>() zero = Constant<value = int64[1] {{0}}>()
      rest = Where(male, two, zero) label = Where(few, one, rest)"""
    columns = table(4_000)
    columns["age"][:2] = 60.0
    report = fairkit.audit(graph(body, "int64[N,1] label"), data(columns))
    assert list(report.model.serving["outputs"]) == ["label"]
    assert "the favorable value 1 on 2 of the first 4,000 rows only" in report.model.serving["outputs"]["label"]
