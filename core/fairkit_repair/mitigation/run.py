"""From data to a mitigated model: split, fit, export, check, and audit before and after on held-out rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fairkit.auditing.prepare import LoadedAuditors
from fairkit.auditing.run import audit
from fairkit.data.loading import as_dataset
from fairkit.data.roles import value_text
from fairkit.data.table import Table
from fairkit.engines.local import opened
from fairkit.errors import ModelError
from fairkit.fitted import Attaches, FittedModel, MeasuresItself, NamesAudits, Run
from fairkit.learners import as_learner
from fairkit.mitigators import RepairsModels
from fairkit.objective import KEPT
from fairkit.parameters import parameters_to_dict
from fairkit.progress import no_progress
from fairkit.results.rendering import Shown, plotted
from fairkit.results.rules import rules_of
from fairkit.settings import DEFAULT_AUDITORS, AuditSettings, ModelOptions, at_threshold
from fairkit.support.calls import checked
from fairkit.support.files import check_writable, write_atomic
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.read.graph import digest
from fairkit_onnx.write.export import BaseModel
from fairkit_repair.mitigation.choose import (
    People,
    Repeated,
    aim_of,
    as_mitigator,
    base_model,
    check_objective,
    check_policy,
    check_repeats,
    people_of,
    retrained,
)
from fairkit_repair.mitigation.learned import (
    ALARM,
    CONSTANT,
    below_majority,
    fit_files,
    foreign,
    gives_up,
    is_randomized,
    is_useless,
    learn_here,
    record,
    sensitive_inputs,
    training,
    treats_all_alike,
    valued,
)
from fairkit_repair.scored_rows import audit_beside

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairkit.data.dataset import Dataset
    from fairkit.data.task import Task
    from fairkit.engines.base import Engine
    from fairkit.mitigators import Mitigator
    from fairkit.progress import Progress
    from fairkit.results.policy import Change
    from fairkit.results.report import Report
    from fairkit.results.rules import Policy, Rule
    from fairkit_repair.mitigation.learned import Learned
    from fairkit_repair.scored_rows import Study


_HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MitigationResult(Shown):
    """A mitigated model with the audits before and after, on the same held-out rows.

    Attributes
    ----------
    plugin, parameters
        The method and all its parameters, defaults too, as plain values.
    before, after
        Reports on the held-out rows: of the same learner without mitigation (or of the given model), and of
        the exported file.
    onnx
        The file's bytes; `after` has their digest.
    baseline_onnx
        The bytes of the model that `before` is about.
    fitted
        The model in memory.
    train_rows, test_rows
        How many rows each part has.
    notes
        What the user must know.
    held_out
        What the method itself measured on the held-out rows.
    repeats
        Group metrics over several trainings, where they were asked for.
    is_constant
        Whether the model decides all people alike; the command then ends with exit code 3.
    is_useless
        Whether no model would serve as well (`fairkit_repair.mitigation.learned.is_useless`); exit code 3, too.
    search
        What a search under a policy tried, where the method was found by one.
    randomized
        Whether some decisions of the file are drawn by chance.
    reads
        The sensitive columns that the file reads.
    people
        Decisions before and after, and who gets another answer; None where outcomes are not two.
    """

    plugin: str
    parameters: Mapping[str, Any]
    before: Report
    after: Report
    onnx: bytes
    baseline_onnx: bytes
    fitted: FittedModel
    train_rows: int
    test_rows: int
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    held_out: Mapping[str, Any] = field(default_factory=dict)
    repeats: tuple[Repeated, ...] = ()
    is_constant: bool = False
    is_useless: bool = False
    search: Study | None = None
    randomized: bool = False
    reads: tuple[str, ...] = ()
    people: People | None = None

    @property
    def alarms(self) -> tuple[str, ...]:
        """The notes that no view may leave out: the model is constant, worse than no model, or hardly better."""
        return tuple(note for note in self.notes if note.startswith(ALARM))

    def __repr__(self) -> str:
        """Return a line."""
        verdict = f": {self.after.verdict}" if self.after.verdict else ""
        return f"<MitigationResult of {self.plugin} on {self.test_rows:,} held-out rows{verdict}>"

    def __str__(self) -> str:
        """Return the line, and one for each number that is significantly better or worse."""
        changed = [change for change in self.changes if change.group is None and change.outcome in ("better", "worse")]
        return "\n".join([repr(self), *(str(change) for change in changed if "class" not in change.parameters)])

    @property
    def sha256(self) -> str:
        """The digest of the file."""
        return digest(self.onnx)

    @property
    def details(self) -> Mapping[str, Any]:
        """What happened during training, and what the method measured since; plain JSON values."""
        return dict(self.fitted.details) | dict(self.held_out)

    def save(self, path: str | Path) -> Path:
        """Write the file, atomically, and beside it what the method attaches, such as a frontier's drawing.

        Raises
        ------
        FairkitError
            The folder does not exist or is not writable.
        """
        target = Path(path)
        write_atomic(target, self.onnx)
        attached = self.fitted.attachments(self.details) if isinstance(self.fitted, Attaches) else {}
        for suffix, text in attached.items():
            write_atomic(target.with_suffix(suffix), text.encode())
        return target

    def plot(self, name: str = "changes") -> Any:
        """Return a chart of the page as Altair's: the changes on the held-out rows, with paired intervals.

        Raises
        ------
        MissingExtraError
            Altair is not installed.
        """
        return plotted(self, name, None)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, schema ``fairkit.mitigation/1``."""
        return {
            "schema": "fairkit.mitigation/1",
            "plugin": self.plugin,
            "parameters": dict(self.parameters),
            "model": {"sha256": self.sha256, "bytes": len(self.onnx)},
            "rows": {"train": self.train_rows, "test": self.test_rows},
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "changes": [change.to_dict() for change in self.changes],
            "details": dict(self.details),
            "notes": list(self.notes),
            "is_constant": self.is_constant,
            "is_useless": self.is_useless,
        } | self._more()

    def _more(self) -> dict[str, Any]:
        """Return the entries that only some results have."""
        result = record(self.randomized, self.reads, self.changes)
        if self.repeats:
            result["repeats"] = [repeat.to_dict() for repeat in self.repeats]
        if self.people is not None:
            result["people"] = self.people.to_dict()
        if self.search is not None:
            result["search"] = self.search.to_dict()
        return result


@checked
def mitigate(
    plugin: str | type[Mitigator] | Mitigator,
    data: Dataset,
    *,
    test: Dataset | None = None,
    holdout: float = 0.2,
    model: Any = None,
    options: ModelOptions | None = None,
    learner: Any = None,
    task: Task | None = None,
    seed: int = 0,
    threads: int | None = None,
    policy: Policy = (),
    max: Mapping[str, float] | None = None,
    min: Mapping[str, float] | None = None,
    confidence: float = 0.95,
    repeats: int = 1,
    objective: str | None = None,
    value: str | None = None,
    threshold: float | None = None,
    output: str | Path | None = None,
    progress: Progress = no_progress,
    **parameters: Any,
) -> MitigationResult:
    """Train or repair a model so that it treats people more alike, and measure it before and after.

    Parameters
    ----------
    plugin
        The method's name, such as ``"fairgbm"``, or a mitigator (class).
    data
        Rows to learn from, from `fairkit.load_data`.
    test
        Rows to audit on. Without them a share of `data` is held out, drawn evenly from every group and class.
    holdout
        That share, in (0, 1).
    model
        The base model, for post-processing: a path, bytes, or `OnnxModel`.
    options
        What cannot be guessed about its outputs, as in `fairkit.audit`.
    learner
        For methods that take one: a name, or an estimator of scikit-learn's kind, which is cloned.
    task
        Default: told by the label.
    seed
        For every random draw.
    threads
        Default: one below 50,000 rows, else left to the libraries.
    policy
        Rules that the result is judged by (`after.verdict`).
    max, min
        More rules: limits by name, ``max={"demographic_parity_difference:sex": 0.1}``.
    confidence
        Of the intervals.
    repeats
        How many models to train in all. Those after the first are trained on rows drawn anew with replacement, each
        with the next seed; they show how far retraining moves the numbers, which no interval covers.
    objective, value
        What thresholds are set for, as in `repair`: the default with a model keeps its selection rate.
    threshold
        The given model's threshold, in place of that of `options`.
    output
        Where the result will be saved: checked before training, written at the end.
    progress
        Told about every round.
    **parameters
        The method's own, as Python values or text.

    Returns
    -------
    MitigationResult
        Equal for equal inputs.

    Raises
    ------
    FairkitError
        The plugin, its parameters, the data or the model cannot be used.

    Examples
    --------
    >>> data = fairkit.load_data("adult.parquet", label="income", favorable=">50K",
    ...                          sensitive="sex")                                      # doctest: +SKIP
    >>> fairkit.mitigate("fairgbm", data, constraint="equal_opportunity").save("fair.onnx")          # doctest: +SKIP
    """
    as_dataset(data)
    if output is not None:
        check_writable(Path(output))
    rules = rules_of(policy, max, min)
    check_policy(rules, data)
    method = as_mitigator(plugin, parameters)
    base = base_model(method, model, at_threshold(options, threshold))
    aim = aim_of(data, task, objective, value, given=base is not None)
    if base is not None and (objective, value) != (None, None):
        check_objective(method, aim)
    run = Run(seed=seed, threads=threads, learner=as_learner(learner), progress=progress, objective=aim)
    check_repeats(repeats)
    with opened(None, None) as running:
        learned = learn_here(running, method, data, test, holdout, task, run, base)
        result = measured(running, learned, method, rules, confidence, run)
        if repeats > 1:
            result = _repeated(running, result, learned, method, base, run, repeats, confidence)
    if output is not None:
        result.save(output)
    return result


def measured(
    engine: Engine, learned: Learned, method: Mitigator, policy: Sequence[Rule], confidence: float, run: Run
) -> MitigationResult:
    """Audit before and after, and compare, in one pass over the held-out rows."""
    fitted, table = learned.fitted, learned.table
    classes = tuple(map(value_text, table.classes)) if table.task == "multiclass" else None
    plain = ModelOptions(task=table.task, classes=classes)
    repaired = dataclasses.replace(plain, rename=learned.baseline.said.rename)
    held_out: dict[str, Any] = {}
    if isinstance(fitted, MeasuresItself):  # the rows are read only where a method measures something on them
        held_out |= fitted.held_out(Table.from_dataset(learned.compared, table.task), confidence)
    with TemporaryDirectory() as folder:
        auditors = fitted.audits(Path(folder)) if isinstance(fitted, NamesAudits) else {}
        settings = AuditSettings(
            auditors=(*DEFAULT_AUDITORS, *auditors),
            parameters=auditors,
            policy=tuple(policy),
            confidence=confidence,
            seed=run.seed,
        )
        asked = LoadedAuditors.of(settings)
        models = [learned.baseline, learned.model]
        options = [method.model_options() if isinstance(method, RepairsModels) else plain, repaired]
        (before, after), comparison = audit_beside(
            engine, models, learned.test, asked, options, run.progress, compared=learned.compared
        )
    constant = treats_all_alike(fitted, table, after)
    people = _people(learned, run, confidence)
    majority = below_majority(table, after) if run.objective.kind == "accuracy" else ()
    alarms = (CONSTANT,) if constant else (*majority, *gives_up(table, before, after), *_moved(method, people))
    return MitigationResult(
        plugin=method.name,
        parameters=parameters_to_dict(method.parameters),
        before=before,
        after=after,
        onnx=learned.model.content,
        baseline_onnx=learned.baseline.content,
        fitted=fitted,
        train_rows=len(table),
        test_rows=before.data.rows,
        changes=comparison.changes[0],
        notes=(*alarms, *fitted.notes, *learned.notes, *held_out.pop("notes", ())),
        held_out=held_out,
        is_constant=constant,
        is_useless=is_useless(table, after),
        randomized=is_randomized(fitted, learned.model),
        reads=sensitive_inputs(learned.model, table),
        people=people,
    )


def _people(learned: Learned, run: Run, confidence: float) -> People | None:
    """Compare the decisions on the test rows before and after."""
    if learned.table.task != "binary":
        return None
    column = run.objective.column
    table = valued(Table.from_dataset(learned.compared, "binary"), learned.compared, column)
    if learned.table.groups:
        table = dataclasses.replace(table, groups={n: table.groups[n] for n in learned.table.groups})
    try:
        before = BaseModel(learned.baseline, table, ModelOptions(task="binary")).decisions(table.columns)
    except ModelError:  # a base that draws decisions by chance
        return None
    prediction = learned.fitted.predict(table.columns)
    after = prediction.decision_probability
    after = (prediction.score >= _HALF).astype(float) if after is None else after
    return people_of(table, before, after, run.objective, confidence)


def _moved(method: Mitigator, people: People | None) -> tuple[str, ...]:
    """Say where the selection rate is surely not kept on the test rows, though it was the objective."""
    if people is None or people.objective.kind != "rate":
        return ()
    first, last = people.approved.before, people.approved.after
    # the two decisions differ for a share c of people: the difference of the rates has a variance of at most c / n
    if abs(last - first) <= KEPT + 2 * (people.changed / people.rows) ** 0.5:
        return ()
    return (
        f"{ALARM}not at its operating point: {method.name} does not keep the selection rate, which is {first:.3f} "
        f"before and {last:.3f} after. threshold-optimizer keeps it.",
    )


def _repeated(
    engine: Engine,
    result: MitigationResult,
    learned: Learned,
    method: Mitigator,
    base: OnnxModel | None,
    run: Run,
    repeats: int,
    confidence: float,
) -> MitigationResult:
    """Train again on rows drawn anew, and audit on the same test rows."""

    def train(table: Table, seed: int) -> Report:
        quiet = dataclasses.replace(run, seed=seed, progress=no_progress)
        with training(method, table, quiet):
            ((_, content),) = fit_files([method], table, quiet, base)
        again, options = OnnxModel(content, "again", sandbox=foreign(base)), ModelOptions(task=table.task)
        return audit(again, learned.test, confidence=confidence, seed=seed, options=options, engine=engine)

    reports, notes = retrained(repeats, run.seed, learned.table, result.after, train)
    return dataclasses.replace(result, repeats=reports, notes=(*result.notes, *notes))
