"""Each check fails for something that breaks what it is about, and says what."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import fairkit
from fairkit.exporters import Exporter
from fairkit.mitigators import Capability, FittedModel, Prediction
from fairkit.models.scorer import ModelSource
from fairkit.plugins.loading import Plugin, PluginInfo
from fairkit.signers import Signer
from fairkit_repair.learners import fit_learner
from fairkit_testing import (
    ContractError,
    auditor_checks,
    checks_for,
    contract,
    metric_checks,
    mitigator_checks,
    plugin_checks,
    run_checks,
)
from fairkit_testing import auditor_checks as model_source_checks
from fairkit_testing import auditor_checks as promotion_checks
from fairkit_testing import auditor_checks as signer_checks
from fairkit_testing import metric_checks as exporter_checks
from fairkit_testing import plugin_checks as capability_checks
from fairkit_testing import plugin_checks as parameter_checks
from fairkit_testing.auditor_checks import Audited
from fairkit_testing.mitigator_checks import Trained


def plugin_of(name="sample", doc="A module for tests of checks.", **classes):
    module = types.ModuleType("sample", doc)
    return Plugin(PluginInfo(name, "sample", "tests", "0"), module, **classes)


class Good(fairkit.Mean):
    """The mean score."""

    name = "good_mean"
    range = (0.0, 1.0)
    meaning = "0: nobody has a chance; 1: everybody has."
    needs = frozenset({"score"})

    def per_row(self, rows):
        return rows.score


class Unmergeable(Good):
    """Counts distinct scores of a batch: two batches share some."""

    range = (0.0, np.inf)

    def per_row(self, rows):
        return rows.score - rows.score.mean()


class FirstAxis(fairkit.Metric):
    """Divides along the wrong axis: right for one group, wrong for a table of them."""

    name = "first_axis"
    needs = frozenset({"score"})

    def contributions(self, rows):
        return np.column_stack([rows.score, np.ones(len(rows.score))])

    def compute(self, sums):
        return sums[0] / sums[1]


class OneColumn(FirstAxis):
    """Forgets that contributions are columns."""

    def contributions(self, rows):
        return rows.score


class OutOfRange(Good):
    """Twice the score."""

    def per_row(self, rows):
        return 2 * rows.score


class WrongWay(Good):
    """The mean error, said to be better when it is higher."""

    better = "higher"

    def per_row(self, rows):
        return np.abs(rows.score - rows.outcome)


class Random(Good):
    """Draws from nowhere."""

    def estimate(self, totals, rng):
        found = super().estimate(totals, rng)
        return dataclasses.replace(found, values=found.values + 1e-3 * np.random.default_rng().random())


class Changes(Good):
    """Overwrites the scores."""

    def per_row(self, rows):
        rows.score[:] = 0.5
        return rows.score


class NoShares(Good):
    shares = "decision-outcome"


class IgnoresWeights(fairkit.Metric):
    """Counts rows by itself."""

    name = "unweighted"
    needs = frozenset({"score"})

    def contributions(self, rows):
        weights = np.ones(len(rows.score)) if rows.weights is None else rows.weights
        return np.column_stack([rows.score / weights, np.ones(len(rows.score)) / weights])

    def compute(self, sums):
        return sums[..., 0] / sums[..., 1]


class Undeclared(Good):
    """Has a direction that there is not."""

    better = "up"


class ReadsDecisions(Good):
    """Reads decisions without saying so."""

    def per_row(self, rows):
        return np.abs(rows.decision - rows.score)


class ScalarMean(Good):
    """Makes the mean itself."""

    def per_row(self, rows):
        return rows.score.mean()


@pytest.mark.parametrize(
    ("check", "cls", "said"),
    [
        (metric_checks.check_metric_declares, Undeclared, "lower, higher or none"),
        (metric_checks.check_metric_needs, ReadsDecisions, "without decision it raises TypeError"),
        (metric_checks.check_metric_shapes, ScalarMean, r"must be \(100,\): one number for each row"),
        (metric_checks.check_metric_shapes, FirstAxis, r"take the last axis, as in sums\[..., 0\]"),
        (metric_checks.check_metric_shapes, OneColumn, "np.column_stack"),
        (metric_checks.check_metric_merges, Unmergeable, "three parts in another order"),
        (metric_checks.check_metric_range, OutOfRange, "leave the declared range"),
        (metric_checks.check_metric_direction, WrongWay, "a perfect model has 0.01"),
        (metric_checks.check_metric_weights, IgnoresWeights, "as many copies"),
        (metric_checks.check_metric_shares, NoShares, "the four confusion cells"),
        (metric_checks.check_metric_deterministic, Random, "draw only from the generator"),
        (metric_checks.check_metric_inputs_unchanged, Changes, "rows.score was changed"),
    ],
)
def test_a_broken_metric_fails_its_check(check, cls, said):
    check(Good)
    with pytest.raises(ContractError, match=said):
        check(cls)


def test_every_metric_check_is_tested_here():
    tested = {
        mark.args[1][i][0] for mark in test_a_broken_metric_fails_its_check.pytestmark for i in range(len(mark.args[1]))
    }
    assert tested == set(metric_checks.METRIC_CHECKS)


class Fine(fairkit.Auditor):
    """Counts rows."""

    name = "fine"

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        margin: float = fairkit.parameter(0.1, help="How far.", minimum=0)

    def measure(self, batch, predictions, context):
        return np.array([len(batch), 1.0])

    def findings(self, total, context):
        return [self.finding(value=float(total[0]), notes=("A count of these rows.",))]

    def finding(self, **values):
        return fairkit.Finding(auditor="fine", metric="rows", **values)


class NoNote(Fine):
    """Gives no interval and does not say why."""

    def findings(self, total, context):
        return [self.finding(value=1.0)]


class CountsBatches(Fine):
    """Its total depends on how the rows came."""

    def findings(self, total, context):
        return [self.finding(value=float(total[1]), notes=("A count of batches.",))]


class RandomAuditor(Fine):
    """Draws from nowhere."""

    def findings(self, total, context):
        return [self.finding(value=float(np.random.default_rng().random()), notes=("A draw.",))]


class Overwrites(Fine):
    """Rounds the scores in place."""

    def measure(self, batch, predictions, context):
        for values in (predictions.score, predictions.probabilities):
            if values is not None:
                np.round(values, out=values)
        return super().measure(batch, predictions, context)


class Trips(Fine):
    """Divides by the number of groups."""

    def findings(self, total, context):
        value = 1 / len(context.dataset.profile.groups)
        return [self.finding(value=value, notes=("Whatever.",))]


class ReadsScores(Fine):
    """Takes for granted that there are scores."""

    def measure(self, batch, predictions, context):
        said = predictions.probabilities if predictions.score is None else predictions.score
        return np.array([said.sum(), 1.0])


class Ignores(Fine):
    """Says that it uses weights, and counts rows."""

    uses = frozenset({"weights"})


class Weighs(Fine):
    """Says that weights do not concern it, and adds them up."""

    unaffected_by = frozenset({"weights"})

    def measure(self, batch, predictions, context):
        return np.array([len(batch) if batch.weights is None else batch.weights.sum(), 1.0])


class Writes(Fine):
    """Leaves a file."""

    def findings(self, total, context):
        Path("found.txt").write_text("1")
        return super().findings(total, context)


@pytest.mark.long
@pytest.mark.parametrize(
    ("check", "cls", "said"),
    [
        (auditor_checks.check_auditor_findings, NoNote, "no note says why"),
        (auditor_checks.check_auditor_merges, CountsBatches, "batches of 97 rows differ"),
        (auditor_checks.check_auditor_deterministic, RandomAuditor, "draw only from context.rng"),
        (auditor_checks.check_auditor_inputs_unchanged, Overwrites, "predictions.score was changed"),
        (auditor_checks.check_auditor_errors, Trips, "ZeroDivisionError"),
        (auditor_checks.check_auditor_errors, ReadsScores, "a model without scores was audited"),
        (auditor_checks.check_auditor_conditions, Ignores, "no number and no interval changes with it"),
        (auditor_checks.check_auditor_conditions, Weighs, "numbers change with it"),
        (auditor_checks.check_auditor_leaves_nothing, Writes, "left files behind: work/found.txt"),
    ],
)
def test_a_broken_auditor_fails_its_check(check, cls, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(Audited(Fine, {}))
    with pytest.raises(ContractError, match=said):
        check(Audited(cls, {}))


def test_every_auditor_check_is_tested_here():
    tested = {
        case[0] for mark in test_a_broken_auditor_fails_its_check.pytestmark if mark.args for case in mark.args[1]
    }
    assert tested == set(auditor_checks.AUDITOR_CHECKS)


class Plain(fairkit.Mitigator):
    """Trains a learner and does nothing else."""

    name = "plain"
    stage = "in"
    citation = "Nobody, Nothing, 2024"
    learners = ("logistic",)

    def fit(self, table, run, **_):
        run.progress("training", 0, 1)
        return fit_learner(self.learner(run), table, run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Other(FittedModel):
    """A model whose file says something else for rows that it has not seen."""

    inner: FittedModel
    details: dict
    notes: tuple = ()

    def predict(self, columns):
        said = self.inner.predict(columns)
        far = np.array([job == "pilot" for job in columns["job"].tolist()])
        return Prediction(score=np.where(far, 0.5, said.score), decision_probability=said.decision_probability)

    def to_onnx(self):
        return self.inner.to_onnx()


class Differs(Plain):
    """Its file differs from the model in memory on new values."""

    def fit(self, table, run, **_):
        return Other(inner=super().fit(table, run), details={})


class Wobbles(Plain):
    """Weights rows at random."""

    def fit(self, table, run, **_):
        return super().fit(table.with_weights(np.random.default_rng().random(len(table)) + 0.1), run)


class ChangesTable(Plain):
    """Flips labels in place."""

    def fit(self, table, run, **_):
        table.target[:5] = 1 - table.target[:5]
        return super().fit(table, run)


class NotJson(Plain):
    """Puts an array into the details."""

    def fit(self, table, run, **_):
        return dataclasses.replace(super().fit(table, run), details={"weights": np.ones(2)})


class AnyLearner(Plain):
    """Takes whatever name it is given."""

    def learner(self, run):
        return "logistic"


class NeedsGroups(Plain):
    """Falls over where there is no sensitive column."""

    def fit(self, table, run, **_):
        next(iter(table.groups.values()))
        return super().fit(table, run)


class Promises(Plain):
    """Promises parity and does nothing for it."""

    def promises(self):
        return (fairkit.Rule(metric="demographic_parity_difference", max=0.01),)


class Swallows(Plain):
    """Goes on after Ctrl-C."""

    def fit(self, table, run, **_):
        with contextlib.suppress(KeyboardInterrupt):
            run.progress("training", 0, 1)
        return fit_learner(self.learner(run), table, run)


PARITY = Capability(constraints=("demographic_parity",))


class NoDial(Plain):
    """Names a parameter that it does not have."""

    capabilities = (dataclasses.replace(PARITY, dial="tolerance"),)


class Harms(Plain):
    """Says that it meets parity, and favors one group."""

    capabilities = (PARITY,)

    def fit(self, table, run, **_):
        favored = table.groups["sex"].codes == table.groups["sex"].names.index("male")
        weights = np.where(favored == (table.target > 0), 5.0, 1.0)
        return super().fit(table.with_weights(weights), run)


class ReadsTheGroup(Plain):
    """Says that it does not read the group, and makes it a feature."""

    capabilities = (PARITY,)

    def fit(self, table, run, **_):
        return super().fit(dataclasses.replace(table, features=(*table.features, "sex")), run)


@dataclass(frozen=True, kw_only=True)
class HalfChance(Other):
    """Draws every decision."""

    def predict(self, columns):
        score = self.inner.predict(columns).score
        return Prediction(score=score, decision_probability=0.5 + 0.0 * score)


class Draws(Plain):
    """Says that its decisions are not drawn."""

    capabilities = (PARITY,)

    def fit(self, table, run, **_):
        return HalfChance(inner=super().fit(table, run), details={})


@pytest.mark.long
@pytest.mark.parametrize(
    ("check", "cls", "said"),
    [
        (mitigator_checks.check_mitigator_onnx_equals_memory, Differs, "rows that training did not see"),
        (mitigator_checks.check_mitigator_deterministic, Wobbles, "two trainings with one seed"),
        (mitigator_checks.check_mitigator_inputs_unchanged, ChangesTable, "target was changed"),
        (mitigator_checks.check_mitigator_details, NotJson, "do not go into JSON"),
        (mitigator_checks.check_mitigator_learners, AnyLearner, "an unknown learner was asked for"),
        (mitigator_checks.check_mitigator_errors, NeedsGroups, "no sensitive column was given: it raised StopIter"),
        (mitigator_checks.check_mitigator_promises, Promises, "is promised, but on new rows"),
        (mitigator_checks.check_mitigator_interrupt, Swallows, "KeyboardInterrupt was swallowed"),
        (capability_checks.check_mitigator_capability_parameters, NoDial, "no parameter 'tolerance'"),
        (capability_checks.check_mitigator_capabilities, Harms, "significantly worse than"),
        (capability_checks.check_mitigator_capabilities, ReadsTheGroup, "but its reads_group is False"),
        (capability_checks.check_mitigator_capabilities, Draws, "but its randomized is False"),
    ],
)
def test_a_broken_mitigator_fails_its_check(check, cls, said):
    check(Trained(Plain, {}))
    with pytest.raises(ContractError, match=said):
        check(Trained(cls, {}))


def test_every_mitigator_check_is_tested_here():
    tested = {
        case[0] for mark in test_a_broken_mitigator_fails_its_check.pytestmark if mark.args for case in mark.args[1]
    }
    assert tested == {*mitigator_checks.MITIGATOR_CHECKS, *capability_checks.CAPABILITY_CHECKS}


def test_a_file_that_an_interrupted_training_leaves_is_found():
    class Leaves(Plain):
        """Keeps a checkpoint."""

        def fit(self, table, run, **_):
            Path("checkpoint.bin").write_bytes(b"1")
            return super().fit(table, run)

    with pytest.raises(ContractError, match=r"left files behind: work/checkpoint\.bin"):
        mitigator_checks.check_mitigator_interrupt(Trained(Leaves, {}))


class Undocumented(Fine):
    """Has a parameter without a word."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        margin: float = 0.1


class Unchecked(Fine):
    """Its default is not allowed by its own limits."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        margin: float = fairkit.parameter(-1.0, help="How far.", minimum=0)


class Mutable(Fine):
    """Its parameters can be changed after they were checked."""

    @dataclass(slots=True, kw_only=True)
    class Parameters:
        margin: float = fairkit.parameter(0.1, help="How far.")


@pytest.mark.parametrize(
    ("check", "cls", "said"),
    [
        (parameter_checks.check_parameters_documented, Undocumented, "has no help"),
        (parameter_checks.check_parameters_documented, Mutable, "frozen=True"),
        (parameter_checks.check_parameters_validated, Unchecked, "is refused when it is typed"),
    ],
)
def test_broken_parameters_fail_their_check(check, cls, said):
    check(Fine)
    with pytest.raises(ContractError, match=said):
        check(cls)


@pytest.mark.long
def test_bad_names_and_words_fail_their_check():
    plugin_checks.check_names(plugin_of(metrics=(Good,), auditors=(Fine,)))
    for plugin, said in (
        (plugin_of(name="My_Plugin"), "lower case words joined by hyphens"),
        (plugin_of(metrics=(type("A", (Good,), {"name": "good-mean"}),)), "joined by underscores"),
        (plugin_of(metrics=(Good, WrongWay)), "two of its classes have the name 'good_mean'"),
        (plugin_of(metrics=(type("A", (Good,), {"name": "accuracy"}),)), "'group' of fairkit has"),
        (plugin_of(auditors=(type("A", (Fine,), {"name": "consistency"}),)), "'consistency' of fairkit has"),
    ):
        with pytest.raises(ContractError, match=said):
            plugin_checks.check_names(plugin)
    plugin_checks.check_documented(plugin_of(metrics=(Good,), mitigators=(Plain,)))
    for plugin, said in (
        (plugin_of(doc=""), "its module has no docstring"),
        (plugin_of(metrics=(type("A", (Good,), {"meaning": "", "__doc__": "The mean score."}),)), "meaning is empty"),
        (plugin_of(metrics=(type("A", (Good,), {"__doc__": None}),)), "A has no docstring"),
        (plugin_of(mitigators=(type("A", (Plain,), {"citation": "", "__doc__": "Trains, no more."}),)), "citation"),
    ):
        with pytest.raises(ContractError, match=said):
            plugin_checks.check_documented(plugin)


@pytest.mark.long
def test_a_heavy_import_is_found(tmp_path, monkeypatch):
    text = (
        '"""A plugin that imports too much."""\n\nimport fairkit\nimport scipy.stats\n\n\n'
        'class Heavy(fairkit.Mean):\n    """The mean score."""\n\n    name = "heavy"\n\n'
        "    def per_row(self, rows):\n        return rows.score\n\n\n"
        "@fairkit.hookimpl\ndef fairkit_metrics():\n    return [Heavy]\n"
    )
    (tmp_path / "heavy_one.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("FAIRKIT_PLUGINS", str(tmp_path / "heavy_one.py"))
    with pytest.raises(ContractError, match="importing it imports scipy"):
        plugin_checks.check_light_import(plugin_of(name="heavy-one"))


class Silent(fairkit.PromotionCheck):
    """Objects without a word."""

    name = "silent"

    def check(self, promotion):
        yield fairkit.Remark(text="")


class Fickle(fairkit.PromotionCheck):
    """Changes its mind."""

    name = "fickle"

    def check(self, promotion):
        yield fairkit.Remark(text=f"this is the {np.random.default_rng().random()}th time")


class Scribbles(fairkit.PromotionCheck):
    """Writes into the model's file."""

    name = "scribbles"

    def check(self, promotion):
        promotion.model_path.write_bytes(b"other")
        return []


class Quiet(fairkit.PromotionCheck):
    """Has nothing against it."""

    name = "quiet"

    def check(self, promotion):
        return []


@pytest.mark.long
@pytest.mark.parametrize(
    ("check", "cls", "said"),
    [
        (promotion_checks.check_promotion_remarks, Silent, "a remark has no text"),
        (promotion_checks.check_promotion_deterministic, Fickle, "other remarks the second time"),
        (promotion_checks.check_promotion_leaves_the_file, Scribbles, "file was changed"),
    ],
)
def test_broken_promotion_checks_fail_theirs(check, cls, said):
    check(Quiet)
    with pytest.raises(ContractError, match=said):
        check(cls)


class Willing(Signer):
    """Opens whatever it is asked for."""

    name = "willing"
    public_pem = ""

    @classmethod
    def open(cls, address, *, passphrase):
        return cls()

    def sign(self, message):
        return b""


class Choosy(Willing):
    """Has no key."""

    @classmethod
    def open(cls, address, *, passphrase):
        raise fairkit.ParameterError(f"there is no key {address}")


class Anything(ModelSource):
    """Opens whatever it is asked for."""

    name = "Any thing"

    @classmethod
    def open(cls, record):
        return record["url"] if record else cls()


class Careless(Anything):
    """Lets Python say what is missing."""

    @classmethod
    def open(cls, record):
        return record["url"]


class Careful(Anything):
    """Says what is missing."""

    name = "careful"

    @classmethod
    def open(cls, record):
        raise fairkit.ModelError("a model is named by its url")


def test_broken_model_sources_fail_their_checks():
    for check in model_source_checks.MODEL_SOURCE_CHECKS:
        check(Careful)
    with pytest.raises(ContractError, match="small letters"):
        model_source_checks.check_model_source_name(Anything)
    for cls, said in ((Anything, "takes an empty record"), (Careless, "raises KeyError")):
        with pytest.raises(ContractError, match=said):
            model_source_checks.check_model_source_refuses_an_empty_record(cls)


def test_broken_signers_fail_their_checks():
    signer_checks.check_signer_refuses_a_bad_address(Choosy)
    with pytest.raises(ContractError, match="takes the address 'willing:'"):
        signer_checks.check_signer_refuses_a_bad_address(Willing)


class Digest(Exporter):
    """The file's digest."""

    name = "digest"

    def export(self, card):
        return card.model_sha256


class Raw(Digest):
    """Bytes."""

    def export(self, card):
        return card.model_sha256.encode()


class Silent(Digest):
    """Nothing where nobody signed."""

    def export(self, card):
        return "".join(one.sha256 for one in card.certificates)


class Counting(Digest):
    """Another text each time."""

    calls = 0

    def export(self, card):
        type(self).calls += 1
        return f"{card.model_sha256} {self.calls}"


class Same(Digest):
    """The name alone."""

    def export(self, card):
        return card.name


def test_broken_exporters_fail_their_checks():
    for check in exporter_checks.EXPORTER_CHECKS:
        check(Digest)
    for check, cls, said in (
        (exporter_checks.check_export_is_text, Raw, "gives bytes"),
        (exporter_checks.check_export_is_text, Silent, "says nothing about credit@1"),
        (exporter_checks.check_export_deterministic, Counting, "another text the second time"),
        (exporter_checks.check_export_tells_versions_apart, Same, "the same text"),
    ):
        with pytest.raises(ContractError, match=said):
            check(cls)


def test_expected_failures_need_a_check_and_a_reason_and_must_fail():
    plugin = plugin_of(metrics=(OutOfRange,))
    expected = {"check_metric_range": "the range is a wish"}
    found = {check.id: check for check in checks_for(plugin, expected_failures=expected)}
    assert found["check_metric_range[good_mean]"].reason == "the range is a wish"
    found["check_metric_range[good_mean]"]()
    with pytest.raises(fairkit.ParameterError, match="Did you mean 'check_metric_range'"):
        checks_for(plugin, expected_failures={"check_metric_ranges": "why"})
    with pytest.raises(fairkit.ParameterError, match="say why 'check_metric_range'"):
        checks_for(plugin, expected_failures={"check_metric_range": " "})
    passing = plugin_of(metrics=(Good,))
    (check,) = [
        check for check in checks_for(passing, expected_failures=expected) if check.name == "check_metric_range"
    ]
    with pytest.raises(ContractError, match="but passes"):
        check()


@pytest.mark.long
def test_a_module_can_name_its_expected_failures_and_settings():
    plugin = plugin_of(metrics=(OutOfRange,), auditors=(Fine,))
    plugin.module.FAIRKIT_EXPECTED_FAILURES = {"check_metric_range": "the range is a wish"}
    plugin.module.FAIRKIT_CHECK_SETTINGS = {"margin": 0.5, "of_another": 1}
    outcomes = {(one.check, one.subject): one for one in run_checks(plugin)}
    assert outcomes["check_metric_range", "good_mean"].status == "expected failure"
    assert outcomes["check_metric_range", "good_mean"].message == "the range is a wish"
    assert outcomes["check_metric_merges", "good_mean"].status == "passed"
    assert contract._own(Fine, plugin.module.FAIRKIT_CHECK_SETTINGS) == {"margin": 0.5}


@pytest.mark.long
def test_the_command_gives_json_and_exit_code_1(tmp_path, monkeypatch):
    import subprocess

    text = (
        '"""A metric that lies about its range."""\n\nimport fairkit\n\n\n'
        'class Twice(fairkit.Mean):\n    """Twice the score."""\n\n    name = "twice"\n    range = (0.0, 1.0)\n'
        '    meaning = "0: nothing; 1: half of everything."\n    needs = frozenset({"score"})\n\n'
        "    def per_row(self, rows):\n        return 2 * rows.score\n\n\n"
        "@fairkit.hookimpl\ndef fairkit_metrics():\n    return [Twice]\n"
    )
    (tmp_path / "twice.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("FAIRKIT_PLUGINS", str(tmp_path / "twice.py"))
    run = "from fairkit_cli.main import run; run()"
    command = [sys.executable, "-c", run, "plugins", "check", "twice", "--format", "json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    failed = [check for check in json.loads(result.stdout)["checks"] if check["status"] == "failed"]
    assert [check["check"] for check in failed] == ["check_metric_range"]
    assert "leave the declared range (0.0, 1.0)" in failed[0]["message"]
