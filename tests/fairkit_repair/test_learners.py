"""Learners: found by name, built in or brought by plugins, and what goes wrong in somebody else's."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from fairkit import learners
from fairkit.data.table import Table
from fairkit.errors import ParameterError, PluginError
from fairkit.fitted import Run
from fairkit.learners import EncodedRows, Learner, find_learner
from fairkit.mitigators import Mitigator
from fairkit.plugins.loading import FILE, PluginInfo, load_found
from fairkit_onnx.write.export import export
from fairkit_repair.learners import fit_learner
from fairkit_testing import mitigator_checks as learner_checks
from fairkit_testing import sample_data
from fairkit_testing.samples import ContractError


class Careless(Learner):
    """Trains on the first classes that come, whatever they weigh."""

    name = "careless"
    tasks = ("binary",)
    scaled = True

    def fit(self, rows: EncodedRows, settings):
        from sklearn.linear_model import LogisticRegression

        if settings.get("fail"):
            raise RuntimeError("no memory left on the device")
        return LogisticRegression(max_iter=300).fit(rows.matrix, rows.target.astype(int))


@pytest.fixture(autouse=True)
def brought(monkeypatch):
    given = [lambda: [Careless]]
    monkeypatch.setattr(learners, "_sources", given)
    return given


def table(task="binary"):
    return Table.from_dataset(sample_data(task))


def test_a_learner_that_a_plugin_brings_trains_and_exports():
    rows = table()
    model = fit_learner("careless", rows, Run(seed=1))
    export(model, rows)  # compares the file with the model
    assert np.mean((model.predict(rows.columns).score >= 0.5) == rows.target) > 0.65


def test_names_and_tasks_are_checked(brought):
    with pytest.raises(ParameterError, match=r"no learner 'carless'.*careless"):
        find_learner("carless")
    with pytest.raises(ParameterError, match="'careless' is for binary tasks, not for a regression one"):
        fit_learner("careless", table("regression"), Run())
    with pytest.raises(ParameterError, match="for numbers use 'linear'"):
        find_learner("logistic", "regression")
    brought.append(lambda: [type("Twin", (Careless,), {})])
    with pytest.raises(ParameterError, match="several plugins bring a learner 'careless'"):
        find_learner("careless")


def test_what_somebody_elses_learner_raises_names_it():
    with pytest.raises(PluginError, match=r"the learner 'careless'.*no memory left on the device.*its author"):
        fit_learner("careless", table(), Run(), settings={"fail": True})


def test_only_methods_that_say_so_take_it():
    class Own(Mitigator):
        name = "own"
        stage = "in"
        learners = ("logistic",)

        def fit(self, table, run, **_):
            return fit_learner(self.learner(run), table, run)

    class Open(Own):
        learners = ("logistic", "*")

    with pytest.raises(ParameterError, match="own cannot use the learner 'careless'"):
        Own().learner(Run(learner="careless"))
    assert Open().learner(Run(learner="careless")) == "careless"
    assert Open().learner(Run()) == "logistic"
    with pytest.raises(ParameterError, match="own cannot use the learner 'linear'"):
        Open().learner(Run(learner="linear"))


def test_the_checks_find_weights_that_do_not_count():
    taught = learner_checks.Taught(Careless)
    learner_checks.check_learner_scores(taught)
    learner_checks.check_learner_onnx_equals_memory(taught)
    learner_checks.check_learner_deterministic(taught)
    with pytest.raises(ContractError, match=r"pass rows\.weights to the library"):
        learner_checks.check_learner_weights(taught)


def test_nobody_takes_the_name_of_a_built_in_learner(tmp_path):
    path = tmp_path / "fairkit_taken.py"
    path.write_text(
        "import fairkit\n"
        "from fairkit.learners import Learner\n"
        "class Mine(Learner):\n"
        "    name = 'forest'\n"
        "    def fit(self, rows, settings): ...\n"
        "@fairkit.hookimpl\n"
        "def fairkit_learners(): return [Mine]\n"
    )
    with pytest.raises(PluginError, match="a learner 'forest' already"):
        load_found(PluginInfo("taken", str(path), FILE, ""))


def test_a_command_imports_lightgbm_alone_and_leaves_a_whole_one_to_others():
    program = (
        "import sys, numpy as np; from fairkit.commands import provide; from fairkit_repair.learners import light_gbm\n"
        "provide(object()); mine = light_gbm(); assert {'sklearn', 'pandas'}.isdisjoint(sys.modules)\n"
        "assert mine.Dataset(np.eye(2), np.ones(2), params={'verbosity': -1}).construct().num_data() == 2\n"
        "from lightgbm import LGBMClassifier; print(LGBMClassifier(n_estimators=3).n_estimators)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "3"
