"""Graduate admissions at Berkeley in the autumn of 1973: 4,526 applications to the six largest departments.

The counts are published (Bickel, Hammel & O'Connell 1975, Science 187; Freedman, Pisani & Purves, Statistics,
chapter 2).
Taken as a whole fewer women than men were admitted; inside the departments they were not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

COUNTS = {
    "A": {"male": (512, 313), "female": (89, 19)},
    "B": {"male": (353, 207), "female": (17, 8)},
    "C": {"male": (120, 205), "female": (202, 391)},
    "D": {"male": (138, 279), "female": (131, 244)},
    "E": {"male": (53, 138), "female": (94, 299)},
    "F": {"male": (22, 351), "female": (24, 317)},
}
"""Admitted and rejected applications, by department and sex."""


def admissions_table() -> pa.Table:
    """Return one row for each application: ``sex``, ``department``, and ``admitted``, which is 1 or 0."""
    import pyarrow as pa

    cells = [
        (sex, department, admitted, rows)
        for department, sexes in COUNTS.items()
        for sex, (yes, no) in sexes.items()
        for admitted, rows in ((1, yes), (0, no))
    ]
    return pa.table(
        {
            "sex": [sex for sex, _, _, rows in cells for _ in range(rows)],
            "department": [department for _, department, _, rows in cells for _ in range(rows)],
            "admitted": [admitted for _, _, admitted, rows in cells for _ in range(rows)],
        }
    )
