"""What views show first is what metrics and auditors declare."""

from __future__ import annotations

import numpy as np

from fairkit.auditing.measure import views
from fairkit.data.loading import load_data
from fairkit.metrics import Headline, Rate, field_names
from fairkit.models.scorer import Predictions
from fairkit.plugins import installed_metrics
from fairkit.reading import Headlines, headlines


class Own(Rate):
    name = "own_rate"
    over = (1, 1, 1, 1)
    counted = (0, 1, 0, 1)
    alias = "own_parity"
    headline = Headline(performance=2, between=1, tasks=frozenset({"binary"}))


def test_the_installed_ones_are_in_the_order_that_they_declare():
    shown = headlines()
    assert shown.performance() == [
        *("accuracy", "balanced_accuracy", "roc_auc", "log_loss"),
        *("mean_absolute_error", "mean_squared_error", "r2_score"),
        *("ndcg", "pairwise_accuracy"),
    ]
    assert shown.between("regression") == [
        *("demographic_parity_difference", "equal_opportunity_difference", "false_positive_rate_difference"),
        *("equalized_odds_difference", "accuracy_difference", "mean_prediction_difference"),
        *("mean_absolute_error_difference", "statistical_parity_ks", "worst_group_loss"),
        *("exposure_difference", "top_k_rate_difference", "pairwise_accuracy_difference"),
    ]
    assert "mean_prediction_difference" not in shown.between("binary")
    assert shown.columns("binary")[:5] == [
        *("selection_rate", "true_positive_rate", "false_positive_rate", "precision", "accuracy")
    ]
    assert "mean_prediction" in shown.columns("regression")


def test_none_is_listed_twice_under_two_names():
    shown = headlines()
    same = ("selection_rate_difference", "true_positive_rate_difference", "false_negative_rate_difference")
    assert not any(shown.lists(name, "binary") for name in (*same, "gap_max", "equalized_odds_difference"))
    assert all(shown.lists(name, "binary") for name in ("demographic_parity_difference", "statistical_parity_ks"))
    assert shown.lists("mean_prediction_difference", "regression")
    assert not shown.lists("mean_prediction_difference", "binary")
    assert shown.lists("somebody_elses_difference", "binary")
    assert not shown.lists("selection_rate_ratio", "binary")


def test_a_metric_of_ones_own_declares_its_place_and_its_name():
    shown = Headlines({"own_rate": Own}, {"other": Headline(between=2)})
    assert shown.between("binary") == ["own_parity_difference", "other"]
    assert shown.between("regression") == ["other"]
    assert shown.decides({"own_parity_difference"})
    assert field_names([Own]) == {"own_rate_difference": "own_parity_difference", "own_rate_ratio": "own_parity_ratio"}
    assert field_names(installed_metrics()[0])["selection_rate_ratio"] == "demographic_parity_ratio"


class Three:
    task = "multiclass"
    classes = ("a", "b", "c")


def test_of_several_classes_each_is_seen_against_the_others():
    labels = np.array(["a", "b", "c", "b"], dtype=object)
    data = load_data({"x": np.arange(4), "y": labels}, label="y")
    batch = next(iter(data.batches([])))
    said = Predictions(
        decision=None, score=None, predicted=np.array([0, 1, 1, 2]), probabilities=np.full((4, 3), 1 / 3)
    )
    found = dict(views(batch, said, Three(), data))
    assert list(found) == [None, "a", "b", "c"]
    assert found[None].decision.tolist() == [1, 1, 0, 0]  # right or wrong
    assert found["b"].outcome.tolist() == [0, 1, 0, 1]
    assert found["b"].decision.tolist() == [0, 1, 1, 0]
