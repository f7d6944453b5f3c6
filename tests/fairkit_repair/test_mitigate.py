from __future__ import annotations

import json
import os
import sys
import textwrap
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fairkit
from fairkit.data.table import intersect
from fairkit.errors import FairkitError, ParameterError, PluginError
from fairkit.fitted import FittedModel
from fairkit.mitigators import Mitigator, Table
from fairkit.parameters import parameter
from fairkit.results.rules import Rule
from fairkit_repair.learners import fit_learner
from fairkit_repair.mitigation.choose import as_mitigator, find_mitigator, split_dataset, strata_of, stratified
from fairkit_repair.mitigation.run import mitigate


def people(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(np.array(["f", "m"], dtype=object), n)
    age = rng.integers(18, 80, n)
    x = rng.normal(size=n)
    good = x - 1.0 * (sex == "f") + rng.logistic(size=n) > 0
    return {"sex": sex, "age": age, "x": x, "good": np.where(good, "yes", "no").astype(object)}


def data(n=1500, seed=0, **changes):
    roles = {"label": "good", "favorable": "yes", "sensitive": ["sex"], "name": "people"} | changes
    return fairkit.load_data(people(n, seed), **roles)


class Tilt(Mitigator):
    """Weights rows: a method small enough for a test."""

    name = "tilt"
    stage = "pre"
    learners = ("logistic", "lightgbm")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """Parameters."""

        strength: float = parameter(1.0, help="How much.", minimum=0, maximum=10)

    def fit(self, table, run, *, validation=None, model=None):
        run.progress("training", 1, 1, loss=0.5)
        groups = table.only_groups()
        weight = 1 + self.parameters.strength * ((groups.codes == 0) & (table.target == 1))
        return fit_learner(self.learner(run), table.with_weights(weight), run)


class Repair(Tilt):
    """Pretends to repair."""

    name = "repair"
    stage = "post"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare(FittedModel):
    """What a first method needs: five names."""

    inner: Any
    details: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def predict(self, columns):
        return self.inner.predict(columns)

    def to_onnx(self):
        return self.inner.to_onnx()


class Talking(Bare):
    """Meets the other contracts by having their methods."""

    def held_out(self, table, confidence):
        return {"rows": len(table), "notes": ["Measured by the method."]}

    def audits(self, folder):
        return {"consistency": {"sensitive": ("sex",)}}

    def attachments(self, details):
        return {".told.txt": f"{details['rows']} rows"}


def bare(kind):
    class Method(Tilt):
        name = "tilt"

        def fit(self, table, run, *, validation=None, model=None):
            return kind(inner=super().fit(table, run), details={})

    return Method


def test_a_first_method_needs_five_names(tmp_path):
    result = mitigate(bare(Bare), data(), output=tmp_path / "fair.onnx")
    assert {path.name for path in tmp_path.iterdir()} == {"fair.onnx"}
    assert {finding.auditor for finding in result.after.findings} == {"group"}
    assert result.details == {}


def test_who_has_the_method_meets_the_contract(tmp_path):
    result = mitigate(bare(Talking), data(), output=tmp_path / "fair.onnx")
    assert (tmp_path / "fair.told.txt").read_text() == f"{result.test_rows} rows"
    assert {finding.auditor for finding in result.after.findings} == {"group", "consistency"}
    assert "Measured by the method." in result.notes


def test_before_and_after_are_audits_of_the_same_held_out_rows():
    result = mitigate(Tilt, data(), strength=2.0)
    assert result.parameters == {"strength": 2.0}
    assert result.test_rows == 300
    assert result.train_rows == 1200
    assert result.before.data == result.after.data
    assert result.after.model.sha256 == result.sha256
    before, after = (r.find("demographic_parity_difference", "sex") for r in (result.before, result.after))
    assert after.value < before.value
    assert after.interval[0] <= after.value <= after.interval[1]


def test_the_file_alone_tells_how_to_audit_it(tmp_path):
    result = mitigate(Tilt, data())
    path = result.save(tmp_path / "fair.onnx")
    loaded = fairkit.OnnxModel.load(path)
    settings = loaded.settings
    assert settings["label"] == "good"
    assert settings["favorable"] == "yes"
    assert settings["sensitive"] == ["sex"]
    assert settings["features"] == ["sex", "age", "x"]
    assert settings["mitigation"]["plugin"] == "tilt"
    assert settings["mitigation"]["parameters"] == {"strength": 1.0}
    again = fairkit.audit(loaded, data(seed=3))
    assert again.model.sha256 == result.sha256


def test_same_inputs_same_bytes():
    assert mitigate(Tilt, data(), seed=4).onnx == mitigate(Tilt, data(), seed=4).onnx


def test_a_given_test_set_is_used_whole():
    result = mitigate(Tilt, data(), test=data(400, seed=9))
    assert (result.train_rows, result.test_rows) == (1500, 400)


def test_policy_decides_the_verdict():
    strict = mitigate(Tilt, data(), policy=[Rule.parse("accuracy=0.999", "min")])
    assert strict.after.verdict == "fail"


def test_the_result_is_plain_json():
    record = mitigate(Tilt, data()).to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["schema"] == "fairkit.mitigation/1"


def test_progress_is_told():
    seen = []
    mitigate(Tilt, data(), progress=lambda *told, **values: seen.append((*told, values)))
    assert seen == [("training", 1, 1, {"loss": 0.5}), ("scoring rows", 300, 300, {})]


def test_split_is_even_in_every_group_and_class_and_seeded():
    whole = data(1000)
    train, test = split_dataset(whole, 0.3, 7)
    again = split_dataset(whole, 0.3, 7)
    digests = [one.learn().sha256 for one in (test, again[1], split_dataset(whole, 0.3, 8)[1])]
    assert digests[0] == digests[1] != digests[2]
    assert train.info().rows + test.info().rows == 1000
    full, part = Table.from_dataset(whole), Table.from_dataset(test)
    for code in (0, 1):
        for label in (0, 1):
            cell = ((full.groups["sex"].codes == code) & (full.target == label)).sum()
            held = ((part.groups["sex"].codes == code) & (part.target == label)).sum()
            assert held == round(0.3 * cell)


def test_bins_found_on_the_whole_are_kept_in_the_parts():
    train, test = split_dataset(data(sensitive=["age"]), 0.2, 0)
    assert train.roles.sensitive == test.roles.sensitive
    assert train.roles.sensitive[0].edges[0] is not None
    assert Table.from_dataset(test).groups["age"].split.edges == train.roles.sensitive[0].edges


@pytest.mark.parametrize("sizes", [(2, 3, 2), (1, 5), (4,), (50_000, 50_000, 50_000, 2)])
def test_strata_are_the_combinations_in_lexicographic_order(sizes):
    rng = np.random.default_rng(1)
    codes = [rng.integers(0, size, 400) for size in sizes]
    oracle = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)[1].ravel()
    found = strata_of(codes, 400)
    assert np.array_equal(np.unique(found, return_inverse=True)[1].ravel(), oracle)
    assert np.array_equal(
        stratified(found, 0.3, np.random.default_rng(2)), stratified(oracle, 0.3, np.random.default_rng(2))
    )


def test_without_codes_all_rows_are_one_stratum():
    assert strata_of([], 3).tolist() == [0, 0, 0]


def test_stratified_never_takes_the_only_row():
    held = stratified(np.array([0, 0, 0, 0, 1]), 0.5, np.random.default_rng(0))
    assert held.sum() == 2
    assert not held[4]


def test_a_table_has_the_columns_groups_and_target_of_its_data():
    table = Table.from_dataset(data())
    assert table.task == "binary"
    assert table.classes == ("no", "yes")
    assert table.target.mean() == pytest.approx((people()["good"] == "yes").mean())
    assert table.groups["sex"].names == ("f", "m")
    part = table.take(np.array([3, 1]))
    assert part.columns["x"].tolist() == table.columns["x"][[3, 1]].tolist()
    regression = Table.from_dataset(data(label="x", favorable=None))
    assert regression.task == "regression"
    multiclass = Table.from_dataset(data(label="sex", favorable=None, sensitive=["age"]), "multiclass")
    assert multiclass.classes == ("f", "m")
    assert set(multiclass.target) == {0.0, 1.0}


def test_crossed_groups_name_what_occurs():
    table = Table.from_dataset(data(sensitive=["sex", "age:40"]))
    crossed = intersect(table.groups)
    assert crossed.names == ("f & < 40", "f & >= 40", "m & < 40", "m & >= 40")
    assert crossed.split.columns == ("sex", "age")
    np.testing.assert_array_equal(crossed.codes // 2, table.groups["sex"].codes)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"strength": 11}, ParameterError, "strength must be 0 to 10, not 11"),
        ({"strenght": 1}, ParameterError, "Did you mean 'strength'"),
        ({"holdout": 1.5}, ParameterError, "holdout=1.5 is not a share"),
        ({"learner": "forest"}, ParameterError, "tilt cannot use the learner 'forest'"),
        ({"model": b"x"}, ParameterError, "trains its own model: leave out `model`"),
        ({"output": "/nonexistent/fair.onnx"}, FairkitError, "does not exist"),
    ],
)
def test_bad_wishes_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        mitigate(Tilt, data(), **changes)


def test_other_tasks_are_refused():
    with pytest.raises(ParameterError, match="tilt is for binary tasks, but the label 'x' makes this a regression"):
        mitigate(Tilt, data(label="x", favorable=None))


def test_post_processing_needs_a_model():
    with pytest.raises(ParameterError, match="name it with `model`"):
        mitigate(Repair, data())


def test_unknown_and_useless_plugins():
    with pytest.raises(PluginError, match=r"no plugin 'fairgmb'. Did you mean 'fairgbm'"):
        find_mitigator("fairgmb")
    with pytest.raises(PluginError, match="'group' has no mitigator"):
        find_mitigator("group")


def test_an_instance_keeps_its_parameters():
    method = as_mitigator(Tilt.with_values({"strength": "3"}), {})
    assert method.parameters.strength == 3.0
    assert as_mitigator(method, {"strength": 4}).parameters.strength == 4.0


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_writable_is_found_before_training(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FairkitError, match="nothing can be written"):
        mitigate(Tilt, data(), output=tmp_path / "fair.onnx")


def test_an_interrupt_leaves_nothing(tmp_path):
    def stop(*told, **values):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mitigate(Tilt, data(), output=tmp_path / "fair.onnx", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_the_interfaces_own_example_works():
    text = textwrap.dedent(Mitigator.__doc__.split("::\n\n", 1)[1].split("\n    Then ``fairkit")[0])
    module = types.ModuleType("my_plugin")
    sys.modules["my_plugin"] = module
    try:
        exec(compile(text, "my_plugin.py", "exec", dont_inherit=True), module.__dict__)
        (method,) = module.__dict__["fairkit_mitigators"]()
        result = mitigate(method, data(), strength=1.0, learner="logistic")
    finally:
        del sys.modules["my_plugin"]
    before, after = (r.find("demographic_parity_difference", "sex").value for r in (result.before, result.after))
    assert after < before
