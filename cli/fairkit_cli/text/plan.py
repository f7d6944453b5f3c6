"""A plan for the terminal: rows for each rule, and what an audit of that size can see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit.support.numbers import number
from fairkit_cli.fields import as_options
from fairkit_cli.terminal.plain import plain, to_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from fairkit.auditing.drawing import LabelPlan
    from fairkit.planning import Plan, RulePlan


def plan_text(plan: Plan, *, terminal: bool) -> str:
    """Return a plan as text, with colours on a terminal."""
    return to_text(_parts(plan), terminal=terminal)


def drawn_text(plan: LabelPlan, rows: Path, design: Path) -> str:
    """Return a plan of labels as text: how many of whom, and what to do next."""
    sensitive = plan.design["sensitive"]
    lines = [
        f"{len(plan.rows):,} rows to label in stage {plan.stage}, in {rows}",
        "",
        f"{sensitive}  refused  selected",
    ]
    width = max(len(sensitive), *(len(group) for group, _ in plan.counts))
    lines[-1] = f"{sensitive:{width}}  refused  selected"
    for group in dict.fromkeys(group for group, _ in plan.counts):
        lines.append(f"{group:{width}}  {plan.counts[group, 0]:7,}  {plan.counts[group, 1]:8,}")
    rules = " ".join(f"--for {rule}" for rule in plan.design["for"])
    later = (
        f"Then stage 2: fairkit plan TABLE --labels N {rules} --labelled {design} --stage 2 --draw second.csv"
        if plan.stage == 1
        else f"Then audit with --labelled {design}"
    )
    lines += [
        "",
        f"Seed {plan.design['seed']}, design in {design}: publish both before any outcome is looked up. Look up the "
        "outcomes of exactly these rows, and write down those that cannot be known, too.",
        f"{later}.",
    ]
    return "\n".join(lines) + "\n"


def explored_text(widths: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Return how wide differences are where so many refused people of each group are explored at random."""
    lines = ["Refused people of each group whose outcome is seen, chosen at random, and the width of the interval:", ""]
    for rule, each in widths.items():
        lines.append(f"{rule}")
        lines += [f"  {count:4}  {number(width)}" for count, width in each]
    lines += [
        "",
        "Refused people are taken to have a fifth to all of the selected ones' share of favorable outcomes: of "
        "these the widest.",
    ]
    return "\n".join(lines) + "\n"


def _parts(plan: Plan) -> list[RenderableType]:
    from rich.text import Text

    adjusted = f", adjusted for {len(plan.rules)} rules ({plan.adjustment})" if plan.adjustment else ""
    rows = f"{plan.rows:,} rows" if plan.rows is not None else "No affordable number of rows"
    what = "the policy" if len(plan.rules) == 1 else "the policy, all its rules at once,"
    parts: list[RenderableType] = [
        Text(f"{rows} decide {what} with {plan.power:.0%} chance", style="bold"),
        Text(f"at {plan.confidence:.0%} confidence{adjusted}, by fairkit {plan.fairkit}", style="dim"),
    ]
    for rule in plan.rules:
        parts += ["", *_rule(rule)]
    return parts


def _rule(plan: RulePlan) -> list[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    rule = plan.rule
    limit = rule.say()
    where = f" for {rule.sensitive}" if rule.sensitive else ""
    title = f"{rule.metric}{where} {limit}: {plan.side}, if it is {number(plan.value)}"
    parts: list[RenderableType] = [plain(title, "bold")]
    if plan.rows is not None:
        grid = Table(box=None, pad_edge=False)
        grid.add_column("group")
        grid.add_column("rows", justify="right")
        grid.add_column("rows that the rate is over", justify="right")
        for group in plan.groups:
            grid.add_row(plain(group.group), f"{group.rows:,}", f"{group.denominator:,}")
        grid.add_row("all", f"{plan.rows:,}", f"{sum(group.denominator for group in plan.groups):,}")
        parts.append(grid)
        parts += [Text(line) for line in _sentences(plan)]
    return [*parts, *(Text(f"· {as_options(note)}") for note in plan.notes)]


def _sentences(plan: RulePlan) -> list[str]:
    said = [f"With {plan.rows:,} rows the verdict is {plan.side} with {plan.power or 0:.0%} chance."]
    seen = plan.detectable
    if seen is not None:
        chance = f"with {seen.power:.0%} chance"
        passing, failing = ("up to", "from") if plan.rule.upper else ("from", "up to")
        least, most = seen.passes_up_to, seen.fails_from
        said.append(
            f"No number passes {chance}." if least is None else f"It passes {passing} {number(least)} {chance}."
        )
        said.append(f"No number fails {chance}." if most is None else f"It fails {failing} {number(most)} {chance}.")
    if plan.balanced_rows is not None and plan.rows and plan.balanced_rows < 0.8 * plan.rows:
        said.append(f"With as many rows of each group as it needs, about {plan.balanced_rows:,} rows do.")
    return said
