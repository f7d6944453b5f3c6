"""Counts of hashes that occur more than once, against counting all of them."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit.data.duplicate_rows import MOST, Repeats
from fairkit.data.hashing import mixed


@pytest.mark.parametrize("different", [1, 50, 20_000, 300_000])
@pytest.mark.parametrize("joined", [False, True])
def test_kept_hashes_have_all_their_copies(different, joined):
    rng = np.random.default_rng(different)
    parts = [mixed(rng.integers(0, different, rows).astype(np.uint64)) for rows in (0, 1, 5_000, 65_536, 30_000)]
    found = Repeats()
    for part in parts:
        if joined:
            other = Repeats()
            other.update(part)
            found += other
        else:
            found.update(part)
    keys, counts = np.unique(np.concatenate(parts), return_counts=True)
    kept = keys >> np.uint64(64 - found.shift) == 0 if found.shift else np.full(len(keys), True)
    assert (found.shift > 0) == (len(keys) > MOST)
    assert found.keys.tolist() == keys[kept].tolist()
    assert found.counts.tolist() == counts[kept].tolist()
    assert found.rows == sum(map(len, parts))
