"""Before and after for people: one line for each metric, with both intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairkit_cli.render import to_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fairkit.findings import Finding, Report
    from fairkit.mitigate import MitigationResult

_PERFORMANCE = (
    "accuracy",
    "balanced_accuracy",
    "roc_auc",
    "log_loss",
    "mean_absolute_error",
    "mean_squared_error",
    "r2_score",
)
_BETWEEN = (
    "demographic_parity_difference",
    "equal_opportunity_difference",
    "false_positive_rate_difference",
    "equalized_odds_difference",
    "accuracy_difference",
    "gap_max",
    "statistical_parity_ks",
    "worst_group_loss",
)


def comparison(result: MitigationResult, *, terminal: bool) -> str:
    """Give the table of a mitigation as text, with colours on a terminal."""
    return to_text(_parts(result), terminal=terminal)


def _parts(result: MitigationResult) -> list[RenderableType]:
    from rich.text import Text

    after = result.after
    head = (
        f"{result.plugin}: {result.train_rows:,} rows to learn from, {result.test_rows:,} rows to measure on"
    )
    parts: list[RenderableType] = [Text(head, style="bold"), ""]
    parts += _table("Performance", _pairs(result, _PERFORMANCE, between=False), after.confidence)
    parts += _table("Between groups", _pairs(result, _BETWEEN, between=True), after.confidence)
    if after.verdict is not None:
        parts.append(Text(f"Policy after: {after.verdict}", style="bold"))
        parts += [Text(f"  {rule.verdict}: {rule.reason}") for rule in after.policy]
    parts += [Text(f"· {note}") for note in dict.fromkeys([*result.notes, *after.data.notes])]
    return parts


def _pairs(
    result: MitigationResult, metrics: tuple[str, ...], *, between: bool
) -> list[tuple[Finding, Finding]]:
    """Match findings of both reports, in the order of the metrics."""
    before = {_key(finding): finding for finding in _group(result.before)}
    chosen = [
        (before[_key(finding)], finding)
        for finding in _group(result.after)
        if finding.metric in metrics
        and (finding.sensitive is not None) == between
        and _key(finding) in before
    ]
    return sorted(chosen, key=lambda pair: (pair[1].sensitive or "", metrics.index(pair[1].metric)))


def _group(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.auditor == "group"]


def _key(finding: Finding) -> tuple[str, str | None, str]:
    return finding.metric, finding.sensitive, str(finding.parameters.get("class", ""))


def _table(title: str, pairs: list[tuple[Finding, Finding]], confidence: float) -> list[RenderableType]:
    from rich.table import Table

    if not pairs:
        return []
    grid = Table(
        box=None, pad_edge=False, title_justify="left", title=f"{title} ({confidence:.0%} intervals)"
    )
    grid.title_style = "bold"
    grid.add_column("metric", no_wrap=True)
    if pairs[0][1].sensitive is not None:
        grid.add_column("groups of")
    grid.add_column("before", justify="right", no_wrap=True)
    grid.add_column("after", justify="right", no_wrap=True)
    grid.add_column("", no_wrap=True)
    for old, new in pairs:
        sensitive = [] if new.sensitive is None else [new.sensitive]
        label = f" ({new.parameters['class']})" if "class" in new.parameters else ""
        grid.add_row(new.metric + label, *sensitive, _cell(old), _cell(new), _direction(old, new))
    return [grid, ""]


def _cell(finding: Finding) -> str:
    if finding.value is None:
        return "-"
    if finding.interval is None:
        return f"{finding.value:.4f}"
    return f"{finding.value:.4f} [{finding.interval[0]:.4f}, {finding.interval[1]:.4f}]"


def _direction(old: Finding, new: Finding) -> str:
    """Say whether it became better or worse, where the metric has a direction."""
    if old.value is None or new.value is None or new.better == "none" or old.value == new.value:
        return ""
    return "better" if (new.value < old.value) == (new.better == "lower") else "worse"
