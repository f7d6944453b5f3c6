"""`fairkit.repair`: from a policy to the most accurate model that will surely pass it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairkit.data.loading import as_dataset
from fairkit.data.task import choose_task
from fairkit.engines.local import opened
from fairkit.errors import DataError, ParameterError
from fairkit.fitted import Run
from fairkit.learners import as_learner
from fairkit.objective import RateBound
from fairkit.parameters import parameters_to_dict
from fairkit.progress import no_progress
from fairkit.results.rules import rules_of
from fairkit.settings import at_threshold
from fairkit.support.calls import checked
from fairkit.support.files import check_writable
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.read.graph import embedded_settings, parse, read_bytes
from fairkit_onnx.write.export import export_bytes
from fairkit_repair.mitigation.choose import aim_of, check_policy, loaded_base
from fairkit_repair.mitigation.learned import AFTER, BEFORE, Learned, foreign, provenance, renamed, run_of
from fairkit_repair.mitigation.run import MitigationResult, measured
from fairkit_repair.postprocess import RuleModel
from fairkit_repair.repairing.candidates import PlainLearner, candidates
from fairkit_repair.repairing.chance import limits_of, missing_of, told_missing
from fairkit_repair.repairing.evaluate import PERFORMANCE
from fairkit_repair.repairing.preparing import GivenModel, check_power, make_bench, prepare
from fairkit_repair.repairing.searching import confirm, search
from fairkit_repair.scored_rows import Study

if TYPE_CHECKING:
    from fairkit.data.dataset import Dataset
    from fairkit.data.table import Table
    from fairkit.engines.base import Engine
    from fairkit.progress import Progress
    from fairkit.results.rules import Policy
    from fairkit.settings import ModelOptions
    from fairkit_repair.repairing.chance import Limited
    from fairkit_repair.repairing.evaluate import Bench
    from fairkit_repair.scored_rows import Trial


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
        metrics = ", ".join(rule.metric for rule in policy)
        raise DataError(
            f"{data.name}: no installed method says that it can meet {metrics} in a {task} task (`fairkit plugins "
            "show NAME` says what a method can meet)"
        )
    begun = time.monotonic()
    run = Run(seed=seed, threads=threads, learner=learner, progress=progress)
    PlainLearner().learner(run)
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
    result = []
    for one in limits:
        if one.target.kind not in ("level", "largest", "smallest") or len(one.target.rates) != 1:
            continue
        rate, limit = one.target.rates[0], float(one.rule.limit)
        sizes = [len(tested)] if one.split is None else tested.groups[one.split].sizes().tolist()
        share = [float(np.average(tested.target > 0))]
        covered = sum(bool(rate.over[2 * y]) * (share[0] if y else 1 - share[0]) for y in (0, 1))
        error = float(np.sqrt(limit * (1 - limit) / max(min(sizes) * max(covered, 1e-9), 1.0))) if 0 < limit < 1 else 0
        result.append(
            RateBound(
                metric=one.rule.metric, counted=rate.counted, over=rate.over, limit=limit, upper=one.rule.upper,
                split=one.split, error=error,
            )
        )  # fmt: skip
    return tuple(result)


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


# What a user must know about the pick of a search: how sure it is, what was given up, what was not counted.


BUDGET_NOTE = "the budget"
"""Reasons of alternatives that the budget cut have these words."""
_LESS_SURE, _MUCH = 0.15, 0.005


def notes_of(search: Study, test: Dataset, *, with_base: bool, binary: bool) -> tuple[str, ...]:
    """Return sentences about the pick, its chance and the look."""
    notes = _of_missing(test, search, binary=binary)
    if not search.reached:
        notes.append(
            f"No alternative reaches the chance {search.sure:g}: the surest one was picked, and it passes with a "
            f"predicted chance of {search.choice.chance:.2f} only.{_in_the_way(search)}"
        )
    notes += _of_budget(search)
    notes += _price(search)
    if search.deterministic is not False and not search.choice.randomized:
        notes += _cost_of_determinism(search)
    if with_base:
        notes.append(_of_given(search))
    if search.looks > 1 or search.looks_doubt:
        least = "at least " if search.looks_doubt else ""
        why = f" ({search.looks_doubt})" if search.looks_doubt else ""
        notes.append(
            f"This is {least}look {search.looks} at the same test rows{why}. Each look that is judged by itself is "
            "another chance to pass wrongly; fresh test rows mend that."
        )
    return tuple(notes)


def _of_given(search: Study) -> str:
    """Return a note on whether the given model learned from the rows that predictions are made from."""
    base = "Chances are predicted from the given model's scores of the training rows"
    if search.optimism is None:
        return f"{base}; unknown: this model may have learned from these rows, and they are then too good."
    if search.optimism == 0:
        return (
            f"{base}; it is not surely more accurate there than on the test rows, so nothing says that it learned "
            "from them."
        )
    return (
        f"{base}. It learned from these rows: its accuracy there is {search.optimism:.4f} above that on the test rows. "
        "Predicted accuracies of repairs of it are lowered by as much; chances of passing cannot be corrected, and "
        "may be too good."
    )


def _in_the_way(told: Study) -> str:
    """Say which of several limits the pick is least likely to keep."""
    chances = told.choice.chances
    if len(chances) < 2:
        return ""
    each = ", ".join(f"{name} {chance:.2f}" for name, chance in sorted(chances.items(), key=lambda pair: pair[1]))
    return f" Its chance of keeping each limit by itself: {each}."


def _price(search: Study) -> list[str]:
    """Say where an alternative that is a little less sure is much better."""
    choice = search.choice
    near = [
        alternative
        for alternative in search.alternatives
        if alternative.status == "tried"
        and search.sure - _LESS_SURE <= (alternative.chance or 0.0) < (choice.chance or 0.0)
    ]
    if not near or not search.reached:
        return []
    best = max(near, key=lambda trial: trial.accuracy or 0.0)
    if (best.accuracy or 0.0) - (choice.accuracy or 0.0) < _MUCH:
        return []
    sure = math.floor(100 * (best.chance or 0.0)) / 100
    return [
        f"The chance of {search.sure:g} costs much here: {best.name} has a predicted {search.performance} of "
        f"{best.accuracy:.4f} and passes with a predicted chance of {best.chance:.2f}; `sure={sure:g}` takes it."
    ]


def _of_missing(test: Dataset, told: Study, *, binary: bool) -> list[str]:
    """Say where rows without a group may turn the verdict."""
    columns = list(dict.fromkeys(rule.sensitive or "" for rule in told.rules))
    missing = missing_of(test.profile, columns)
    if not missing:
        return []
    clause = "counts that in" if binary else "does not know that"
    return [
        f"{told_missing(missing, test.profile.rows)}: the verdict must hold whatever their groups are, and the "
        f"predicted chance {clause}."
    ]


def _of_budget(search: Study) -> list[str]:
    """Return a note on alternatives that the budget left no time for, in time on the clock."""
    cut = [alternative.method for alternative in search.alternatives if BUDGET_NOTE in alternative.reason]
    if not cut and search.seconds < 60 * search.budget:
        return []
    left = f"{len(cut)} of {len(search.alternatives)} alternatives ({', '.join(dict.fromkeys(cut))})"
    return [
        f"The budget of {search.budget:g} minutes left no time for {left if cut else 'settings in between'}: a larger "
        "`budget`, or a machine with less to do, would try them."
    ]


def _cost_of_determinism(search: Study) -> list[str]:
    drawn: list[Trial] = [
        alternative for alternative in search.alternatives
        if alternative.randomized and alternative.status == "left out" and (alternative.chance or 0.0) >= search.sure
    ]  # fmt: skip
    if not drawn:
        return []
    best = max(drawn, key=lambda trial: trial.accuracy or 0.0)
    loss = (best.accuracy or 0.0) - (search.choice.accuracy or 0.0)
    return [
        f"Without decisions drawn by chance the predicted {search.performance} is {abs(loss):.4f} "
        f"{'lower' if loss > 0 else 'higher'} than with them ({best.name})."
    ]


# How often test rows were looked at: a record by the rows' digest, which no other name of the output resets.


class Looks(NamedTuple):
    """The number of a look at test rows, this one included, and why it may be larger; None where it is known here."""

    number: int
    doubt: str | None = None


def identity_of(search: Mapping[str, Any], method: Mapping[str, Any], seed: int, data: str) -> str:
    """Return a search's identity, as a digest: equal for searches that equal inputs make."""
    fields = {name: value for name, value in search.items() if not name.startswith("look")}
    text = json.dumps([fields, method, seed, data], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def record_look(test: str, identity: str, output: str | Path | None) -> Looks:
    """Write a look down, and return its number."""
    here, doubts = _journal(test, identity)
    there, more = _of_file(test, identity, output)
    return Looks(max(here, there), "; ".join([*doubts, *more]) or None)


def journal_of(test: str) -> Path:
    """Return the file that holds a line for each look at test rows of a digest."""
    import platformdirs

    return Path(platformdirs.user_state_dir("fairkit", appauthor=False)) / "looks" / f"{test}.txt"


def _journal(test: str, identity: str) -> tuple[int, list[str]]:
    path = journal_of(test)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            file.seek(0)
            # a torn or foreign line is a look, too
            identities = list(dict.fromkeys(line for line in file.read().splitlines() if line))
            if identity.encode() in identities:
                return identities.index(identity.encode()) + 1, []
            file.write(f"{identity}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return 1, [f"the record of earlier looks, {path}, cannot be read or written ({error.strerror or error})"]
    return len(identities) + 1, []


def _of_file(test: str, identity: str, output: str | Path | None) -> tuple[int, list[str]]:
    """Return the number of this look after those that the file at the output's place tells of."""
    if output is None or not Path(output).exists():
        return 1, []
    try:
        settings = embedded_settings(parse(read_bytes(Path(output)), str(output)))
        search = settings.get("mitigation", {}).get("search", {})
        if search.get("test_sha256") != test:
            return 1, []
        number = int(search["looks"])
    except Exception:
        return 1, [f"{output} is there already and cannot be read, so that looks it tells of are not counted"]
    return number + (search.get("look") != identity), []
