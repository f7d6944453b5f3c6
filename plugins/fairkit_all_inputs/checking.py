"""What a signed finding of `all-inputs` must be, whoever signed it: a proof of the version that is believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairkit.results.findings import Finding

VERSION = 2
"""Of what is proved and how. Version 1 trusted encoders that break the order of a column, and is refused."""


def contradictions(finding: Finding) -> Iterator[str]:
    """Yield why a finding is not believed."""
    if finding.evidence.get("version") != VERSION:
        yield (
            f"its proof is of version {finding.evidence.get('version', 1)}, and {VERSION} is believed: earlier ones "
            "may have trusted an encoder that breaks the order of a column; certify the model anew"
        )
