"""Reports and comparisons as data frames of pandas and of others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fairkit


@pytest.fixture(scope="module")
def both(loans_model):
    """A report, and a comparison of the model with itself."""
    data = fairkit.load_data(
        loans_model.data, label="decision", favorable="approved", sensitive="sex", reference="sex=@largest"
    )
    return fairkit.audit(loans_model.path, data), fairkit.compare([loans_model.path] * 2, data)


def test_a_report_is_a_frame_with_a_line_for_each_finding(both):
    report, _ = both
    frame = report.to_frame()
    assert len(frame) == len(report.findings)
    line = frame.query("metric == 'demographic_parity_difference' and reference.isna()").iloc[0]
    finding = report.find("demographic_parity_difference", "sex")
    assert (line["value"], line["low"], line["high"]) == (finding.value, *finding.interval)
    assert set(frame["sensitive"].dropna()) == {"sex"}
    groups = report.groups_frame().query("metric == 'demographic_parity_difference' and reference.isna()")
    assert groups["rows"].sum() == report.data.rows
    assert (groups["low"] < groups["value"]).all()


def test_everybody_with_arrow_takes_a_result(both):
    report, comparison = both
    assert pa.table(report).num_rows == len(report.findings)
    polars = pytest.importorskip("polars")
    found = polars.DataFrame(comparison)
    assert found.height == len(comparison.changes[0])
    assert np.abs(found["difference"].drop_nulls()).max() == 0
    assert set(found["outcome"]) <= {"same", "undecided"}


def test_repr_is_a_line(both):
    for one in both:
        assert "\n" not in repr(one)
        assert len(repr(one)) < 300
    assert "findings" in repr(both[0])
