"""Counterfactuals: named columns that take other values, and sentences with swapped words."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit.errors import DataError, ParameterError
from fairkit_onnx.write.encode import fit_encoder
from fairkit_sensei import swap_words
from fairkit_sensei.counterfactuals import ColumnFlips, GivenCounterfactuals, Versions, find_flips

N = 60
COLUMNS = {
    "age": np.arange(N) * 1.0,
    "sex": np.array(["f", "m"] * (N // 2), dtype=object),
    "home": np.array(["wife", "husband", "child"] * (N // 3), dtype=object),
    "old": np.array([0, 1] * (N // 2)),
}
NAMES = tuple(COLUMNS)


def drawn(flip, values=None, rounds=40):
    torch = pytest.importorskip("torch")

    encoder = fit_encoder(COLUMNS, NAMES, text="onehot", standardise=True)
    x = torch.from_numpy(encoder.transform(COLUMNS))
    flips = ColumnFlips(find_flips(flip, COLUMNS, values or {}, NAMES), encoder, COLUMNS)
    rng = np.random.default_rng(0)
    return x, [flips.draw(x, np.arange(N), rng) for _ in range(rounds)], encoder.names


def test_a_flip_changes_its_columns_only_and_always():
    torch = pytest.importorskip("torch")

    x, others, names = drawn(["sex"])
    own = [place for place, name in enumerate(names) if name.startswith("sex=")]
    rest = [place for place in range(len(names)) if place not in own]
    for other in others:
        assert torch.equal(other[:, rest], x[:, rest])
        assert torch.equal(other[:, own], 1 - x[:, own])


def test_combinations_change_together_and_all_occur():
    x, others, names = drawn(["sex+old"])
    own = [place for place, name in enumerate(names) if name.startswith(("sex=", "old"))]
    seen = {tuple(row) for other in others for row in other[:, own].tolist()}
    assert len(seen) == 4
    assert all((other[:, own] != x[:, own]).any(dim=1).all() for other in others)


def test_only_listed_values_are_drawn():
    _, others, names = drawn(["home"], {"home": "husband,wife"})
    child = names.index("home=child")
    assert all(float(other[:, child].sum()) == 0 for other in others)


def test_several_flips_are_drawn_in_turn():
    x, others, names = drawn(["sex", "home"])
    sex = [place for place, name in enumerate(names) if name.startswith("sex=")]
    changed = np.mean([float((other[:, sex] != x[:, sex]).any(dim=1).float().mean()) for other in others])
    assert changed == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("flip", "values", "says"),
    [
        ([], {}, "name them, as in the parameter `sensitive="),
        (["sexx"], {}, "reads no column 'sexx'"),
        (["age"], {}, "60 distinct values"),
        (["sex"], {"sex": "f"}, "one combination"),
        (["sex"], {"sex": "f,x"}, "never has the value 'x'"),
        (["sex"], {"home": "wife"}, "belongs to no flip"),
    ],
)
def test_flips_that_make_no_sense(flip, values, says):
    with pytest.raises(ParameterError, match=says):
        find_flips(flip, COLUMNS, values, NAMES)


def test_given_counterfactuals_go_to_their_rows():
    torch = pytest.importorskip("torch")

    given = GivenCounterfactuals(np.array([[1.0], [2.0], [9.0]]), np.array([1, 1, 3]), 4)
    rng = np.random.default_rng(0)
    rows = np.array([3, 0, 1, 2])
    found = np.array([given.draw(torch.zeros(4, 1), rows, rng).numpy()[:, 0] for _ in range(50)])
    assert (found[:, 0] == 9).all()
    assert (found[:, [1, 3]] == 0).all()
    assert set(found[:, 2]) == {1.0, 2.0}


def test_versions_of_a_file_are_found_by_the_features_of_a_row():
    """Groups a: rows 0, 1, 2; b: rows 3, 4 (row 3 is row 0 again); c: row 5 alone."""
    torch = pytest.importorskip("torch")

    features = np.array([[1], [2], [3], [1], [5], [6]], np.float32)
    versions = Versions("v.parquet", features, np.array([0, 0, 0, 1, 1, 2]))
    x = np.array([[6], [2], [1], [7]], np.float32)
    found = versions.of(x)
    rng = np.random.default_rng(0)
    drawn = np.array([found.draw(torch.from_numpy(x), np.arange(4), rng).numpy()[:, 0] for _ in range(80)])
    assert [set(column) for column in drawn.T] == [{6.0}, {1.0, 3.0}, {2.0, 3.0, 5.0}, {7.0}]
    assert found.paired == 2
    assert "2 of 4 training rows" in versions.note(found, 4)[0]
    assert not versions.note(versions.of(x[1:3]), 2)
    with pytest.raises(DataError, match="no training row has another version"):
        versions.of(x[[0, 3]])


def test_words_are_swapped_whole_together_and_in_their_case():
    made = swap_words(
        ["He lost his key, and HE knew it.", "The theory is theirs.", "She saw him; he saw her"],
        [("he", "she"), ("his", "hers"), ("him", "her")],
    )
    assert made.sentences == ("She lost hers key, and SHE knew it.", "He saw her; she saw him")
    assert made.source.tolist() == [0, 2]
    assert made.groups().tolist() == [0, 1, 2, 0, 2]


def test_every_other_word_of_a_longer_list_and_words_of_several_parts():
    made = swap_words(["Some people are old folks", "none"], [("old folks", "young", "tall")])
    assert made.sentences == ("Some people are young", "Some people are tall")
    assert swap_words(["a.b c", "x"], [("a.b", "c")]).sentences == ("c a.b",)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([("he",)], "at least two words"),
        ([("he", "she"), ("a", "b", "c")], "all of one length"),
        ([("he", "she"), ("He", "they")], "listed twice"),
        ([], "at least two words"),
    ],
)
def test_words_that_cannot_be_swapped(words, says):
    with pytest.raises(ParameterError, match=says):
        swap_words(["x"], words)


@pytest.mark.long
def test_sentences_and_embeddings_teach_a_network_to_ignore_the_words():
    """FACE from swapped sentences, with a bag of words as the embedding."""
    torch = pytest.importorskip("torch")

    from fairkit_sensei import fit_network
    from fairkit_similarity import learn

    rng = np.random.default_rng(0)
    nouns, verbs = ["he", "she"], ["builds", "sings", "reads", "paints"]
    sentences = [f"{rng.choice(nouns)} {rng.choice(verbs)} {rng.choice(verbs)}" for _ in range(300)]
    words = [*nouns, *verbs]

    def embed(texts):
        return np.array([[text.split().count(word) for word in words] for text in texts], dtype=float)

    made = swap_words(sentences, [("he", "she")])
    x, other = embed(sentences), embed(made.sentences)
    y = np.array([("builds" in text) ^ (text.startswith("she") and rng.random() < 0.4) for text in sentences])
    whole = np.concatenate([x, other])
    metric = learn.face({f"x{k}": whole[:, k] for k in range(6)}, made.groups(), rank=1)
    how = {"epochs": 20, "rate": 0.01, "hidden": (16,)}
    fair = fit_network(x, y, metric=metric, rho=20.0, epsilon=0.01, **how).module
    plain = fit_network(x, y, method="erm", **how).module

    def changed(net):
        with torch.no_grad():
            one, two = (net(torch.tensor(v, dtype=torch.float32)) for v in (x[made.source], other))
        return float((one - two).abs().mean())

    assert changed(fair) < 0.1 * changed(plain)
