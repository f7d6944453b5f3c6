"""Outputs that are too far apart to be squared are refused with a sentence."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit.errors import DataError
from fairkit_similarity.transport import Support


def test_gaps_whose_square_no_number_holds_are_refused() -> None:
    support = Support(np.arange(6.0).reshape(3, 2))
    with pytest.raises(DataError, match="larger unit"):
        support.outputs(np.zeros(3), np.array([0.0, 1e200, 0.0]), kind="squared")
