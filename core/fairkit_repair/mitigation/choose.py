"""Which method, and which model it repairs: from names and files to objects, checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit import plugins
from fairkit.capabilities import constraint_of
from fairkit.data.arrow_types import as_arrow
from fairkit.data.dataset import BATCH_ROWS, Dataset
from fairkit.data.roles import value_text
from fairkit.data.table import fixed_roles
from fairkit.data.task import choose_task
from fairkit.errors import DataError, FairkitError, ParameterError, PluginError, PolicyError, did_you_mean
from fairkit.mitigators import Mitigator
from fairkit.objective import Objective
from fairkit.parameters import parse_parameters
from fairkit.settings import DEFAULT_AUDITORS, ModelOptions
from fairkit.support.calls import named_class
from fairkit.support.files import record_of
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from fairkit.data.table import Table
    from fairkit.data.task import Task
    from fairkit.results.report import Report
    from fairkit.results.rules import Rule
    from fairkit_onnx.file import OnnxModel

    Array = NDArray[np.float64]


def as_mitigator(plugin: str | type[Mitigator] | Mitigator, parameters: Mapping[str, Any]) -> Mitigator:
    """Make a mitigator with checked parameters from a name, a class, or an instance (whose own they change)."""
    if isinstance(plugin, Mitigator):
        if not parameters:
            return plugin
        fields = {field.name: getattr(plugin.parameters, field.name) for field in dataclasses.fields(plugin.parameters)}
        return type(plugin)(parse_parameters(plugin.Parameters, fields | dict(parameters), owner=plugin.name))
    return find_mitigator(plugin).with_values(parameters)


def find_mitigator(plugin: str | type[Mitigator]) -> type[Mitigator]:
    """Return a mitigator's class by its plugin's name."""
    if not isinstance(plugin, str):
        return plugin
    loaded = plugins.load(plugin)
    if not loaded.mitigators:
        names = [row.found.name for row in plugins.explain_all() if "mitigator" in row.kinds]
        hint = did_you_mean(plugin, names, what="mitigators")
        raise PluginError(f"the plugin {plugin!r} has no mitigator. {hint}")
    return loaded.mitigators[0]


def plugins_of(methods: Iterable[str]) -> list[plugins.Plugin]:
    """Return the plugins of methods, where they are installed."""
    installed = {info.name for info in plugins.find()}
    return [plugins.load(name) for name in methods if name in installed]


def base_model(method: Mitigator, model: Any, options: ModelOptions | None = None) -> OnnxModel | None:
    """Load the model that a method repairs; None for methods that train their own."""
    if method.stage == "post" and model is None:
        raise ParameterError(f"{method.name} repairs a given model: name it with `model`")
    if method.stage != "post" and model is not None:
        raise ParameterError(f"{method.name} trains its own model: leave out `model`")
    return loaded_base(model, options)


def aim_of(data: Dataset, task: Task | None, text: str | None, value: str | None, *, given: bool) -> Objective:
    """Return what thresholds are set for; an objective is for two outcomes."""
    if choose_task(data, task) == "binary":
        return Objective.parse(text, value, given=given)
    if (text, value) != (None, None):
        raise ParameterError("an objective is for approvals, and outcomes here are not two: leave it out")
    return Objective()


def check_objective(method: Mitigator | type[Mitigator], objective: Objective) -> None:
    """Refuse an objective that a rule on scores cannot be set for."""
    if objective.kind not in getattr(method, "objectives", ("accuracy",)):
        raise ParameterError(
            f"{method.name} cannot be set for the objective {objective.kind}; threshold-optimizer can, and a search "
            "under a policy finds what does"
        )


def loaded_base(model: Any, options: ModelOptions | None) -> OnnxModel | None:
    """Load a model that is repaired, with what the user says of its outputs; None where there is none."""
    from fairkit_onnx.file import OnnxModel

    said = dataclasses.replace(options, task=None) if options is not None else ModelOptions()
    if model is None:
        names = [field.name for field in dataclasses.fields(said)]
        said.refuse(names, "it is about the outputs of a given model, and none is given")
        return None
    if hasattr(model, "predict") and not isinstance(model, OnnxModel):
        raise ParameterError(
            f"`model` is {named_class(model)} in memory, and a file is repaired: write it by fairkit.to_onnx(model, X, "
            "'model.onnx') and give that"
        )
    base = model if isinstance(model, OnnxModel) else OnnxModel.load(model)
    base.said = said.over(base.said)
    return base


# What a repair does to people: who gets the favorable decision before and after, and who gets another answer.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A number before and after."""

    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveChange:
    """The objective's value before and after, with a paired interval of the difference."""

    kind: str
    name: str
    before: float
    after: float
    difference: float
    interval: tuple[float, float]

    @property
    def outcome(self) -> str:
        """``better``, ``worse``, or ``not significant``."""
        low, high = self.interval
        return "better" if low > 0 else "worse" if high < 0 else "not significant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """How many people of a group get another answer in one direction, as expected under a rule that draws."""

    sensitive: str
    group: str
    size: int
    to_favorable: float
    to_unfavorable: float


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """The decisions on the test rows before and after; shares are weighted where rows are."""

    rows: int
    approved: Pair
    approved_bad: Pair | None  # among people whose outcome is not the favorable one
    label: str  # the outcome's column, and the value that is not favorable
    bad: str
    favorable: str
    changed: float  # the share of people who get another answer
    moves: tuple[Move, ...]
    objective: ObjectiveChange

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return record_of(self) | {"objective": record_of(self.objective) | {"outcome": self.objective.outcome}}


def people_of(table: Table, before: Array, after: Array, objective: Objective, confidence: float) -> People:
    """Compare chances of the favorable decision, [n] each, on the rows of a table."""
    weights = table.row_weights()
    bad = table.target <= 0

    def pair(rows: NDArray[np.bool_]) -> Pair | None:
        if not weights[rows].sum() > 0:
            return None
        first, last = (float(np.average(each[rows], weights=weights[rows])) for each in (before, after))
        return Pair(before=first, after=last)

    moves = [
        Move(
            sensitive=split,
            group=name,
            size=int((members := groups.codes == code).sum()),
            to_favorable=float(np.maximum(after - before, 0)[members].sum()),
            to_unfavorable=float(np.maximum(before - after, 0)[members].sum()),
        )
        for split, groups in table.groups.items()
        for code, name in enumerate(groups.names)
    ]
    (first, pull_before), (last, pull_after) = (objective.measure(table, each) for each in (before, after))
    apart = pull_after - pull_before
    error = float(np.sqrt((weights**2 * apart**2).sum()) / weights.sum())
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * error
    whole = pair(np.ones(len(table), dtype=bool))
    assert whole is not None  # noqa: S101 -- an audit has rows
    return People(
        rows=len(table),
        approved=whole,
        approved_bad=pair(bad),
        label=table.roles.label or "",
        bad=value_text(table.classes[0]),
        favorable=value_text(table.classes[-1]),
        changed=float(np.average(np.abs(after - before), weights=weights)),
        moves=tuple(moves),
        objective=ObjectiveChange(
            kind=objective.told(),
            name=objective.label,
            before=first,
            after=last,
            difference=last - first,
            interval=(last - first - reach, last - first + reach),
        ),
    )


# Holding rows out: a share of every stratum, drawn from the seed.


MOST_CLASSES = 20
"""A label of more values is no stratum."""
_WIDE = 2**31


def split_dataset(data: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """Split a dataset's rows into two datasets, evenly within every combination of groups and label.

    Rankings are split by queries: the items of a query stay together.
    """
    import pyarrow as pa

    from fairkit.data.sources import open_source

    if not 0 < share < 1:
        raise ParameterError(f"holdout={share} is not a share; it is between 0 and 1, such as 0.2")
    batch, rng = data.read(()), np.random.default_rng(seed)
    if batch.queries is not None:
        names, codes = np.unique(batch.queries, return_inverse=True)
        chosen = np.zeros(len(names), dtype=bool)
        chosen[rng.permutation(len(names))[: min(len(names) - 1, round(share * len(names)))]] = True
        held_out = np.asarray(chosen[codes.ravel()])
    else:
        held_out = stratified(_strata(data, batch), share, rng)
    whole = pa.Table.from_batches(list(data.source.batches(data.columns, BATCH_ROWS)))
    roles = fixed_roles(data)
    parts = []
    for rows, name in ((batch.rows[~held_out], "training part"), (batch.rows[held_out], "held-out part")):
        if len(rows) == 0:
            raise DataError(f"{data.name}: too few rows ({len(held_out)}) to hold out {share:g} of them; give `test`")
        parts.append(Dataset(open_source(whole.take(as_arrow(rows)), f"{data.name}, {name}"), roles))
    return parts[0], parts[1]


def stratified(strata: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask of about `share` of the rows of every stratum, shape [n].

    A stratum of one row keeps it out of the mask.
    """
    in_stratum = np.zeros(len(strata), dtype=bool)
    for stratum in np.unique(strata):
        places = rng.permutation(np.flatnonzero(strata == stratum))
        in_stratum[places[: min(len(places) - 1, round(share * len(places)))]] = True
    return in_stratum


def strata_of(codes: Iterable[NDArray[Any]], rows: int) -> NDArray[np.int64]:
    """Number the combinations of several codings of the rows, in the order of the first, then the second, ..."""
    strata, count = np.zeros(rows, dtype=np.int64), 1
    for code in codes:
        size = int(code.max(initial=0)) + 1
        if count > _WIDE // size:
            present, strata = np.unique(strata, return_inverse=True)
            strata, count = strata.ravel().astype(np.int64), len(present)
        strata, count = strata * size + code, count * size
    return strata


def _strata(data: Dataset, batch: Any) -> NDArray[np.int64]:
    """Number the combinations of groups and label."""
    codes = [batch.groups[split.name] for split in data.roles.sensitive]
    if batch.favorable is not None:
        codes.append(batch.favorable.astype(np.int64))
    elif batch.label is not None and 0 < len(data.profile.label_values) <= MOST_CLASSES:
        codes.append(np.unique(batch.label.astype(str), return_inverse=True)[1])
    return strata_of(codes, len(batch))


# Retraining: how far the numbers go when the same method is trained again on rows drawn anew, with another seed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """One number over several trainings."""

    metric: str  # as in the finding
    sensitive: str | None
    values: tuple[float, ...]  # the saved model's first, then those of the models trained again

    @property
    def deviation(self) -> float:
        """The standard deviation over trainings."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "metric": self.metric,
            "sensitive": self.sensitive,
            "values": list(self.values),
            "mean": float(np.mean(self.values)),
            "standard_deviation": self.deviation,
            "low": min(self.values),
            "high": max(self.values),
        }


def check_repeats(repeats: int) -> None:
    """Refuse a number of trainings that cannot be."""
    if repeats < 1:
        raise ParameterError(f"repeats={repeats} is below 1; 1 trains once, 5 shows how far retraining goes")


def drawn_anew(table: Table, seed: int) -> Table:
    """Return as many rows, drawn with replacement."""
    rng = np.random.default_rng([seed, *b"repeats"])
    return table.take(rng.integers(0, len(table), len(table)))


def retrained(
    repeats: int, seed: int, table: Table, first: Report, train: Callable[[Table, int], Report]
) -> tuple[tuple[Repeated, ...], tuple[str, ...]]:
    """Train again and again."""
    reports, notes = [first], []
    for turn in range(1, repeats):
        try:
            reports.append(train(drawn_anew(table, seed + turn), seed + turn))
        except FairkitError as error:
            notes.append(f"Training {turn + 1} of {repeats}, on rows drawn anew, failed: {error}")
    return (gathered(reports) if len(reports) > 1 else ()), tuple(notes)


def gathered(reports: Sequence[Report]) -> tuple[Repeated, ...]:
    """Return every group metric that all reports have, over all classes."""
    tables = [
        {
            (f.metric, f.sensitive): f.value
            for f in report.findings
            if f.auditor in DEFAULT_AUDITORS and f.value is not None and "class" not in f.parameters
        }
        for report in reports
    ]
    return tuple(
        Repeated(metric=metric, sensitive=sensitive, values=tuple(table[metric, sensitive] for table in tables))
        for metric, sensitive in tables[0]
        if all((metric, sensitive) in table for table in tables)
    )


# A policy before anything is trained: columns that are there, limits that can be kept together.


def check_policy(rules: Sequence[Rule], data: Dataset) -> None:
    """Refuse rules that no audit of this data can decide."""
    names = [split.name for split in data.roles.sensitive]
    inside = [split.columns for split in data.roles.within]
    for rule in rules:
        if rule.within and rule.within not in inside:
            raise PolicyError(
                f"the policy asks {rule.metric!r} inside the strata of {'+'.join(rule.within)!r}; name them "
                "as `within` in the settings of the data"
            )
        column = None if rule.sensitive is None else rule.sensitive.partition("|")[0]
        if column is not None and column not in names:
            raise PolicyError(
                f"the policy asks {rule.metric!r} for {column!r}, which is not among the sensitive columns; "
                f"name it with `sensitive`. {did_you_mean(column, names, what='sensitive columns')}"
            )
        _check_range(rule)
    for index, one in enumerate(rules):
        for later in rules[index + 1 :]:
            _check_pair(one, later)


def _check_range(rule: Rule) -> None:
    below = rule.upper and rule.limit < 0 and rule.metric.endswith(("_difference", "_ratio"))
    above = not rule.upper and rule.limit > 1 and rule.metric.endswith("_ratio")
    if below or above:
        raise PolicyError(f"no model can keep the policy rule {rule.metric} {rule.say()}: it lies between 0 and 1")


def _check_pair(one: Rule, other: Rule) -> None:
    same = constraint_of(one.metric) == constraint_of(other.metric) and _ending(one) == _ending(other)
    if not same or (None not in (one.sensitive, other.sensitive) and one.sensitive != other.sensitive):
        return
    for low, high in ((one, other), (other, one)):
        if high.upper and not low.upper and low.limit > high.limit:
            raise PolicyError(
                f"two policy rules contradict each other: {low.metric} {low.say()}, and {high.metric} {high.say()}; "
                "leave one of them out"
            )


def _ending(rule: Rule) -> str:
    return next((end for end in ("_difference", "_ratio") if rule.metric.endswith(end)), rule.metric)
