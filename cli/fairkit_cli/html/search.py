"""The section about a search under a policy: the path from the base to the pick, the picture, and the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit_cli.html import charts
from fairkit_cli.html.markup import Markup, label, tag
from fairkit_cli.html.page import figure, section, table
from fairkit_cli.html.svg import draw
from fairkit_cli.text.numbers import number
from fairkit_cli.text.search import columns_of, path_told, rows_of

if TYPE_CHECKING:
    from fairkit_repair.mitigation.run import MitigationResult
    from fairkit_repair.searches import Alternative, Search


def search_section(result: MitigationResult) -> Markup | None:
    """Tell, draw and list a search; None where there was none."""
    search = result.search
    if search is None:
        return None
    after = result.after
    looked = f"The one look at the test rows: {after.verdict}. " + " ".join(
        f"{rule.reason[:1].upper()}{rule.reason[1:]}." for rule in after.policy
    )
    steps = [*path_told(search, result.changes), looked]
    rows = rows_of(search.alternatives)
    columns = (*columns_of(search)[:-1], "what became of it")
    return section(
        "From the base to the pick",
        tag("ol", [tag("li", step) for step in steps]),
        _picture(search, table(columns, rows, numeric={1, 2, 3, 4}, label="Alternatives")),
        tag(
            "p",
            "The chance of passing is predicted from rows that the alternative's model did not see: audits of as many "
            "rows as the test has are drawn from what these rows say, and each drawn audit is judged as the real one "
            "is. No repair was measured on the test rows before it was picked.",
        ),
    )


def _picture(search: Search, numbers: Markup) -> Markup:
    name = next(iter(search.choice.values))
    methods = list(dict.fromkeys(one.method for one in search.measured))
    values = [_point(one, name, methods, search) for one in search.measured if name in one.values]
    title = f"{search.performance} against {name} of {len(values)} alternatives"
    pictures = [
        draw(
            charts.tradeoff(values, name, search.performance, narrow=narrow),
            title=title,
            class_="narrow" if narrow else "wide",
        )
        for narrow in (False, True)
    ]
    marks = tag(
        "p", "The ring marks the pick; better is up and to the left. Methods: ", ", ".join(methods), "."
    )
    return figure(
        [marks, *pictures],
        "Alternatives on training rows" if search.given else "Alternatives on rows outside training",
        numbers,
    )


def _point(alternative: Alternative, name: str, methods: list[str], search: Search) -> dict[str, Any]:
    x, y = alternative.values[name], alternative.accuracy or 0.0
    return {
        "x": x, "x0": x, "x1": x, "y": y, "y0": y, "y1": y,
        "g": str(methods.index(alternative.method) % len(charts.COLOURS)), "front": False,
        "picked": alternative is search.choice,
        "tip": f"{label(alternative.name, 80)}: {search.performance} {number(y)}, {name} {number(x)}, chance of "
        "passing "
        f"{alternative.chance:.2f}",
    }  # fmt: skip
