"""Retraining: how far numbers go over several trainings, of a method and of a frontier's points."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import fairkit
from fairkit.data.table import Table
from fairkit.datasets.loans import loans_table
from fairkit.frontiers.run import frontier
from fairkit.frontiers.sweeps import Sweep
from fairkit.mitigation.repeats import drawn_anew, gathered
from fairkit_cli.html.comparison import mitigation_page
from fairkit_cli.html.frontier import frontier_page
from fairkit_cli.main import app
from fairkit_cli.text.comparison import comparison
from fairkit_cli.text.frontier import frontier_text

SMALL = {"learner": "logistic", "threads": 1}


def _loans(rows: int = 900, seed: int = 1) -> fairkit.Dataset:
    return fairkit.load_data(
        loans_table(rows, seed), label="decision", favorable="approved", sensitive=["sex"], name="loans"
    )


def test_repeats_train_on_rows_drawn_anew_and_measure_on_the_same():
    once = fairkit.mitigate("reweigh", _loans(), **SMALL)
    many = fairkit.mitigate("reweigh", _loans(), repeats=3, **SMALL)
    assert many.sha256 == once.sha256
    assert many.after.to_dict() == once.after.to_dict()
    assert once.repeats == ()
    assert "repeats" not in once.to_dict()
    found = {(one.metric, one.sensitive): one for one in many.repeats}
    gap = found["demographic_parity_difference", "sex"]
    assert len(gap.values) == 3
    assert gap.values[0] == many.after.find("demographic_parity_difference", "sex").value
    assert gap.deviation == pytest.approx(np.std(gap.values, ddof=1))
    assert len(set(found["log_loss", None].values)) == 3
    again = fairkit.mitigate("reweigh", _loans(), repeats=3, **SMALL)
    assert again.to_dict() == many.to_dict()
    assert json.loads(json.dumps(many.to_dict()))["repeats"][0]["values"]


def test_the_spread_is_that_of_training_on_other_rows():
    """A "model" that knows the mean of its training rows spreads by the mean's standard error."""
    from dataclasses import replace

    from fairkit.mitigation.repeats import retrained

    table = Table.from_dataset(_loans(400))
    report = fairkit.mitigate("reweigh", _loans(), **SMALL).after
    finding = replace(report.find("accuracy"), value=float(table.target.mean()))

    def train(drawn: Table, seed: int) -> fairkit.Report:
        return replace(report, findings=(replace(finding, value=float(drawn.target.mean())),))

    (one,), _ = retrained(200, 0, table, replace(report, findings=(finding,)), train)
    share = table.target.mean()
    assert one.deviation == pytest.approx((share * (1 - share) / 400) ** 0.5, rel=0.15)


def test_rows_are_drawn_with_replacement_and_seeded():
    table = Table.from_dataset(_loans())
    one, two, other = drawn_anew(table, 1), drawn_anew(table, 1), drawn_anew(table, 2)
    assert len(one) == len(table)
    assert np.array_equal(one.target, two.target)
    assert not np.array_equal(one.columns["income"], other.columns["income"])
    assert len(np.unique(one.columns["income"])) < 0.75 * len(np.unique(table.columns["income"]))


def test_a_training_that_fails_is_a_note():
    from fairkit.mitigation.repeats import retrained

    report = fairkit.mitigate("reweigh", _loans(), **SMALL).after

    def train(table: Table, seed: int) -> fairkit.Report:
        if seed == 8:
            raise fairkit.DataError("no row of a group")
        return report

    found, notes = retrained(4, 7, Table.from_dataset(_loans()), report, train)
    assert len(found[0].values) == 3
    assert "Training 2 of 4" in notes[0]
    assert gathered([report])


def test_the_pages_show_how_far_retraining_goes():
    result = fairkit.mitigate("reweigh", _loans(), repeats=3, **SMALL)
    for text in (comparison(result, terminal=False), mitigation_page(result)):
        flat = " ".join(text.split())
        assert "Trained 3 times, on rows drawn anew: no interval covers this" in flat
        assert "standard deviation" in flat


def test_a_frontier_trains_its_front_again():
    sweep = Sweep(plugin="reweigh", vary={"strength": [0, 1]})
    once = frontier((sweep,), _loans(), jobs=1, **SMALL)
    many = frontier((sweep,), _loans(), jobs=1, repeats=3, **SMALL)
    assert many.points[1].sha256 == once.points[1].sha256
    assert set(many.repeats) == {*many.front, many.chosen}
    for place, values in many.repeats.items():
        x, y = many.axes(many.points[place])
        assert len(values) == 3
        assert values[0] == (x.value, y.value)
        assert len(set(values)) > 1
    assert "repeats" in many.to_dict()
    assert "repeats" not in once.to_dict()
    for text in (frontier_text(many, terminal=False), frontier_page(many)):
        assert "Each trained 3 times, on rows drawn anew" in " ".join(text.split())


@pytest.mark.parametrize("repeats", [0, -1])
def test_fewer_than_one_training_is_refused(repeats):
    with pytest.raises(fairkit.ParameterError, match="repeats"):
        fairkit.mitigate("reweigh", _loans(), repeats=repeats, **SMALL)
    with pytest.raises(fairkit.ParameterError, match="repeats"):
        frontier((Sweep(plugin="reweigh", vary={"strength": [0]}),), _loans(), repeats=repeats)


def test_a_cluster_does_not_repeat():
    with pytest.raises(fairkit.ParameterError, match="this machine only"):
        fairkit.mitigate("fairgbm", _loans(), repeats=2, engine="dask")


def test_the_command_takes_repeats(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(loans_table(600, 1), tmp_path / "loans.parquet")
    told = ["--data", str(tmp_path / "loans.parquet"), "--label", "decision", "--favorable", "approved",
            "--sensitive", "sex", "--learner", "logistic", "--repeats", "2"]  # fmt: skip
    found = CliRunner().invoke(
        app,
        ["mitigate", "--plugin", "reweigh", "--output", str(tmp_path / "m.onnx"), "--format", "json", *told],
    )
    assert found.exit_code == 0, found.output
    assert len(json.loads(found.stdout)["repeats"][0]["values"]) == 2
