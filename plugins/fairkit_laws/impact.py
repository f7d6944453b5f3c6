"""Rates of selection and what the laws make of them: categories, impact ratios, tests, the unknown."""

from __future__ import annotations

from collections.abc import Sequence

from fairkit.packs import Cell, Column, Kind, PackTable
from fairkit_laws.context import Context, NotAnsweredError, Selected
from fairkit_laws.numbers import deviations, exact_tests, more_selections, ratio, ratio_interval

SMALL_SHARE = 0.02
"""A category with less than this share of the data may be left out: 6 RCNY 5-301(d); 29 CFR 1607.15(A)(2)(a)."""
FOUR_FIFTHS = 0.8


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
    stay.
    """
    word, note = _rate_of(context)
    leave_out = bool(context.facts.get("exclude_small_categories"))
    if leave_out and not context.facts.get("exclusion_justification"):
        raise NotAnsweredError("small categories are to be left out, and no justification is stated")
    return [_rates(context, sensitive, word, note, leave_out=leave_out) for sensitive in _columns_of(context)]


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


def _rates(context: Context, sensitive: str, word: str, note: str | None, *, leave_out: bool) -> PackTable:
    groups, unknown = context.selected(sensitive), _unknown(context, sensitive)
    small = {one.group for one in groups if _share(one, groups, unknown) < SMALL_SHARE}
    out = small if leave_out else set()
    counted = [one for one in groups if one.group not in out]
    top = max(counted, key=lambda one: one.rate, default=None)
    rows: list[tuple[Cell, ...]] = []
    for one in groups:
        known = top is not None and one.group not in out
        value = ratio(one.rate, top.rate) if known and top is not None else None
        pair = ratio_interval((one.rate, one.interval), (top.rate, top.interval)) if known and top else None
        own = top is not None and one.group == top.group
        rows.append(
            (
                one.group,
                one.rows,
                one.count,
                one.rate,
                *_ends(one.interval),
                value,
                *_ends(None if own else pair),
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
    return PackTable(title=sensitive, columns=columns, rows=tuple(rows), notes=tuple(notes), computed=True)


def _remarks(
    small: set[str], out: set[str], groups: Sequence[Selected], top: Selected | None, context: Context
) -> list[str]:
    said = []
    names = ", ".join(one.group for one in groups if one.group in small)
    if out:
        why = context.facts["exclusion_justification"]
        said.append(f"Left out of the ratios, with less than 2 % of the data: {names}. Justification: {why}")
    elif small:
        said.append(f"With less than 2 % of the data, and in the ratios all the same: {names}.")
    if top is None or top.rate == 0:
        said.append("Nobody was selected in any category: no ratio is defined.")
    elif top.group in small:
        said.append(
            f"The highest rate is that of {top.group}, which has {top.rows:,} people: see its interval."
        )
    return said


def unknown(context: Context) -> list[PackTable]:
    """Return how many people are in no category, by sensitive column."""
    rows = tuple((name, _unknown(context, name)) for name in _columns_of(context))
    notes = ("They are in no rate and no ratio.",)
    columns = (Column("category"), Column("people of unknown category", "count"))
    return [PackTable(title="Unknown categories", columns=columns, rows=rows, notes=notes)]


def adverse_impact(context: Context) -> list[PackTable]:
    """Return each group against the group with the highest rate, or the one that the fact `reference` names.

    Ratio with interval, exact tests, standard deviations, and how many more selections four fifths would take. Groups
    with less than 2 % of the people are shown without a determination.
    """
    return [_impact(context, sensitive) for sensitive in _columns_of(context)]


def _impact(context: Context, sensitive: str) -> PackTable:
    groups, unknown = context.selected(sensitive), _unknown(context, sensitive)
    small = {one.group for one in groups if _share(one, groups, unknown) < SMALL_SHARE}
    reference = _reference(context, sensitive, groups, small)
    rows = tuple(_against(one, reference, small=one.group in small) for one in groups)
    notes = [f"Compared with {reference.group}, {_why(context, sensitive)}."]
    if unknown:
        notes.append(f"{unknown:,} people whose {sensitive} is unknown are in no comparison.")
    if any(row[8] is None and row[7] is not None for row in rows):
        notes.append(
            "Boschloo's test is left out for large groups, where it takes too long, and where nobody differs."
        )
    columns = (
        Column(sensitive), Column("people", "count"), Column("selected", "count"), Column("rate", "percent"),
        Column("ratio", "ratio"), Column("ratio from", "ratio"), Column("ratio to", "ratio"), Column("Fisher p", "p"),
        Column("Boschloo p", "p"), Column("standard deviations", "number"), Column("more selections to 4/5", "count"),
        Column("reading"),
    )  # fmt: skip
    return PackTable(title=sensitive, columns=columns, rows=rows, notes=tuple(notes), computed=True)


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
    return "as named" if sensitive in named else "the group of at least 2 % with the highest rate"


def _against(one: Selected, reference: Selected, *, small: bool) -> tuple[Cell, ...]:
    head = (one.group, one.rows, one.count, one.rate)
    if one.group == reference.group:
        return (*head, 1.0, None, None, None, None, None, 0, "the group that others are compared with")
    value = ratio(one.rate, reference.rate)
    pair = ratio_interval((one.rate, one.interval), (reference.rate, reference.interval))
    fisher, boschloo = exact_tests(one.count, one.rows, reference.count, reference.rows)
    apart = deviations(one.count, one.rows, reference.count, reference.rows)
    more = more_selections(one.count, one.rows, reference.rate, FOUR_FIFTHS)
    said = "less than 2 % of the people: no determination" if small else _reading(value, fisher, apart)
    return (*head, value, *_ends(pair), fisher, boschloo, apart, more, said)


def _reading(value: float | None, fisher: float, apart: float | None) -> str:
    """Say what the guidelines make of a ratio and its test: no sentence of them stands alone."""
    significant = fisher < 0.05 and apart is not None and abs(apart) >= 2
    if value is None:
        return "the reference rate is 0: no ratio"
    if value < FOUR_FIFTHS:
        if significant:
            return "below four fifths and significant: generally regarded as evidence of adverse impact"
        return "below four fifths, not significant: may rest on small numbers"
    if significant and value < 1:
        return "at least four fifths, yet significant: may be adverse impact all the same"
    return "at least four fifths, not significant" if not significant else "not below the reference"


def against_reference(context: Context) -> list[PackTable]:
    """Return the signed impact ratios and standardized mean differences against each reference group."""
    found = []
    for one in context.report.findings:
        if (
            one.metric in ("impact_ratio", "standardized_mean_difference")
            and one.reference
            and not one.within
        ):
            kind: Kind = "ratio" if one.metric == "impact_ratio" else "number"
            columns = (
                Column(str(one.sensitive)), Column("people", "count"), Column(one.metric.replace("_", " "), kind),
                Column("from", kind), Column("to", kind),
            )  # fmt: skip
            rows = tuple((g.group, g.rows, g.value, *_ends(g.interval)) for g in one.groups)
            title = f"{one.sensitive} against {one.reference}: {one.metric.replace('_', ' ')}"
            found.append(PackTable(title=title, columns=columns, rows=rows))
    if not found:
        raise NotAnsweredError(
            "the audit names no reference group: `fairkit certify --pack ecoa` takes the highest rate"
        )
    return found


_BETWEEN_ALL = ("demographic_parity_difference", "odds_ratio")
_AGAINST = ("impact_ratio", "standardized_mean_difference")


def within_bands(context: Context) -> list[PackTable]:
    """Return what lenders compare inside the strata that the audit was asked for, pooled over the strata.

    Impact ratios and standardized mean differences of each group against its reference; differences and odds ratios
    between all groups.
    """
    rows: list[tuple[Cell, ...]] = []
    for one in context.report.findings:
        if not one.within:
            continue
        head = (str(one.sensitive), "+".join(one.within))
        if one.reference is None and one.metric in _BETWEEN_ALL:
            rows.append((*head, "all", one.metric.replace("_", " "), one.value, *_ends(one.interval)))
        elif one.reference is not None and one.metric in _AGAINST:
            word = f"{one.metric.replace('_', ' ')} to {one.reference}"
            rows += [(*head, g.group, word, g.value, *_ends(g.interval)) for g in one.groups]
    if not rows:
        raise NotAnsweredError(
            "the audit has no strata: `fairkit certify --within BAND`, of scores or products"
        )
    columns = (
        Column("groups of"), Column("inside"), Column("group"), Column("metric"), Column("pooled", "number"),
        Column("from", "number"), Column("to", "number"),
    )  # fmt: skip
    return [PackTable(title="Inside bands, pooled", columns=columns, rows=tuple(rows))]
