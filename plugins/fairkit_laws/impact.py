"""Rates of selection and what the laws make of them: categories, impact ratios, tests, the unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairkit.errors import MissingExtraError
from fairkit.packs import Cell, Column, Kind, PackTable
from fairkit.support.lazy_dataclass import dataclass, field

if TYPE_CHECKING:
    from fairkit.results.findings import Finding, GroupValue
    from fairkit.results.report import Report


SMALL_SHARE = 0.02
"""A category with less than this share of the data may be left out under 6 RCNY 5-301(d).

In `adverse_impact` the share is of the audited people, and fairkit's own rule: 29 CFR 1607.15(A)(2)(a) means the share
of the labor force in the relevant area, or of the applicable workforce.
"""


def _columns_of(context: Context) -> list[str]:
    """Return the sensitive columns, single ones first, then intersections."""
    result = sorted(context.report.data.groups, key=lambda name: name.count("+"))
    if not result:
        raise NotAnsweredError("the audit has no sensitive column")
    return result


def _unknown(context: Context, sensitive: str) -> int:
    return int(context.report.data.missing.get(sensitive, 0))


def _share(one: Selected, groups: Sequence[Selected], unknown: int) -> float:
    return one.rows / (sum(each.rows for each in groups) + unknown)


def _ends(pair: tuple[float, float] | None) -> tuple[Cell, Cell]:
    return (None, None) if pair is None else pair


def selection_rates(context: Context) -> list[PackTable]:
    """Return for each sensitive column the rate of each category and its impact ratio to the highest rate.

    Facts: `tool_scores`, `exclude_small_categories` and `exclusion_justification`. A category
    with less than 2 % of the data is left out of the ratios only where a person says so and why; its count and its rate
    stay. The option `two_percent` says that the law has this rule. A model that puts people into classes has a table
    for each of them.
    """
    word, note = _rate_of(context)
    leave_out = bool(context.facts.get("exclude_small_categories"))
    if leave_out and not context.facts.get("exclusion_justification"):
        raise NotAnsweredError("small categories are to be left out, and no justification is stated")
    return [
        _rates(context, sensitive, label, word, note, leave_out=leave_out)
        for label in context.classes
        for sensitive in _columns_of(context)
    ]


def _rate_of(context: Context) -> tuple[str, str | None]:
    """Return the word for the rate; where the tool scores, decisions must be scores above the median of all.

    6 RCNY 5-301(c): the median of the full sample; the scoring rate of a category is its share above that median.
    """
    if not context.facts.get("tool_scores"):
        return "selection rate", None
    cut, decided = context.report.model.outputs.get("threshold"), context.report.decisions
    if cut is None or not decided:
        raise NotAnsweredError(
            "scores above the median were not counted: `fairkit certify --pack nyc-ll144` on the scores counts them"
        )
    side = "below" if context.report.model.outputs.get("turned") else "above"
    if decided["favorable"] > decided["unfavorable"]:
        raise NotAnsweredError(
            f"{decided['favorable']:,} of {context.report.data.rows:,} people are {side} the threshold {cut:.6g}: it "
            "is not the median; `fairkit certify --pack nyc-ll144` without a threshold takes it"
        )
    return "scoring rate", f"Counted are scores {side} {cut:.6g}, the median score of the whole sample."


def _rates(
    context: Context, sensitive: str, label: str | None, word: str, note: str | None, *, leave_out: bool
) -> PackTable:
    groups, unknown = context.selected(sensitive, label), _unknown(context, sensitive)
    small = {group.group for group in groups if _share(group, groups, unknown) < SMALL_SHARE}
    out = small if leave_out else set()
    counted = [group for group in groups if group.group not in out]
    top = max(counted, key=lambda group: group.rate, default=None)
    rows: list[tuple[Cell, ...]] = []
    for selected in groups:
        is_ranked = top is not None and selected.group not in out
        value = ratio(selected.rate, top.rate) if is_ranked and top is not None else None
        pair = (
            ratio_interval((selected.rate, selected.interval), (top.rate, top.interval)) if is_ranked and top else None
        )
        is_reference = top is not None and selected.group == top.group
        rows.append(
            (
                selected.group,
                selected.rows,
                selected.count,
                selected.rate,
                *_ends(selected.interval),
                value,
                *_ends(None if is_reference else pair),
            )
        )
    notes = [
        *([] if note is None else [note]),
        f"{unknown:,} people whose {sensitive} is unknown are in no rate and no ratio.",
        *_remarks(small, out, groups, top, context),
    ]
    columns = (
        Column(sensitive), Column("people", "count"),
        Column("selected" if note is None else f"{note.split()[3]} the median", "count"), Column(word, "percent"),
        Column("rate from", "percent"), Column("rate to", "percent"), Column("impact ratio", "ratio"),
        Column("ratio from", "ratio"), Column("ratio to", "ratio"),
    )  # fmt: skip
    title = sensitive if label is None else f"{sensitive}, put into {label}"
    return PackTable(title=title, columns=columns, rows=tuple(rows), notes=tuple(notes), origin="computed")


def _remarks(
    small: set[str], out: set[str], groups: Sequence[Selected], top: Selected | None, context: Context
) -> list[str]:
    said = []
    names = ", ".join(group.group for group in groups if group.group in small)
    if out:
        why = context.facts["exclusion_justification"]
        said.append(f"Left out of the ratios, with less than 2 % of the data: {names}. Justification: {why}")
    elif small and context.options.get("two_percent"):
        said.append(f"With less than 2 % of the data, and in the ratios all the same: {names}.")
    if top is None or top.rate == 0:
        said.append("Nobody was selected in any category: no ratio is defined.")
    elif top.group in small:
        said.append(f"The highest rate is that of {top.group}, which has {top.rows:,} people: see its interval.")
    return said


_SEX = ("male", "female")
_RACE = (
    "hispanic or latino", "white", "black or african american", "native hawaiian or pacific islander",
    "native hawaiian or other pacific islander", "asian", "native american or alaska native",
    "american indian or alaska native", "two or more races",
)  # fmt: skip
"""The categories of the EEO-1 report, as 6 RCNY 5-301 spells them and as the report does."""


def categories(context: Context) -> list[PackTable]:
    """Return the labels of sex and of race/ethnicity, and which of them are those of the EEO-1 report.

    Fact: `category_labels` says how other labels are meant.
    """
    rows: list[tuple[Cell, ...]] = []
    kinds = set()
    for column in _columns_of(context):
        if "+" in column:
            continue
        labels = list(context.report.data.groups[column])
        plain = {label: label.lower().replace("(not hispanic or latino)", "").strip() for label in labels}
        kind = "sex" if any(category in _SEX for category in plain.values()) else "race/ethnicity"
        listed = _SEX if kind == "sex" else _RACE
        kinds |= {kind} if all(category in listed for category in plain.values()) else set()
        rows += [(column, label, kind if plain[label] in listed else None) for label in labels]
    odd = ", ".join(f"{column} {label}" for column, label, kind in rows if kind is None)
    if (odd or kinds != {"sex", "race/ethnicity"}) and not context.facts.get("category_labels"):
        missing = " and ".join(category for category in ("sex", "race/ethnicity") if category not in kinds)
        text = (
            f"labels that the EEO-1 report does not have: {odd}"
            if odd
            else f"no column has the categories of {missing}"
        )
        raise NotAnsweredError(f"{text}; state category_labels, where they are meant")
    columns = (Column("column"), Column("label"), Column("category of the EEO-1 report"))
    notes = ("Labels without a category are meant as the fact says.",) if odd else ()
    return [PackTable(title="Categories", columns=columns, rows=tuple(rows), notes=notes)]


def unknown(context: Context) -> list[PackTable]:
    """Return how many people are in no category, by sensitive column."""
    rows = tuple((name, _unknown(context, name)) for name in _columns_of(context))
    notes = ("They are in no rate and no ratio.",)
    columns = (Column("category"), Column("people of unknown category", "count"))
    return [PackTable(title="Unknown categories", columns=columns, rows=rows, notes=notes)]


def adverse_impact(context: Context) -> list[PackTable]:
    """Return each group against the group with the highest rate, or the one that the fact `reference` names.

    Ratio with interval, exact tests, standard deviations, and how many more selections the clause's threshold would
    take. Groups with less than 2 % of the audited people are shown without a reading. A clause that names no threshold
    has no reading.
    """
    return [_impact(context, sensitive) for sensitive in _columns_of(context)]


def _impact(context: Context, sensitive: str) -> PackTable:
    groups, unknown = context.selected(sensitive), _unknown(context, sensitive)
    small = {group.group for group in groups if _share(group, groups, unknown) < SMALL_SHARE}
    reference = _reference(context, sensitive, groups, small)
    limit = next(iter(context.thresholds.values()), None)
    rows = tuple(_against(group, reference, limit, small=group.group in small) for group in groups)
    notes = [f"Compared with {reference.group}, {_why(context, sensitive)}."]
    if unknown:
        notes.append(f"{unknown:,} people whose {sensitive} is unknown are in no comparison.")
    if any(row[8] is None and row[7] is not None for row in rows):
        notes.append("Boschloo's test is left out for large groups, where it takes too long, and where nobody differs.")
    columns: tuple[Column, ...] = (
        Column(sensitive), Column("people", "count"), Column("selected", "count"), Column("rate", "percent"),
        Column("ratio", "ratio"), Column("ratio from", "ratio"), Column("ratio to", "ratio"), Column("Fisher p", "p"),
        Column("Boschloo p", "p"), Column("standard deviations", "number"), Column("more selections to 4/5", "count"),
        Column("reading"),
    )  # fmt: skip
    if limit is None:
        columns, rows = columns[:-2], tuple(row[:-2] for row in rows)
    return PackTable(title=sensitive, columns=columns, rows=rows, notes=tuple(notes), origin="computed")


def _reference(context: Context, sensitive: str, groups: Sequence[Selected], small: set[str]) -> Selected:
    reference = context.facts.get("reference")
    for text in [] if reference is None else str(reference).split(","):
        column, _, name = text.strip().partition("=")
        if column == sensitive:
            named = next((group for group in groups if group.group == name), None)
            if named is None:
                raise NotAnsweredError(f"the reference group {name!r} of {sensitive} is not in the audit")
            return named
    large = [group for group in groups if group.group not in small] or list(groups)
    return max(large, key=lambda group: group.rate)


def _why(context: Context, sensitive: str) -> str:
    named = [text.strip().partition("=")[0] for text in str(context.facts.get("reference", "")).split(",")]
    return (
        "as named"
        if sensitive in named
        else "the group with the highest rate among those of at least 2 % of the audited people"
    )


def _against(selected: Selected, reference: Selected, limit: float | None, *, small: bool) -> tuple[Cell, ...]:
    head = (selected.group, selected.rows, selected.count, selected.rate)
    if selected.group == reference.group:
        return (*head, 1.0, None, None, None, None, None, 0, "the group that others are compared with")
    value = ratio(selected.rate, reference.rate)
    pair = ratio_interval((selected.rate, selected.interval), (reference.rate, reference.interval))
    fisher, boschloo = exact_tests(selected.count, selected.rows, reference.count, reference.rows)
    apart = deviations(selected.count, selected.rows, reference.count, reference.rows)
    more = 0 if limit is None else more_selections(selected.count, selected.rows, reference.rate, limit)
    said = "less than 2 % of the audited people: no reading"
    if not small and limit is not None:
        said = _reading(value, fisher, apart, limit)
    return (*head, value, *_ends(pair), fisher, boschloo, apart, more, said)


def _reading(value: float | None, fisher: float, apart: float | None, limit: float) -> str:
    """Return the guidelines' reading of an impact ratio together with its significance test.

    What is significant is fairkit's own rule: Fisher's p below 0.05, and at least two standard deviations.
    """
    significant = fisher < 0.05 and apart is not None and abs(apart) >= 2
    if value is None:
        return "the reference rate is 0: no ratio"
    if value < limit:
        if significant:
            return "below four fifths and significant: generally regarded as evidence of adverse impact"
        return "below four fifths, not significant: may rest on small numbers"
    if significant and value < 1:
        return "at least four fifths, yet significant: may be adverse impact all the same"
    return "at least four fifths, not significant" if not significant else "not below the reference"


def against_reference(context: Context) -> list[PackTable]:
    """Return the signed impact ratios and standardized mean differences against each reference group."""
    tables = []
    for finding in context.report.findings:
        if (
            finding.metric in ("impact_ratio", "standardized_mean_difference")
            and finding.reference
            and not finding.within
        ):
            kind: Kind = "ratio" if finding.metric == "impact_ratio" else "number"
            columns = (
                Column(str(finding.sensitive)), Column("people", "count"),
                Column(finding.metric.replace("_", " "), kind),
                Column("from", kind), Column("to", kind),
            )  # fmt: skip
            rows = tuple((g.group, g.rows, g.value, *_ends(g.interval)) for g in finding.groups)
            title = f"{finding.sensitive} against {finding.reference}: {finding.metric.replace('_', ' ')}"
            tables.append(PackTable(title=title, columns=columns, rows=rows))
    if not tables:
        raise NotAnsweredError(
            "the audit names no reference group: `fairkit certify --pack ecoa` takes the highest rate"
        )
    return tables


_BETWEEN_ALL = ("demographic_parity_difference", "odds_ratio")
_AGAINST = ("impact_ratio", "standardized_mean_difference")


def within_bands(context: Context) -> list[PackTable]:
    """Return the tables of stratified comparisons between groups, pooled over the audit's strata.

    Impact ratios and standardized mean differences of each group against its reference; differences and odds ratios
    between all groups.
    """
    rows: list[tuple[Cell, ...]] = []
    for finding in context.report.findings:
        if not finding.within:
            continue
        head = (str(finding.sensitive), "+".join(finding.within))
        if finding.reference is None and finding.metric in _BETWEEN_ALL:
            rows.append((*head, "all", finding.metric.replace("_", " "), finding.value, *_ends(finding.interval)))
        elif finding.reference is not None and finding.metric in _AGAINST:
            word = f"{finding.metric.replace('_', ' ')} to {finding.reference}"
            rows += [(*head, g.group, word, g.value, *_ends(g.interval)) for g in finding.groups]
    if not rows:
        raise NotAnsweredError("the audit has no strata: `fairkit certify --within BAND`, of scores or products")
    columns = (
        Column("groups of"), Column("inside"), Column("group"), Column("metric"), Column("pooled", "number"),
        Column("from", "number"), Column("to", "number"),
    )  # fmt: skip
    return [PackTable(title="Inside bands, pooled", columns=columns, rows=tuple(rows))]


# What a pack's tables are made from, and what they are: rows, with a kind for each column.


class NotAnsweredError(Exception):
    """What a table would need is not in the audit; the message is the reason, for the page's gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """An audit, what a person stated, and what an item tells its table.

    `thresholds` are the numbers that the clause names, by its words. `certificate` has sha256, audited_at, keyids,
    mitigation and settings; it is empty for an audit that nobody signed. `watch` is a look at the decisions since.
    """

    report: Report
    facts: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    certificate: Mapping[str, Any] = field(default_factory=dict)
    watch: Mapping[str, Any] | None = None

    @property
    def probable(self) -> tuple[str, ...]:
        """The sensitive columns of which only probabilities of the groups are known."""
        named = {str(f.sensitive) for f in self.report.findings if "probabilities" in f.parameters}
        settings = self.certificate.get("settings")
        data = settings.get("data") if isinstance(settings, Mapping) else None
        listed = data.get("sensitive_probability") if isinstance(data, Mapping) else None
        return tuple(sorted(named | {str(text).partition("=")[0] for text in listed or ()}))

    @property
    def classes(self) -> tuple[str | None, ...]:
        """The classes into which a model puts people; None alone where it decides yes or no."""
        found = {str(f.parameters["class"]): None for f in self.report.findings if "class" in f.parameters}
        return tuple(found) or (None,)

    def between(self, metric: str, sensitive: str, label: str | None = None) -> Finding | None:
        """Return the finding between all groups of a sensitive column, of a class; None where there is none."""
        matching = [
            f
            for f in self.report.findings
            if f.metric == metric and f.sensitive == sensitive and f.plain and _class_of(f) == label
        ]
        return matching[0] if matching else None

    def selected(self, sensitive: str, label: str | None = None) -> Sequence[Selected]:
        """Return the groups of a sensitive column with their counts: of the selected, or of those put into a class."""
        if self.report.data.weights is not None:
            raise NotAnsweredError("the rows have weights, and the law asks for counts of people")
        finding = self.between("selection_rate_difference", sensitive, label)
        if finding is None or not finding.groups:
            raise NotAnsweredError(f"no selection rates of {sensitive} were measured")
        return [Selected.of(group) for group in finding.groups]


def _class_of(finding: Finding) -> str | None:
    return str(finding.parameters["class"]) if "class" in finding.parameters else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """A group: its rows, how many of them were selected, and the rate with its interval."""

    group: str
    rows: int
    count: int
    rate: float
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, group: GroupValue) -> Selected:
        """Read a group of a finding."""
        rate = 0.0 if group.value is None else group.value
        count = round(rate * group.rows)
        if group.value is None or abs(rate * group.rows - count) > 1e-6:
            raise NotAnsweredError(f"the decisions on group {group.group} are not of whole people")
        return cls(group=group.group, rows=group.rows, count=count, rate=rate, interval=group.interval)


# Numbers that the laws and the courts use, from counts: impact ratios, exact tests, standard deviations.


MOST_BOSCHLOO = 250_000
"""Boschloo's test is computed up to so many tables of two groups (their rows multiplied); it takes long for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A group against the reference."""

    ratio: float | None  # rate over the reference's rate; None where that is 0
    interval: tuple[float, float] | None  # of the ratio, at the report's confidence; None where a group has no interval
    fisher: float  # a two-sided p-value
    boschloo: float | None  # another; None for large groups
    deviations: float | None
    more: int  # how many more selections of the group would lift the ratio to four fifths, the others kept


def ratio(rate: float, reference: float) -> float | None:
    """Return a rate over another; None where that is 0."""
    return None if reference == 0 else rate / reference


def ratio_interval(
    numerator: tuple[float, tuple[float, float] | None], denominator: tuple[float, tuple[float, float] | None]
) -> tuple[float, float] | None:
    """Return the interval of a ratio of two independent rates, each with its own (Donner & Zou 2012)."""
    import numpy as np

    from fairkit.intervals import ratio_limits

    if numerator[1] is None or denominator[1] is None or denominator[0] == 0:
        return None
    low, high = np.array([numerator[1][0], denominator[1][0]]), np.array([numerator[1][1], denominator[1][1]])
    groups = (np.array([0], dtype=np.intp), np.array([1], dtype=np.intp))
    down, up = ratio_limits(np.array([numerator[0], denominator[0]]), lambda _: (low, high), 0.0, *groups)
    return float(down[0]), float(up[0])


def deviations(selected: int, rows: int, other_selected: int, other_rows: int) -> float | None:
    """Return the difference of two shares in standard deviations of the pooled two-sample binomial.

    (p₁ - p₂) / sqrt(p (1 - p) (1/n₁ + 1/n₂)), as enforcement agencies compute it. The cases on two or three standard
    deviations, Castaneda v. Partida, 430 U.S. 482, and Hazelwood School District v. United States, 433 U.S. 299 (both
    1977), are about one sample against a known share of the population.
    """
    pooled = (selected + other_selected) / (rows + other_rows)
    variance = pooled * (1 - pooled) * (1 / rows + 1 / other_rows)
    return None if variance == 0 else (selected / rows - other_selected / other_rows) / math.sqrt(variance)


def more_selections(selected: int, rows: int, reference: float, share: float = 0.8) -> int:
    """Return how many more selections lift a group's rate to a share of the reference's rate; 0 where it is there."""
    return max(math.ceil(share * reference * rows - selected - 1e-9), 0)


def exact_tests(selected: int, rows: int, other_selected: int, other_rows: int) -> tuple[float, float | None]:
    """Return the two-sided p-values of Fisher's and of Boschloo's exact test of equal rates.

    Fisher's adds up all tables that are no likelier; Boschloo's is twice the smaller one-sided value.
    """
    try:
        from scipy.stats import boschloo_exact, fisher_exact
    except ImportError as error:
        raise MissingExtraError("scipy", "packs") from error
    counts = [[selected, other_selected], [rows - selected, other_rows - other_selected]]
    fisher = float(fisher_exact(counts)[1])
    small = rows * other_rows <= MOST_BOSCHLOO and 0 < selected + other_selected < rows + other_rows
    return fisher, float(boschloo_exact(counts).pvalue) if small else None
