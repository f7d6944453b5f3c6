"""`fairkit.repair`: from a policy to the most accurate model that will surely pass it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.loading import as_dataset
from fairkit.data.task import choose_task
from fairkit.engines.opening import opened
from fairkit.errors import DataError, ParameterError
from fairkit.fitted import Run
from fairkit.learners import as_learner
from fairkit.objective import RateBound
from fairkit.parameters.declare import parameters_to_dict
from fairkit.progress import no_progress
from fairkit.results.rules import rules_of
from fairkit.settings import at_threshold
from fairkit.support.calls import checked
from fairkit.support.files import check_writable
from fairkit_onnx.model import OnnxModel
from fairkit_onnx.write.export import export_bytes
from fairkit_repair.mitigation.choose import aim_of, loaded_base
from fairkit_repair.mitigation.learned import AFTER, BEFORE, Learned, foreign, provenance, renamed, run_of
from fairkit_repair.mitigation.policy_checks import check_policy
from fairkit_repair.mitigation.run import MitigationResult, measured
from fairkit_repair.postprocess import RuleModel
from fairkit_repair.repairing.audits import PERFORMANCE
from fairkit_repair.repairing.candidates import candidates
from fairkit_repair.repairing.chance import limits_of
from fairkit_repair.repairing.looks import identity_of, record_look
from fairkit_repair.repairing.notes import notes_of
from fairkit_repair.repairing.power import check_power
from fairkit_repair.repairing.preparing import GivenModel, learner_of, make_bench, prepare
from fairkit_repair.repairing.refining import confirm
from fairkit_repair.repairing.searching import search
from fairkit_repair.studies import Study

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.data.table import Table
    from fairkit.engines.base import Engine
    from fairkit.progress import Progress
    from fairkit.results.rules import Policy
    from fairkit.settings import ModelOptions
    from fairkit_repair.repairing.chance import Limited
    from fairkit_repair.repairing.evaluate import Bench
    from fairkit_repair.studies import Trial

SURE, BUDGET = 0.95, 5.0
"""The chance of passing that is asked for; minutes."""


@checked
def repair(
    data: Dataset,
    policy: Policy = (),
    *,
    max: Mapping[str, float] | None = None,
    min: Mapping[str, float] | None = None,
    test: Dataset | None = None,
    holdout: float = 0.2,
    model: Any = None,
    options: ModelOptions | None = None,
    learner: Any = None,
    methods: Sequence[str] | None = None,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    sure: float = SURE,
    budget: float = BUDGET,
    blind: bool = False,
    deterministic: bool | None = None,
    objective: str | None = None,
    value: str | None = None,
    threshold: float | None = None,
    anyway: bool = False,
    unconstrained: bool = True,
    seed: int = 0,
    threads: int | None = None,
    confidence: float = 0.95,
    output: str | Path | None = None,
    progress: Progress = no_progress,
) -> MitigationResult:
    """Search the best model that will surely pass a policy, and audit it once on test rows.

    For every alternative the chance of passing is predicted from rows that its model did not see: rates are drawn from
    what these rows say, then totals of the test rows' number, and the verdict's own function judges each drawn audit,
    all rules together. The alternative that is best at the objective with a chance of at least `sure` is trained on all
    rows, exported, and looked at on the test rows once.

    Parameters
    ----------
    data
        Rows to learn from, from `fairkit.load_data`.
    policy
        Rules; in binary tasks on rates and their disparities, else on any number of the auditor `group`.
    max, min
        More rules: limits by name, ``max={"demographic_parity_difference:sex": 0.1}``.
    test
        Rows for the one look. Without them `holdout` of `data` are held out, evenly from every group and class.
    holdout
        That share, in (0, 1).
    model
        A model to repair; None trains `learner`.
    options
        What cannot be guessed about its outputs, as in `fairkit.audit`.
    learner
        What trains: a name, or an estimator of scikit-learn's kind; by default lightgbm.
    methods
        Names of the methods to try; None: all installed ones that can meet the policy.
    parameters
        By method, parameters to hold fixed.
    sure
        The chance of passing to reach, in (0, 1).
    budget
        Minutes that the search may take. What is cheap is tried first; a fit that the budget ends is left out.
    blind
        Take models only that decide without the group; sensitive columns are no features then.
    deterministic
        True: take models only that draw no decision by chance. None: take others only where none of these passes with
        the chance `sure`. False: take whatever is most accurate.
    objective
        What is kept or made best: ``rate`` keeps the share of people who are approved (the default with `model`),
        ``accuracy`` (the default without), ``balanced_accuracy``, or ``cost=A:B`` for the cost of a false approval and
        of a false refusal; ``cost`` takes the costs that the model's cutoff implies.
    value
        A column with what approving each person brings: the objective is its sum.
    threshold
        The given model's threshold, in place of that of `options`.
    anyway
        Go on where even a model without any disparity would pass with a chance below one half.
    unconstrained
        Whether the model without mitigation may be the pick.
    seed
        For every random draw.
    threads
        Default: one below 50,000 rows, else left to the libraries.
    confidence
        Of the intervals.
    output
        Where the result will be saved: checked before training, written at the end.
    progress
        Told what is tried.

    Returns
    -------
    MitigationResult
        With `search`; `after.verdict` is the audit's. Equal for equal inputs, while the budget does not end the search.

    Raises
    ------
    PowerError
        The test rows cannot decide the policy.
    FairkitError
        The policy, the methods, the data or the model cannot be used.

    Examples
    --------
    >>> rule = fairkit.Rule(metric="demographic_parity_difference", sensitive="sex", max=0.05)
    >>> result = fairkit.repair(data, [rule], test=test)                              # doctest: +SKIP
    >>> result.after.verdict, result.search.choice.name                               # doctest: +SKIP
    ('pass', 'threshold-optimizer (constraint = demographic_parity, tolerance = 0.02)')
    """
    as_dataset(data)
    if output is not None:
        check_writable(Path(output))
    policy, learner = rules_of(policy, max, min), as_learner(learner)
    options = at_threshold(options, threshold)
    aim = aim_of(data, None, objective, value, given=model is not None)
    study = Study(
        rules=tuple(policy), sure=sure, budget=budget, seed=seed, blind=blind, deterministic=deterministic,
        unconstrained=unconstrained, learner=learner or "lightgbm", named=methods is not None, given=model is not None,
    )  # fmt: skip
    check_policy(policy, data)
    task = choose_task(data, None)
    if study.given and task in ("multiclass", "regression"):
        raise ParameterError(
            f"methods for {task} tasks train their own models: leave out `model`, and name what trains with `learner`"
        )
    limits = limits_of(policy, [split.name for split in data.roles.sensitive], of_rates=task == "binary")
    fixed = parameters or {}
    if task != "binary" and not candidates(limits, methods, fixed, 0.5, task):
        asked = ", ".join(rule.metric for rule in policy)
        raise DataError(
            f"{data.name}: no installed method says that it can meet {asked} in a {task} task (`fairkit plugins "
            "show NAME` says what a method can meet)"
        )
    begun = time.monotonic()
    run = Run(seed=seed, threads=threads, learner=learner, progress=progress)
    learner_of(run)
    with opened(None, None) as engine:
        ready = prepare(engine, data, test, holdout, study, limits, confidence, aim.column)
        table, forecast = ready.table, ready.forecast
        if task == "binary":
            aim = dataclasses.replace(aim, bounds=bounds_of(limits, ready.held))
        run = dataclasses.replace(run.on(len(table)), objective=aim)
        base = loaded_base(model, options)
        power = check_power(ready, base, run, anyway=anyway)
        bench = make_bench(table, base, run, begun + 60 * budget, ready.held)
        # about how large constrained rates are; where decisions are no rates, one half
        rate = float(np.average(bench.decisions)) if task == "binary" else 0.5
        usable = candidates(limits, methods, fixed, rate, task, objective=bench.run.objective, given=study.given)
        trials = search(bench, forecast, usable, study, progress)
        run = dataclasses.replace(run, objective=bench.run.objective)

        def again(one: Trial) -> Trial:
            said = bench.measure(one.mitigator)
            if why := bench.restless(one.mitigator, said):
                return dataclasses.replace(one, status="left out", reason=why)
            rng = np.random.default_rng([seed, 9])
            return dataclasses.replace(one, chance=forecast.predict(said, rng, forecast.many).chance)

        index = confirm(trials, sure, again)
        trials[index] = dataclasses.replace(trials[index], status="picked")
        study = dataclasses.replace(
            study, power=power, alternatives=tuple(trials), picked=index, calibration_rows=len(table),
            seconds=time.monotonic() - begun, test_sha256=ready.test.sha256,
            performance=PERFORMANCE.get(task, run.objective.label), objective=run.objective.told(),
            optimism=bench.optimism,
        )  # fmt: skip
        method = study.choice.mitigator
        chosen = {"method": method.name, "parameters": parameters_to_dict(method.parameters)}
        identity = identity_of(study.summary(), chosen, seed, data.sha256)
        looks = record_look(study.test_sha256, identity, output)
        study = dataclasses.replace(study, looks=looks.number, look=identity, looks_doubt=looks.doubt)
        result = _finished(engine, bench, ready.test, study, run, confidence)
    if output is not None:
        result.save(output)
    return result


def bounds_of(limits: Sequence[Limited], tested: Table) -> tuple[RateBound, ...]:
    """Return the limits on rates themselves, with the standard errors that they have on the test rows."""
    found = []
    for one in limits:
        if one.target.kind not in ("level", "largest", "smallest") or len(one.target.rates) != 1:
            continue
        rate, limit = one.target.rates[0], float(one.rule.limit)
        sizes = [len(tested)] if one.split is None else tested.groups[one.split].sizes().tolist()
        share = [float(np.average(tested.target > 0))]
        covered = sum(bool(rate.over[2 * y]) * (share[0] if y else 1 - share[0]) for y in (0, 1))
        error = float(np.sqrt(limit * (1 - limit) / max(min(sizes) * max(covered, 1e-9), 1.0))) if 0 < limit < 1 else 0
        found.append(
            RateBound(
                metric=one.rule.metric, counted=rate.counted, over=rate.over, limit=limit, upper=one.rule.upper,
                split=one.split, error=error,
            )
        )  # fmt: skip
    return tuple(found)


def _finished(
    engine: Engine, bench: Bench, test: Dataset, study: Study, run: Run, confidence: float
) -> MitigationResult:
    """Train the pick on all rows, export it, and look at the test rows."""
    run.progress("training the pick", 0, 1)
    method = study.choice.mitigator
    fitted = bench.fit(method, dataclasses.replace(run, progress=no_progress))
    if fitted is None:
        fitted, content = GivenModel(model=bench.base, table=bench.table), bench.base.content
    else:
        about = provenance(method, run_of(method, run), bench.base if method.stage == "post" else None, fitted)
        about["mitigation"]["search"] = study.summary()
        content = export_bytes(fitted, bench.table, about)
    with_base = bench.fitted is None
    base = renamed(bench.base, BEFORE)
    if isinstance(bench.fitted, RuleModel):  # trained here, and set for the objective
        base = OnnxModel(export_bytes(bench.fitted, bench.table), BEFORE)
    learned = Learned(
        fitted=fitted,
        model=OnnxModel(content, AFTER, sandbox=foreign(bench.base) if with_base else None),
        baseline=base,
        table=bench.table,
        test=test,
        compared=test,
        notes=notes_of(study, test, with_base=with_base, binary=bench.table.task == "binary"),
    )
    result = measured(engine, learned, method, study.rules, confidence, run)
    return dataclasses.replace(result, search=study)
