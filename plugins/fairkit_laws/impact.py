"""Rates of selection and what the laws make of them: categories, impact ratios, tests, the unknown."""

from __future__ import annotations

from collections.abc import Sequence

from fairkit.packs import Cell, Column, Kind, PackTable
from fairkit_laws.context import Context, NotAnsweredError, Selected
from fairkit_laws.numbers import deviations, exact_tests, more_selections, ratio, ratio_interval

SMALL_SHARE = 0.02
"""A category with less than this share of the data may be left out under 6 RCNY 5-301(d).

In `adverse_impact` the share is of the audited people, and fairkit's own rule: 29 CFR 1607.15(A)(2)(a) means the share
of the labor force in the relevant area, or of the applicable workforce.
"""


def _columns_of(context: Context) -> list[str]:
    """Return the sensitive columns, single ones first, then intersections."""
    found = sorted(context.report.data.groups, key=lambda name: name.count("+"))
    if not found:
        raise NotAnsweredError("the audit has no sensitive column")
    return found


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
    if decided["favorable"] > decided["unfavorable"]:
        raise NotAnsweredError(
            f"{decided['favorable']:,} of {context.report.data.rows:,} people are above the threshold {cut:.6g}: it is "
            "not the median; `fairkit certify --pack nyc-ll144` without a threshold takes it"
        )
    return "scoring rate", f"Counted are scores above {cut:.6g}, the median score of the whole sample."


def _rates(
    context: Context, sensitive: str, label: str | None, word: str, note: str | None, *, leave_out: bool
) -> PackTable:
    groups, unknown = context.selected(sensitive, label), _unknown(context, sensitive)
    small = {one.group for one in groups if _share(one, groups, unknown) < SMALL_SHARE}
    out = small if leave_out else set()
    counted = [one for one in groups if one.group not in out]
    top = max(counted, key=lambda one: one.rate, default=None)
    rows: list[tuple[Cell, ...]] = []
    for selected in groups:
        known = top is not None and selected.group not in out
        value = ratio(selected.rate, top.rate) if known and top is not None else None
        pair = ratio_interval((selected.rate, selected.interval), (top.rate, top.interval)) if known and top else None
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
        Column("selected" if note is None else "above the median", "count"), Column(word, "percent"),
        Column("rate from", "percent"), Column("rate to", "percent"), Column("impact ratio", "ratio"),
        Column("ratio from", "ratio"), Column("ratio to", "ratio"),
    )  # fmt: skip
    title = sensitive if label is None else f"{sensitive}, put into {label}"
    return PackTable(title=title, columns=columns, rows=tuple(rows), notes=tuple(notes), origin="computed")


def _remarks(
    small: set[str], out: set[str], groups: Sequence[Selected], top: Selected | None, context: Context
) -> list[str]:
    said = []
    names = ", ".join(one.group for one in groups if one.group in small)
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
        kind = "sex" if any(one in _SEX for one in plain.values()) else "race/ethnicity"
        listed = _SEX if kind == "sex" else _RACE
        kinds |= {kind} if all(one in listed for one in plain.values()) else set()
        rows += [(column, label, kind if plain[label] in listed else None) for label in labels]
    odd = ", ".join(f"{column} {label}" for column, label, kind in rows if kind is None)
    if (odd or kinds != {"sex", "race/ethnicity"}) and not context.facts.get("category_labels"):
        missing = " and ".join(one for one in ("sex", "race/ethnicity") if one not in kinds)
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


def _threshold(context: Context) -> float | None:
    return next(iter(context.thresholds.values()), None)


def _impact(context: Context, sensitive: str) -> PackTable:
    groups, unknown = context.selected(sensitive), _unknown(context, sensitive)
    small = {one.group for one in groups if _share(one, groups, unknown) < SMALL_SHARE}
    reference = _reference(context, sensitive, groups, small)
    limit = _threshold(context)
    rows = tuple(_against(one, reference, limit, small=one.group in small) for one in groups)
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
    asked = context.facts.get("reference")
    for text in [] if asked is None else str(asked).split(","):
        column, _, name = text.strip().partition("=")
        if column == sensitive:
            named = next((one for one in groups if one.group == name), None)
            if named is None:
                raise NotAnsweredError(f"the reference group {name!r} of {sensitive} is not in the audit")
            return named
    large = [one for one in groups if one.group not in small] or list(groups)
    return max(large, key=lambda one: one.rate)


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
