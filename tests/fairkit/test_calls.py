"""What the public functions are called with: an object where a name belongs, limits by name, X in many forms."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import fairkit

ROWS = 300
RNG = np.random.default_rng(4)
X = pd.DataFrame({"a": RNG.normal(size=ROWS), "b": RNG.normal(size=ROWS)})
SEX = np.where(RNG.random(ROWS) < 0.5, "f", "m")
Y = (X.a.to_numpy() + 0.5 * (SEX == "m") + RNG.normal(size=ROWS) > 0.3).astype(int)
RULE = {"metric": "demographic_parity_difference", "sensitive": "sex", "max": 0.5}
LIMIT = {"demographic_parity_difference:sex": 0.5}


@pytest.fixture(scope="module")
def data():
    return fairkit.load_data(X.assign(sex=SEX, y=Y), label="y", favorable=1, sensitive="sex", features=["a", "b"])


@pytest.fixture(scope="module")
def model():
    return LogisticRegression().fit(X, Y)


WRONG = {
    "auditors of objects": (lambda m, d: fairkit.audit(m, d, auditors=[m]), "`auditors` holds a LogisticRegression"),
    "auditors of a class": (lambda m, d: fairkit.audit(m, d, auditors=[dict]), "holds the class dict"),
    "auditors of a number": (lambda m, d: fairkit.audit(m, d, auditors=3), "`auditors` is an int, and takes names"),
    "parameters of a list": (lambda m, d: fairkit.audit(m, d, parameters=[1]), "`parameters` is a list"),
    "parameters of no auditor": (lambda m, d: fairkit.audit(m, d, parameters={"group": 3}), "`parameters` is a dict"),
    "a policy of text": (lambda m, d: fairkit.audit(m, d, policy="accuracy=.3"), "`policy` holds a str"),
    "a policy of limits": (lambda m, d: fairkit.audit(m, d, policy=LIMIT), "limits by name in `max` and `min`"),
    "a limit of text": (lambda m, d: fairkit.audit(m, d, max={"accuracy": "0.3"}), "`max` is a str"),
    "limits of a list": (lambda m, d: fairkit.audit(m, d, min=["accuracy"]), "`min` is a list"),
    "options of a dict": (lambda m, d: fairkit.audit(m, d, options={}), r"takes fairkit\.ModelOptions"),
    "settings of a dict": (lambda m, d: fairkit.audit(m, d, settings={}), r"takes fairkit\.AuditSettings"),
    "confidence of text": (lambda m, d: fairkit.audit(m, d, confidence="0.9"), "`confidence` is a str"),
    "a fractional seed": (lambda m, d: fairkit.audit(m, d, seed=1.5), "`seed` is a float, and takes a whole number"),
    "a threshold of text": (lambda m, d: fairkit.audit(m, d, threshold="a"), "`threshold` is a str"),
    "metrics of a list": (lambda m, d: fairkit.audit(m, d, metrics=[len]), "`metrics` is a list"),
    "facts of text": (lambda m, d: fairkit.audit(m, d, about="x"), "`about` is a str"),
    "one model compared": (fairkit.compare, "`models` is a LogisticRegression, and takes a list"),
    "a metric's class": (lambda m, d: fairkit.Rule(fairkit.Metric, max=0.1), "`metric` is the class Metric"),
    "a list of columns": (lambda m, d: fairkit.Rule("accuracy", ["sex"], min=0.1), "`sensitive` is a list"),
    "a method as an estimator": (fairkit.mitigate, "`plugin` is a LogisticRegression"),
    "a method in a list": (lambda m, d: fairkit.mitigator(["reweigh"]), "`plugin` is a list"),
    "a learner in a list": (lambda m, d: fairkit.mitigate("reweigh", d, learner=["logistic"]), "`learner` is a list"),
    "a learner's class": (
        lambda m, d: fairkit.mitigator("reweigh")(learner=Ridge).fit(X, Y), r"of a class an instance, Ridge\(\)",
    ),
    "an objective as a function": (lambda m, d: fairkit.mitigate("reweigh", d, objective=len), "`objective` is"),
    "test rows without roles": (lambda m, d: fairkit.mitigate("reweigh", d, test=X), "takes what fairkit.load_data"),
    "a model in memory repaired": (lambda m, d: fairkit.mitigate("rto", d, model=m), r"write it by fairkit\.to_onnx"),
    "a repair without a limit": (lambda m, d: fairkit.repair(d, {"sex": 1}), "takes rules"),
    "a method's object": (lambda m, d: fairkit.repair(d, RULE, methods=[m]), "`methods` holds a LogisticRegression"),
    "a frontier of names": (lambda m, d: fairkit.frontier(["reweigh"], d), r"takes a list of fairkit\.Sweep"),
    "a scorer of a function": (lambda m, d: fairkit.scorer(len), "`metric` is a builtin_function"),
    "a label as a series": (lambda m, d: fairkit.load_data(X, label=pd.Series(Y)), "arrays stand beside a matrix"),
    "weights as an array": (lambda m, d: fairkit.load_data(X, weights=np.ones(ROWS)), "`sample_weight`"),
    "a file's name exported": (lambda m, d: fairkit.to_onnx("model", X), "a str is no fitted estimator"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_an_object_where_a_name_belongs_is_refused_in_words(case, data, model):
    call, match = WRONG[case]
    with pytest.raises(fairkit.FairkitError, match=match):
        call(model, data)


def test_one_name_is_a_list_of_one(data, model):
    assert {one.auditor for one in fairkit.audit(model, data, auditors="group").findings} == {"group"}


def test_limits_by_name_are_rules(data, model):
    rule = fairkit.Rule(**RULE)
    reports = [
        fairkit.audit(model, data, policy=policy, max=limits).policy
        for policy, limits in ((rule, None), (RULE, None), ([rule], None), (None, LIMIT))
    ]
    assert all(one == reports[0] for one in reports)
    assert fairkit.audit(model, data, max=LIMIT, min={"accuracy": 0.5}).verdict == "pass"
    assert fairkit.compare([model, model], data, max=LIMIT).verdict == "pass"


def test_three_lines_to_an_answer(model):
    report = fairkit.audit(model, X, Y, sensitive_features=SEX, max={"demographic_parity_difference:sensitive": 0.5})
    first, second = str(report).splitlines()[:2]
    assert first.startswith("PASS: Of 100 people of group f, ")
    assert second == "LogisticRegression (binary) on X, 300 rows; favorable: y = 1"
    assert repr(report) == f"<Report of {second}: pass, {len(report.findings)} findings>"
    assert str(fairkit.audit(model, X, Y, sensitive_features=SEX)).startswith("The largest disparity: ")


FAVORABLE = {
    "0 and 1": (Y, "1"),
    "truth": (Y == 1, "True"),
    "signs": (2 * Y - 1, "1"),
    "yes and no": (np.where(Y, "yes", "no"), "yes"),
    "words": (np.where(Y, "approved", "denied"), "approved"),
    "a good name": (pd.Series(Y, name="hired"), "1"),
    "1 and 2": (2 - Y, None),
    "a bad name": (pd.Series(Y, name="default"), None),
    "letters": (np.where(Y, "a", "b"), None),
}


@pytest.mark.parametrize("case", FAVORABLE)
def test_the_favorable_value_is_asked_for_unless_there_is_no_doubt(case):
    y, favorable = FAVORABLE[case]
    model = LogisticRegression().fit(X, y)
    if favorable is None:
        one, other = sorted(map(str, np.unique(y)))
        with pytest.raises(fairkit.DataError, match=f"has the values '{one}' and '{other}'; say which is good"):
            fairkit.audit(model, X, y, sensitive_features=SEX)
        return
    assert fairkit.audit(model, X, y, sensitive_features=SEX).data.favorable == favorable


def test_x_in_many_forms_is_the_same_audit():
    import polars as pl
    from scipy import sparse

    model = LogisticRegression().fit(X.to_numpy(), Y)
    forms = [X.to_numpy(), X.to_numpy().tolist(), pl.DataFrame(X.to_dict("list")), sparse.csr_matrix(X.to_numpy())]
    values = {fairkit.audit(model, one, Y, sensitive_features=SEX).find("accuracy").value for one in forms}
    assert values == {(model.predict(X.to_numpy()) == Y).mean()}
    texts = pd.Series(np.where(Y, "good ", "poor ") + RNG.choice(["x1", "y2"], ROWS), name="letter")
    words = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, Y)
    for one in (texts, texts.tolist(), texts.to_numpy(), pl.Series("letter", texts.tolist())):
        assert fairkit.audit(words, one, Y, sensitive_features=SEX).find("accuracy").value == 1.0


LEARNERS = (
    LogisticRegression(),
    RandomForestClassifier(5, random_state=0),
    make_pipeline(StandardScaler(), LogisticRegression()),
)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda one: type(one).__name__)
def test_a_learner_may_be_an_estimator(learner, data):
    weighted = fairkit.mitigator("reweigh")(learner=learner).fit(X, Y, sensitive_features=SEX)
    name, model = type(learner).__name__, weighted.model_.estimator
    assert type(model) is type(learner)
    assert not hasattr(learner, "classes_")
    result = fairkit.mitigate("reweigh", data, learner=learner, holdout=0.4)
    assert result.after.find("accuracy").value > 0.6
    assert f'"learner": "{name}"'.encode() in result.onnx


def test_a_learner_without_probabilities_is_refused(data):
    with pytest.raises(fairkit.ParameterError, match="LinearSVC gives no probabilities"):
        fairkit.mitigate("reweigh", data, learner=LinearSVC())


@pytest.mark.parametrize("method", ["rto", "threshold-optimizer", "reject-option"])
@pytest.mark.parametrize("base", [LinearSVC(), RidgeClassifier(), SGDClassifier(random_state=0)], ids=type)
def test_margins_rank_where_there_are_no_probabilities(method, base):
    base.fit(X, Y)
    fair = fairkit.mitigator(method)(model=base).fit(X, Y, sensitive_features=SEX)
    assert "Rows are ranked by decision_function, which is no probability." in fair.notes_
    chance = fair.decision_probability(X, sensitive_features=SEX)
    margin = base.decision_function(X)
    for group in ("f", "m"):  # within a group nobody is passed by somebody with a smaller margin
        ordered = chance[group == SEX][np.argsort(margin[group == SEX])]
        assert (np.diff(ordered) >= -1e-12).all() or method == "reject-option"
    assert 0 < chance.mean() < 1


@pytest.mark.parametrize(
    "base", [Ridge(), VotingClassifier([("a", LogisticRegression()), ("b", LinearSVC())])], ids=type
)
def test_a_base_without_scores_is_refused_in_a_sentence(base):
    with pytest.raises(fairkit.ParameterError, match="neither predict_proba nor decision_function"):
        fairkit.mitigator("rto")(model=base.fit(X, Y)).fit(X, Y, sensitive_features=SEX)


class Turned:
    """Gives [classes, rows]."""

    classes_ = np.array([0, 1])

    def predict(self, X):
        return (np.asarray(X)[:, 0] > 0).astype(int)

    def predict_proba(self, X):
        share = 1 / (1 + np.exp(-np.asarray(X)[:, 0]))
        return np.array([1 - share, share])


def test_probabilities_by_class_in_rows_are_refused_by_name():
    with pytest.raises(fairkit.ModelError, match=r"predict_proba of Turned has shape \(2, 300\) for 300 rows"):
        fairkit.audit(Turned(), X, Y, sensitive_features=SEX)
    with pytest.raises(fairkit.DataError, match=r"predict_proba of Turned has shape \(2, 300\)"):
        fairkit.mitigator("rto")(model=Turned()).fit(X, Y, sensitive_features=SEX)


def test_test_rows_that_are_training_rows_are_refused(data):
    frame = X.assign(sex=SEX, y=Y)[:100]
    again = fairkit.load_data(frame, label="y", favorable=1, sensitive="sex", features=["a", "b"])
    sweep = fairkit.Sweep(plugin="exponentiated-gradient", vary={"tolerance": [0.1]})
    for call in (
        lambda: fairkit.mitigate("reweigh", data, test=again, learner="logistic"),
        lambda: fairkit.repair(data, RULE, test=again, learner="logistic", anyway=True),
        lambda: fairkit.frontier([sweep], data, test=again, learner="logistic", jobs=1),
    ):
        with pytest.raises(fairkit.DataError, match=r"100 of the 100 test rows are also training rows|also training"):
            call()
