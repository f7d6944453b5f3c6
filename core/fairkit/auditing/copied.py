"""What copies of rows do to intervals: they are narrower than they should be."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from fairkit.results.policy import COPIES

if TYPE_CHECKING:
    from fairkit.data.copies import CopiedRows
    from fairkit.results.findings import Finding


def with_copies(finding: Finding, copied: CopiedRows) -> Finding:
    """Return a finding with evidence that its rows are copies: its verdict must hold for a wider interval, too.

    A number without an interval, or with a bound that is proved, is left as it is.
    """
    if finding.value is None or finding.interval is None or "proved" in finding.evidence:
        return finding
    told = {
        "low": finding.value,
        "high": finding.value,
        "stretch": math.sqrt(copied.factor),
        "reason": copied.reason,
        "binding": True,
    }
    return dataclasses.replace(finding, evidence={**finding.evidence, COPIES: told})


def copies_told(copied: CopiedRows, setting: str | None) -> str:
    """Return the sentence of a report about copies."""
    about = "they were said to be independent" if setting else "no verdict depends on them"
    return (
        f"Rows are copies of others: {copied.reason}. Intervals take all rows for different people, and are about "
        f"{math.sqrt(copied.factor):.2g} times too narrow if they are not; {about}."
    )
