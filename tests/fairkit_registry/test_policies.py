"""What an alias asks, as it is written and read."""

from __future__ import annotations

import pytest

from fairkit_registry.policies import AliasPolicy

POLICY = AliasPolicy(rules=({"metric": "accuracy", "min": 0.9},), keys=("PEM",), machines=2, watch_keys=("other",))


def test_older_records_ask_for_less():
    old = {name: value for name, value in POLICY.to_dict().items() if name not in ("machines", "watch_keys")}
    assert AliasPolicy.from_dict(old) == AliasPolicy(rules=POLICY.rules, keys=POLICY.keys)
    assert AliasPolicy.from_dict(POLICY.to_dict()) == POLICY


@pytest.mark.parametrize("name", ["rules", "keys", "max_age_days", "data", "no_worse", "confidence", "checks", "open"])
def test_a_condition_that_was_taken_out_is_no_policy_without_it(name):
    record = POLICY.to_dict()
    del record[name]
    with pytest.raises(TypeError, match=name):
        AliasPolicy.from_dict(record)
