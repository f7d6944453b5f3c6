"""Prediction consistency and the CTF gap over given rows, from sentences to the command line."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairkit
from fairkit.errors import DataError, ParameterError
from fairkit_cli.main import run
from fairkit_sensei.metric import swap_words

WORDS = ("good", "bad", "he", "she", "tea", "rain")


class Linear:
    """A score from word counts; `she` counts, which it should not."""

    weights = np.array([2.0, -2.0, 0.0, -0.6, 0.1, -0.1])

    def predict_proba(self, X):
        margin = np.asarray(X, dtype=float) @ self.weights
        chance = 1 / (1 + np.exp(-margin))
        return np.stack([1 - chance, chance], axis=1)

    def predict(self, X):
        return (self.predict_proba(X)[:, 1] >= 0.5).astype(int)

    classes_ = np.array([0, 1])


def bags(sentences):
    return {word: [float(one.lower().split().count(word)) for one in sentences] for word in WORDS}


@pytest.fixture(scope="module")
def sentences():
    rng = np.random.default_rng(0)
    made = [" ".join(rng.choice(WORDS, 4)) for _ in range(120)]
    swapped = swap_words(made, [("he", "she")])
    labels = [int(one.count("good") >= one.count("bad")) for one in made]
    return made, swapped, labels


@pytest.fixture
def files(sentences, tmp_path):
    made, swapped, labels = sentences
    pq.write_table(
        pa.table({**bags(made), "label": labels, "id": [f"s{i}" for i in range(len(made))]}), tmp_path / "d.parquet"
    )
    pq.write_table(
        pa.table({**bags(swapped.sentences), "of": swapped.source, "name": [f"s{i}" for i in swapped.source]}),
        tmp_path / "c.parquet",
    )
    return tmp_path


def audited(folder, model=None, **settings):
    data = fairkit.load_data(folder / "d.parquet", label="label", favorable=1, features=list(WORDS))
    return fairkit.audit(
        model or Linear(),
        data,
        auditors=["counterfactuals"],
        parameters={"counterfactuals": {"rows": str(folder / "c.parquet")} | settings},
    )


def expected(sentences):
    made, swapped, _ = sentences
    scores = [Linear().predict_proba(np.array(list(bags(part).values())).T)[:, 1] for part in (made, swapped.sentences)]
    rows = sorted(set(swapped.source.tolist()))
    same = [len({scores[0][i] >= 0.5, *(scores[1][swapped.source == i] >= 0.5)}) == 1 for i in rows]
    gaps = [np.abs(scores[1][swapped.source == i] - scores[0][i]).mean() for i in rows]
    return np.array(same), np.array(gaps)


def test_both_numbers_are_those_of_the_definition(sentences, files):
    same, gaps = expected(sentences)
    for settings in ({}, {"of": "name", "key": "id"}):
        report = audited(files, **settings)
        consistency, gap = (report.find("prediction_consistency"), report.find("counterfactual_token_fairness_gap"))
        assert consistency.value == pytest.approx(same.mean(), abs=1e-12)
        assert gap.value == pytest.approx(gaps.mean(), abs=1e-6)
        half = 1.96 * gaps.std(ddof=1) / np.sqrt(len(gaps))
        assert gap.interval == pytest.approx((gaps.mean() - half, gaps.mean() + half), rel=0.1)
        assert consistency.interval[0] < same.mean() < consistency.interval[1]
        assert consistency.notes[0].startswith(f"{len(same)} of 120 rows have counterfactual rows")


def test_a_model_that_ignores_the_words_is_consistent(files):
    blind = Linear()
    blind.weights = np.array([2.0, -2.0, 0.5, 0.5, 0.1, -0.1])
    report = audited(files, blind)
    assert report.find("prediction_consistency").value == 1
    assert report.find("counterfactual_token_fairness_gap").value == 0


def test_intervals_cover():
    """Rows drawn anew, 300 times: the 90 % interval of the gap holds its mean about so often."""
    from fairkit_counterfactuals import Versions, _mean_interval, _share_interval

    rng, held = np.random.default_rng(0), np.zeros(2)
    for _ in range(300):
        same, change = (rng.random(150) < 0.85).astype(float), rng.exponential(0.1, 150)
        total = Versions(
            150,
            150,
            150,
            np.array([150, same.sum(), change.sum()]),
            np.array([150, same.sum(), same.sum(), change.sum(), (change**2).sum()]),
            True,
        )
        for place, (interval, true) in enumerate(((_share_interval, 0.85), (_mean_interval, 0.1))):
            low, high = interval(total, 0.9)
            held[place] += low <= true <= high
    assert (held >= 300 * 0.85).all()


def rewritten(folder, change):
    table = pq.read_table(folder / "c.parquet").to_pydict()
    change(table)
    pq.write_table(pa.table(table), folder / "c.parquet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["of"].__setitem__(0, 500), "1 of .* counterfactual rows name no original"),
        (lambda t: t["of"].__setitem__(0, None), "have no value in 'of'"),
        (lambda t: t.pop("tea"), "has no column 'tea', that the model reads"),
        (lambda t: t.pop("of"), "has no column 'of', that names each row's original"),
    ],
)
def test_bad_counterfactual_rows_are_one_message(files, change, message):
    rewritten(files, change)
    with pytest.raises(DataError, match=message):
        audited(files)


def test_bad_settings_are_one_message(files):
    with pytest.raises(ParameterError, match=r"counterfactuals\.rows=FILE"):
        audited(files, rows="")
    with pytest.raises(ParameterError, match="the data has no column 'idd'"):
        audited(files, key="idd")
    with pytest.raises(DataError, match="name no original"):
        audited(files, of="name")


def test_the_command_audits_a_file(files, capsys, monkeypatch):
    pytest.importorskip("skl2onnx")
    from sklearn.linear_model import LogisticRegression

    table = pq.read_table(files / "d.parquet").to_pydict()
    frame = np.array([table[word] for word in WORDS], dtype=np.float32).T
    model = LogisticRegression().fit(frame, table["label"])
    from skl2onnx import to_onnx

    proto = to_onnx(model, frame[:1], options={"zipmap": False})
    (files / "m.onnx").write_bytes(proto.SerializeToString())
    monkeypatch.setattr(
        "sys.argv",
        [
            *("fairkit", "audit", str(files / "m.onnx"), "--data", str(files / "d.parquet"), "--label", "label"),
            *("--favorable", "1", "--features", ",".join(WORDS), "--auditor", "counterfactuals", "--format", "json"),
            *("--set", f"counterfactuals.rows={files / 'c.parquet'}", "--min", "prediction_consistency=0.5"),
        ],
    )
    with pytest.raises(SystemExit) as ended:
        run()
    report = json.loads(capsys.readouterr().out)
    assert {one["metric"] for one in report["findings"]} == {
        "prediction_consistency",
        "counterfactual_token_fairness_gap",
    }
    assert ended.value.code == 0
    assert report["verdict"] == "pass"
