"""Groups of few people have no numbers of their own: they are one group, and the numbers are that group's."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fairkit
from fairkit.data.roles import SMALL_GROUPS

SIZES = {"a": 900, "b": 400, "c": 60, "d": 12, "e": 7, "f": 3}
PREDICTED = {"decision": "approved"}


def table(sizes=SIZES, seed=0):
    import pandas as pd

    rng = np.random.default_rng(seed)
    race = np.repeat(list(sizes), list(sizes.values()))
    rate = np.linspace(0.3, 0.7, len(sizes))[np.searchsorted(list(sizes), race)]
    frame = pd.DataFrame({"race": race, "sex": rng.choice(["f", "m"], len(race)), "y": rng.integers(0, 2, len(race))})
    return frame.assign(approved=(rng.random(len(race)) < rate).astype(int)).sample(frac=1, random_state=seed)


def audited(frame, **roles):
    given = {"label": "y", "favorable": 1, "sensitive": ["race"], "predictions": PREDICTED} | roles
    return fairkit.audit(None, fairkit.load_data(frame, **given))


def groups_of(report, column="race"):
    return dict(report.data.groups[column])


def test_the_numbers_are_those_of_a_table_that_has_one_value_for_them():
    frame = table()
    merged = frame.assign(race=frame.race.replace({"d": "~", "e": "~", "f": "~"}))
    found, wanted = audited(frame, counts_from=20), audited(merged)
    assert groups_of(found) == {"a": 900, "b": 400, "c": 60, SMALL_GROUPS: 22}
    assert len(found.findings) == len(wanted.findings)
    for one, other in zip(found.findings, wanted.findings, strict=True):
        assert (one.metric, one.value, one.interval) == (other.metric, other.value, other.interval)
    assert any("3 groups of race are one group, '(small groups)'" in note for note in found.data.notes)
    text = json.dumps(found.to_dict())
    assert all(f'"{name}"' not in text for name in "def")


@pytest.mark.parametrize(
    ("sizes", "least", "left"),
    [
        # one small group alone would be what the others leave of the whole: the next larger one joins it
        ({"a": 900, "b": 400, "c": 60, "d": 12}, 20, {"a": 900, "b": 400, SMALL_GROUPS: 72}),
        ({"a": 900, "b": 400, "c": 25, "d": 9, "e": 8}, 20, {"a": 900, "b": 400, SMALL_GROUPS: 42}),
        ({"a": 900, "b": 400, "c": 60}, 20, {"a": 900, "b": 400, "c": 60}),
        ({"a": 900, "b": 400, "c": 20}, 20, {"a": 900, "b": 400, "c": 20}),
    ],
)
def test_the_joined_group_is_large_enough_and_hides_two_at_least(sizes, least, left):
    assert groups_of(audited(table(sizes), counts_from=least)) == left


def test_small_intersections_are_one_group_in_batches_too(tmp_path):
    frame = table()
    report = audited(frame, sensitive=["race+sex", "sex"], counts_from=20)
    cells = frame.groupby(["race", "sex"]).size()
    small = int(cells[cells < 20].sum())
    assert groups_of(report, "race+sex")[SMALL_GROUPS] == small
    assert min(groups_of(report, "race+sex").values()) >= 20
    assert SMALL_GROUPS not in groups_of(report, "sex")
    path = tmp_path / "t.parquet"
    frame.to_parquet(path, row_group_size=100)
    again = audited(path, sensitive=["race+sex", "sex"], counts_from=20)
    assert [one.value for one in again.findings] == [one.value for one in report.findings]


def test_numbers_that_leave_no_group_are_refused():
    with pytest.raises(fairkit.DataError, match="has one group only; choose a smaller number"):
        audited(table(), counts_from=1_000)
    with pytest.raises(fairkit.DataError, match="counts_from=-1 is not a number of rows"):
        audited(table(), counts_from=-1)
    data = fairkit.load_data(table(), label="y", favorable=1, sensitive=["race"], counts_from=20)
    with pytest.raises(fairkit.DataError, match="counts_from is for audits"):
        fairkit.mitigate("reweigh", data)


def test_a_comparison_with_a_group_that_is_joined_says_so():
    with pytest.raises(
        fairkit.DataError,
        match=r"'race=f' names a group that has no rows. The groups of 'race' are: \(small groups\), a, b, c",
    ):
        audited(table(), counts_from=20, reference=["race=f"])
