"""What the auditor of groups finds besides single metrics: where it is shown, and what it is called."""

from __future__ import annotations

from collections.abc import Mapping

from fairkit.metrics import Headline, Term
from fairkit_group.over_classes import NAMES as OVER_CLASSES

_AGAINST = "against a group that `reference` names"

HEADLINES: Mapping[str, Headline] = {
    "equalized_odds_difference": Headline(
        between=4,
        disparity=False,  # the larger of two that are shown
        worse_of=("true_positive_rate_difference", "false_positive_rate_difference"),
    ),
    "equalized_odds_ratio": Headline(
        disparity=False, worse_of=("true_positive_rate_ratio", "false_positive_rate_ratio")
    ),
    "gap_max": Headline(disparity=False, worse_of=("true_positive_rate_difference", "true_negative_rate_difference")),
    "gap_rms": Headline(disparity=False),
    "statistical_parity_ks": Headline(between=8),
    "worst_group_loss": Headline(between=9, disparity=False),
    **dict.fromkeys(OVER_CLASSES, Headline(disparity=False)),
    "impact_ratio": Headline(condition=_AGAINST),
    "standardized_mean_difference": Headline(condition=_AGAINST),
    "odds_ratio": Headline(condition="inside the strata of a column that `within` names"),
}

TERMS: Mapping[str, Term] = {
    "equalized_odds_difference": Term(
        "difference in favorable decisions, qualified and unqualified apart",
        "The larger of two differences between groups: among the qualified, and among the unqualified; 0 is equal.",
        short="EO",
    ),
    "equalized_odds_ratio": Term(
        "ratio of favorable decisions, qualified and unqualified apart",
        "The smaller of two ratios between groups: among the qualified, and among the unqualified; 1 is equal.",
        short="EO",
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
        short="score distance (KS)",
    ),
    "worst_group_loss": Term("mean loss of the worst group", "The largest mean loss of any group."),
    "impact_ratio": Term("impact ratio", "A group's share of favorable decisions over that of the reference group."),
    "standardized_mean_difference": Term(
        "difference of mean scores in standard deviations",
        "A group's mean score minus the reference group's, over the standard deviation of all scores.",
    ),
    "odds_ratio": Term(
        "odds ratio", "The odds of a favorable decision in one group over those in the other; 1 is equal."
    ),
    "missing_group_share": Term("people of unknown group", "The share of people whose group is not known."),
}
