"""Bias audits that employers and vendors published under Local Law 144: their counts give their ratios.

The counts, ratios and numbers of unknown people are facts of the published summaries, taken from the data set of
Gerchick et al., Auditing the Audits (FAccT 2025), https://github.com/aclu-national/auditing-the-audits-facct-2025.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pytest

import fairkit
from fairkit_laws.impact import Context, selection_rates, unknown


class Row(NamedTuple):
    """A category: people, selected (or above the median), the printed rate and the printed ratio (None: left out)."""

    people: int
    selected: int
    rate: float
    ratio: float | None


class Published(NamedTuple):
    """A table of a summary: its source, its categories, and the people of unknown category (None: not printed)."""

    source: str
    rows: dict[str, Row]
    unknown: int | None = None
    decimals: int = 2


BLOOMBERG = "https://perma.cc/2EMX-WNYU"
"""Bloomberg, the tool of Plum, audited by Resolution Economics, 2023; historical data of 2021-12 to 2022-11."""
BEAMERY = "https://perma.cc/XWL9-F9WH"
"""Beamery, audited by Warden AI, 2024: a tool that scores."""
CIGNA = "https://perma.cc/8FUT-SLLJ"
"""Cigna, 2023. Its ratios are those of the printed, rounded rates."""

AUDITS = {
    "bloomberg-sex": Published(
        BLOOMBERG,
        {"Female": Row(2793, 2440, 0.87, 1.00), "Male": Row(5187, 4425, 0.85, 0.98)},
        813,
    ),
    "bloomberg-race": Published(
        BLOOMBERG,
        {
            "Asian": Row(3543, 3162, 0.89, 1.00), "Black or African American": Row(678, 542, 0.80, 0.90),
            "Hispanic or Latino": Row(937, 759, 0.81, 0.91), "Two or More Races": Row(264, 235, 0.89, 1.00),
            "White": Row(2274, 1934, 0.85, 0.94), "American Indian or Alaska Native": Row(11, 10, 0.91, None),
            "Native Hawaiian or Pacific Islander": Row(11, 10, 0.91, None),
        },
        1075,
    ),
    "bloomberg-both": Published(
        BLOOMBERG,
        {
            "Asian women": Row(1531, 1396, 0.91, 1.00), "Black women": Row(250, 189, 0.76, 0.83),
            "Hispanic women": Row(290, 237, 0.82, 0.90), "White women": Row(582, 492, 0.85, 0.93),
            "Asian men": Row(1996, 1751, 0.88, 0.96), "Black men": Row(425, 350, 0.82, 0.90),
            "Men of two races": Row(200, 177, 0.89, 0.97), "Hispanic men": Row(645, 520, 0.81, 0.88),
            "White men": Row(1682, 1432, 0.85, 0.93), "Native American women": Row(1, 1, 1.00, None),
            "Pacific women": Row(3, 3, 1.00, None), "Women of two races": Row(59, 54, 0.92, None),
            "Native American men": Row(10, 9, 0.90, None), "Pacific men": Row(8, 7, 0.88, None),
        },
        1111,
    ),
    "beamery-sex": Published(
        BEAMERY,
        {"Female": Row(2828, 1424, 0.504, 1.00), "Male": Row(2632, 1306, 0.496, 0.99)},
        decimals=3,
    ),
    "beamery-race": Published(
        BEAMERY,
        {
            "Asian": Row(1312, 653, 0.498, 0.97), "Black or African American": Row(1284, 662, 0.516, 1.00),
            "Hispanic or Latino": Row(1324, 667, 0.504, 0.98), "White": Row(1540, 748, 0.486, 0.94),
        },
        decimals=3,
    ),
    "beamery-both": Published(
        BEAMERY,
        {
            "Asian women": Row(616, 309, 0.502, 0.92), "Asian men": Row(696, 344, 0.494, 0.91),
            "Black women": Row(752, 385, 0.512, 0.94), "Black men": Row(532, 277, 0.521, 0.96),
            "Hispanic women": Row(680, 370, 0.544, 1.00), "Hispanic men": Row(644, 297, 0.461, 0.85),
            "White women": Row(780, 360, 0.462, 0.85), "White men": Row(760, 388, 0.511, 0.94),
        },
        decimals=3,
    ),
    "cigna-race": Published(
        CIGNA,
        {
            "Hispanic or Latino": Row(200, 165, 0.83, 0.97), "White": Row(434, 320, 0.74, 0.86),
            "Black or African American": Row(305, 238, 0.78, 0.91), "Asian": Row(133, 115, 0.86, 1.00),
            "American Indian or Alaska Native": Row(4, 2, 0.50, 0.58), "Two or More Races": Row(59, 43, 0.73, 0.85),
        },
    ),
}  # fmt: skip
EXCEPTIONS = {
    ("bloomberg-race", "White"): 0.953,
    ("cigna-race", "Hispanic or Latino"): 0.954,
    ("cigna-race", "White"): 0.853,
    ("cigna-race", "Black or African American"): 0.902,
    ("cigna-race", "Two or More Races"): 0.843,
}
"""What the counts give where another ratio is printed. Cigna's divide rounded rates."""


def table(audit: Published) -> pa.Table:
    groups: list[str | None] = []
    chosen: list[int] = []
    for name, row in audit.rows.items():
        groups += [name] * row.people
        chosen += [1] * row.selected + [0] * (row.people - row.selected)
    groups += [None] * (audit.unknown or 0)
    chosen += [0] * (audit.unknown or 0)
    return pa.table({"category": pa.array(groups, pa.string()), "chosen": chosen})


@pytest.mark.parametrize("name", AUDITS)
def test_the_counts_of_a_published_audit_give_its_ratios(name: str):
    audit = AUDITS[name]
    data = fairkit.load_data(table(audit), sensitive=["category"], predictions={"decision": "chosen"})
    left_out = any(row.ratio is None for row in audit.rows.values())
    facts = {"exclude_small_categories": True, "exclusion_justification": "small"} if left_out else {}
    context = Context(report=fairkit.audit(None, data), facts=facts)
    (found,) = selection_rates(context)
    names = [column.name for column in found.columns]
    shown = {row[0]: dict(zip(names, row, strict=True)) for row in found.rows}
    for group, row in audit.rows.items():
        assert shown[group]["people"] == row.people
        assert shown[group]["selected"] == row.selected
        assert shown[group]["selection rate"] == pytest.approx(row.rate, abs=0.51 * 10**-audit.decimals)
        if row.ratio is None:
            assert shown[group]["impact ratio"] is None  # less than 2 % of the data, those of unknown category counted
        elif (name, group) in EXCEPTIONS:
            assert shown[group]["impact ratio"] == pytest.approx(EXCEPTIONS[name, group], abs=0.0005)
            assert shown[group]["impact ratio"] == pytest.approx(row.ratio, abs=0.02)
        else:
            assert shown[group]["impact ratio"] == pytest.approx(row.ratio, abs=0.00501)
    assert unknown(context)[0].rows == (("category", audit.unknown or 0),)
