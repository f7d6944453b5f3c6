"""The plain name and a one-sentence explanation of each metric and term, beside the field's own name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple


class Term(NamedTuple):
    """What a term is called in plain words, and what it means, in one sentence."""

    plain: str
    meaning: str


_METRICS: Mapping[str, Term] = {
    "accuracy": Term("right decisions", "The share of people whose decision agrees with the outcome."),
    "balanced_accuracy": Term(
        "right decisions, both outcomes weighing the same",
        "The mean of the share of right decisions among qualified people and among unqualified people.",
    ),
    "selection_rate": Term("favorable decisions", "The share of people who get the favorable decision."),
    "true_positive_rate": Term(
        "favorable decisions among the qualified",
        "The share of qualified people who get the favorable decision.",
    ),
    "false_positive_rate": Term(
        "favorable decisions among the unqualified",
        "The share of unqualified people who get the favorable decision all the same.",
    ),
    "true_negative_rate": Term(
        "unfavorable decisions among the unqualified",
        "The share of unqualified people who get the unfavorable decision.",
    ),
    "false_negative_rate": Term(
        "qualified people turned down",
        "The share of qualified people who get the unfavorable decision.",
    ),
    "precision": Term(
        "qualified among those with a favorable decision",
        "The share of people with a favorable decision who are qualified.",
    ),
    "f1_score": Term(
        "F1 score", "One number for precision and true positive rate: their harmonic mean, from 0 to 1."
    ),
    "log_loss": Term(
        "error of the probabilities (log loss)",
        "How far the predicted probabilities are from the outcomes; confident errors weigh most, and 0 is perfect.",
    ),
    "brier_score": Term(
        "error of the probabilities (Brier)",
        "The mean squared distance of predicted probability and outcome; 0 is perfect.",
    ),
    "exposure": Term(
        "exposure", "How much of the attention that a ranking gives out an item gets; the first place has 1."
    ),
    "top_k_rate": Term(
        "items among the first k", "The share of a group's items that is among the first k of its ranking."
    ),
    "top_k_share": Term(
        "share of the first k places", "The share of the first k places of all rankings that a group has."
    ),
    "exposure_per_relevance": Term("exposure for relevance", "Exposure that one unit of relevance gets."),
    "clicks_per_relevance": Term("clicks for relevance", "Expected clicks that one unit of relevance gets."),
    "pairwise_accuracy": Term(
        "pairs in the right order",
        "The share of pairs of which the more relevant item stands above the other.",
    ),
    "ndcg": Term(
        "quality of the first k places", "How near the first k places are to the best order; 1 is the best."
    ),
    "mean_prediction": Term("mean score", "The mean of the scores, or of the predicted values."),
    "mean_absolute_error": Term(
        "mean error", "How far a prediction is from the outcome on average, in the outcome's unit."
    ),
    "mean_squared_error": Term(
        "mean squared error", "The mean of the squared errors: large errors weigh more than small ones."
    ),
    "r2_score": Term(
        "explained variance",
        "How much better the predictions are than the mean; 1 is perfect, 0 is no better.",
    ),
    "roc_auc": Term(
        "ranking", "The chance that a qualified person scores above an unqualified one; 0.5 is a coin."
    ),
    "calibration_in_the_large": Term(
        "scores too high or too low",
        "The mean score minus the share of favorable outcomes: above 0 scores promise too much.",
    ),
    "ecce": Term("calibration error", "The largest range of scores by which scores and outcomes disagree."),
    "demographic_parity_difference": Term(
        "difference in favorable decisions",
        "The largest minus the smallest share of people with a favorable decision, between groups; 0 is equal.",
    ),
    "demographic_parity_ratio": Term(
        "ratio of favorable decisions",
        "The smallest over the largest share of people with a favorable decision, between groups; 1 is equal.",
    ),
    "equal_opportunity_difference": Term(
        "difference in favorable decisions among the qualified",
        "The largest minus the smallest share of qualified people who get the favorable decision; 0 is equal.",
    ),
    "equal_opportunity_ratio": Term(
        "ratio of favorable decisions among the qualified",
        "The smallest over the largest share of qualified people who get the favorable decision; 1 is equal.",
    ),
    "equalized_odds_difference": Term(
        "difference in favorable decisions, qualified and unqualified apart",
        "The larger of two differences between groups: among the qualified, and among the unqualified; 0 is equal.",
    ),
    "equalized_odds_ratio": Term(
        "ratio of favorable decisions, qualified and unqualified apart",
        "The smaller of two ratios between groups: among the qualified, and among the unqualified; 1 is equal.",
    ),
    "gap_max": Term(
        "largest difference in right decisions",
        "The larger difference between groups in right decisions, among the qualified or among the unqualified.",
    ),
    "gap_rms": Term(
        "typical difference in right decisions",
        "The root mean square of the differences between groups in right decisions of the two outcomes.",
    ),
    "class_gap_rms": Term(
        "typical difference in right decisions over all classes",
        "The root mean square over the classes of the differences between groups in right decisions.",
    ),
    "class_gap_mean": Term(
        "mean difference in right decisions over all classes",
        "The mean over the classes of the differences between groups in right decisions.",
    ),
    "class_gap_max": Term(
        "largest difference in right decisions of any class",
        "The largest difference between groups in right decisions over the classes.",
    ),
    "statistical_parity_ks": Term(
        "difference of the score distributions",
        "The largest distance between the share of a group and of everybody with a score up to any threshold.",
    ),
    "worst_group_loss": Term("mean loss of the worst group", "The largest mean loss of any group."),
    "impact_ratio": Term(
        "impact ratio", "A group's share of favorable decisions over that of the reference group."
    ),
    "standardized_mean_difference": Term(
        "difference of mean scores in standard deviations",
        "A group's mean score minus the reference group's, over the standard deviation of all scores.",
    ),
    "odds_ratio": Term(
        "odds ratio",
        "The odds of a favorable decision in one group over those in the other; 1 is equal.",
    ),
    "performance_gap": Term(
        "loss of the worst like-for-like change",
        "How much worse the model does when each person may be replaced by one who is alike in all that matters.",
    ),
    "dif": Term("unequal treatment of like people", "How much scores differ between people who are alike."),
    "consistency": Term(
        "decisions that stay when the group changes",
        "The share of decisions that stay the same when a person's sensitive values are changed.",
    ),
    "prediction_consistency": Term(
        "decisions that stay in other versions",
        "The share of rows whose decision is the same in all versions of the row that were given.",
    ),
    "counterfactual_token_fairness_gap": Term(
        "change of the score in other versions",
        "How far the score moves, on average, between a row and the versions of it that were given.",
    ),
    "counterfactual_score_change": Term(
        "change of the score when the group changes",
        "How much a person's score changes, on average, when the sensitive values alone are set to others.",
    ),
    "all_inputs_flip": Term(
        "a decision that depends on the group",
        "1: there is an input whose decision changes with these columns alone; 0: it is proved that there is none.",
    ),
    "all_inputs_score_change": Term(
        "largest change of the raw score",
        "The most that the sum behind the score can change, for any input, when these columns alone change.",
    ),
    "all_inputs_probability_change": Term(
        "largest change of the probability",
        "The most that the predicted probability can change, for any input, when these columns alone change.",
    ),
    "all_inputs_flippable": Term(
        "people whose decision could depend on the group",
        "The share of people for whom an input that is near enough flips when these columns alone change.",
    ),
    "worst_subgroup_gap": Term(
        "largest difference of any subgroup",
        "A bound on how far any subgroup, of all that were searched, may differ from everybody else.",
    ),
    "missing_group_share": Term("people of unknown group", "The share of people whose group is not known."),
}

TERMS: Mapping[str, Term] = {
    "favorable": Term(
        "favorable decision", "The decision that is good for the person, as approved or hired."
    ),
    "qualified": Term("qualified", "A person whose outcome in the table is the favorable one."),
    "unqualified": Term("unqualified", "A person whose outcome in the table is the other one."),
    "interval": Term(
        "interval",
        "The range in which the true number lies with the stated confidence, if other people of the same kind "
        "were drawn; errors in the table are not in it.",
    ),
    "confidence": Term(
        "confidence", "How often such an interval holds the true number: at 95%, in 19 of 20 audits."
    ),
    "sensitive": Term("sensitive column", "A column by which people are split into groups, as sex or age."),
    "group": Term("group", "The people with one value in a sensitive column."),
    "policy": Term("policy", "The limits that were set before the audit, each on one number."),
    "pass": Term("pass", "The whole interval keeps the limit."),
    "fail": Term("fail", "The whole interval is beyond the limit."),
    "inconclusive": Term(
        "inconclusive", "The interval contains the limit, or a group is too small: these rows do not decide."
    ),
    "digest": Term(
        "SHA-256", "A fingerprint of a file or a table: whoever changes one character gets another one."
    ),
}
"""The words of a page that are no metrics."""


def metric_term(metric: str) -> Term:
    """Return the plain name and meaning of a metric; those of a plugin's metric come from its own words."""
    if metric in _METRICS:
        return _METRICS[metric]
    for ending, name, meaning in _ENDINGS:
        base = metric.removesuffix(ending)
        if base != metric:
            of = metric_term(base)
            return Term(name.format(of.plain), meaning.format(of.plain))
    plain = metric.replace("_", " ")
    return Term(plain, _summaries().get(metric, f"The number that its auditor calls {metric}."))


_ENDINGS = (
    ("_difference", "difference: {}", "The largest minus the smallest group's number of: {}; 0 is equal."),
    ("_ratio", "ratio: {}", "The smallest over the largest group's number of: {}; 1 is equal."),
    ("_group_min", "lowest group: {}", "The smallest number of any group, of: {}."),
    ("_group_max", "highest group: {}", "The largest number of any group, of: {}."),
)


@cache
def _summaries() -> Mapping[str, str]:
    """The first sentence of each installed metric's documentation."""
    from fairkit.plugins.finding import installed_metrics

    return {
        cls.name: (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ") or cls.name
        for cls in installed_metrics()[0]
    }


def used_terms(metrics: Iterable[str]) -> list[tuple[str, Term]]:
    """Return the metrics that a page shows and the words that every page uses, by key, in alphabetical order."""
    found = {metric: metric_term(metric) for metric in metrics}
    return sorted((found | dict(TERMS)).items(), key=lambda pair: pair[1].plain.lower())
