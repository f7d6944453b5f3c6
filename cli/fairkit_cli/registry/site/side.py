"""Any two versions of a model side by side: one page with the numbers of all of them, and a script that shows two."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from fairkit_cli.render.document import linked_page
from fairkit_cli.render.markup import Markup, name_of, tag
from fairkit_cli.verifier.bundle import script_json

if TYPE_CHECKING:
    from fairkit_cli.registry.site.gather import SeenModel

_DIGITS = 6


def compare_page(model: SeenModel) -> str:
    """Return the page."""
    numbers = [one.version.version for one in model.versions]
    after = numbers[0]
    pointed = [one.alias.version for one in model.aliases if one.alias.version not in (None, after)]
    before = next(iter(pointed), numbers[min(1, len(numbers) - 1)])
    fields = [
        tag(
            "label", f"{word} ",
            tag("input", type="number", id=key, min=str(numbers[-1]), max=str(after), value=str(value), step="1"),
            class_="filter",
        )
        for word, key, value in (("Version before", "before", before), ("Version after", "after", after))
    ]  # fmt: skip
    body = [
        tag("p", tag("a", "Model ", name_of(model.name), href="index.html"), class_="subject"),
        tag("h1", "Two versions of ", name_of(model.name)),
        tag("p", _HOW, class_="subject"),
        tag("noscript", tag("p", "This page needs its script. Without: fairkit registry diff NAME@1 NAME@2.")),
        tag("div", fields),
        tag("div", id="sides", role="status", aria_live="polite"),
        Markup(f'<script type="application/json" id="numbers">{script_json(data(model))}</script>'),
    ]
    return linked_page(f"Two versions of {model.name}", body, root="../../")


_HOW = (
    "The numbers are those of each version's newest certificate. The interval of a difference takes the two audits as "
    "independent; on the same table it is too wide. Each difference is judged by itself."
)


def data(model: SeenModel) -> dict[str, Any]:
    """Return the numbers of all versions: titles, which direction is better, and for each version its row.

    A row has the version, whether its evidence holds, verdict, day, digest of the table, the normal quantile of its
    confidence, and the numbers as index of the title, value and interval.
    """
    titles: dict[str, int] = {}
    better: list[str] = []
    rows: list[list[Any]] = []
    quantiles: dict[float, float] = {}
    for seen in model.versions:
        deciding = seen.deciding
        if deciding is None or not deciding.told:
            rows.append([seen.version.version, None])
            continue
        listed = []
        for title, value, low, high, direction in deciding.told["numbers"]:
            if title not in titles:
                titles[title] = len(titles)
                better.append(direction)
            listed.append([titles[title], *(_end(one) for one in (value, low, high))])
        confidence = deciding.told["confidence"]
        if confidence not in quantiles:
            quantiles[confidence] = NormalDist().inv_cdf(0.5 + confidence / 2)
        rows.append(
            [
                *(
                    seen.version.version,
                    deciding.holds,
                    deciding.verdict,
                    deciding.audited,
                    deciding.told["data"][1][:12],
                ),
                *(quantiles[confidence], listed),
            ]
        )
    return {"titles": list(titles), "better": better, "versions": rows}


def _end(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, _DIGITS)
