"""The search: draws of the laws, methods of the house, the user's files; one look at the test rows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.loading import as_dataset
from fairkit.data.table import Table
from fairkit.engines.local import LocalEngine
from fairkit.errors import DataError, ParameterError
from fairkit.fitted import Run
from fairkit.objective import Objective
from fairkit.plugins.loading import one_line
from fairkit.progress import Progress, no_progress
from fairkit.settings import ModelOptions, at_threshold
from fairkit.support.calls import checked
from fairkit.support.files import write_atomic
from fairkit.support.lazy_dataclass import dataclass
from fairkit_alternatives.laws import Law, independent_weights, sensitive_columns
from fairkit_alternatives.record import Alternatives, close_draws, entry_of
from fairkit_alternatives.statements import Aim, Disagreement, PairedCounts, denominators, resolution
from fairkit_onnx.file import OnnxModel
from fairkit_onnx.write.export import BaseModel, TabularModel, export_bytes
from fairkit_repair.learners import check_target, encoder_for, fit_estimator
from fairkit_repair.mitigation.choose import find_mitigator, loaded_base, split_dataset
from fairkit_repair.mitigation.learned import check_leak, fit_files
from fairkit_repair.postprocess import common_threshold
from fairkit_repair.repairing.run import identity_of, record_look
from fairkit_repair.scored_rows import ScoredRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset

    Bits = NDArray[np.bool_]

_OBJECTIVES = ("rate", "accuracy", "cost")
_STEPS = 6
SELECTION = 0.3
"""The share of the test rows that chooses where no selection rows are given.

Not of the rows to learn from: the model in use learned from them, and would look better there than it is.
"""


@dataclass(frozen=True, slots=True)
class Rows:
    """Selection or test rows: what decisions are made and counted on."""

    table: Table
    codes: NDArray[np.int64]
    decided: Bits  # by the model in use


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all draws share."""

    train: Table
    codes: NDArray[np.int64]  # crossed groups of the training rows
    parts: tuple[Rows, Rows]  # selection, test
    laws: Mapping[str, Law]
    objective: Objective
    train_sha256: str
    rows: str  # digests of the training, selection and test rows
    groups: tuple[tuple[str, ...], ...]  # one of each sensitive column that is asked about, crossed


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """An alternative: a draw, or a method's or the user's file."""

    entry: Mapping[str, Any]  # as among the candidates of `Alternatives`
    decisions: tuple[Bits, Bits] | None  # on selection and test rows; None where a draw failed
    content: bytes | None = None  # the file; None of a draw
    failed: str = ""  # why, in the words of the first line of the error

    @property
    def key(self) -> tuple[str, int]:
        """Law and number of a draw."""
        return self.entry["law"], self.entry["draw"]


@checked
def alternatives(
    model: Any,
    data: Dataset,
    *,
    test: Dataset,
    selection: Dataset | None = None,
    metric: str = "demographic_parity_difference",
    laws: Sequence[Law | str] = ("reweigh",),
    plugins_tried: Sequence[str] = (),
    candidates: Mapping[str, str | Path | bytes] | None = None,
    loss: float = 0.005,
    reduction: float = 0.02,
    share: float = 0.02,
    objective: str = "rate",
    threshold: float | None = None,
    options: ModelOptions | None = None,
    blind: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
    jobs: int | None = None,
    state: str | Path | None = None,
    progress: Progress = no_progress,
) -> Alternatives:
    """Search models with less disparity than one in use, and say what the search shows about them.

    What is asked is declared before any test row is read: the loss that would be accepted, the reduction that counts,
    the laws with their numbers of draws. `reference/measured` has how often the four statements are false.

    Parameters
    ----------
    model
        The model in use: a path or bytes of an ONNX file, or an `OnnxModel`.
    data
        Rows to learn from.
    test
        Rows that trained nothing, neither the model in use nor an alternative, and chose nothing.
    selection
        Other such rows, which choose the pick and the thresholds; None: .3 of `test`, which then tell nothing else.
    metric
        ``METRIC`` or ``METRIC:COLUMN``: a difference or ratio of a rate between groups, by default of each sensitive
        column: several share the level.
    laws
        Laws of draws, or names of built-in ones (bootstrap, reweigh, seeds, settings).
    plugins_tried
        Methods whose models are tried too, each in the ways that its capabilities name; for *found* and *none*.
    candidates
        More models by name: paths or bytes of ONNX files; for *found* and *none*.
    loss
        ε: the loss of accuracy, or of cost per person, that would be accepted.
    reduction
        δ: the reduction of the disparity that would count, above 0.
    share
        p, in (0, 1): so many draws are made that one more finds such a model with at most this chance, if none does.
    objective
        ``rate``: each alternative accepts as many selection rows as the model in use; ``accuracy``; ``cost=5:1``, of a
        false approval and a false refusal, which are then what is lost.
    threshold, options
        About the outputs of `model`, as in `fairkit.audit`.
    blind
        Whether models that read a sensitive column are left out.
    confidence
        Of each statement, in (0.5, 1).
    seed
        Of that split.
    jobs
        Draws at a time; by default as many as there are cores.
    state
        A folder that keeps finished draws: the same call goes on where it was stopped.
    progress
        Told how many are finished.

    Returns
    -------
    Alternatives
        With `columns`, each with `found`, `none`, `one_more`, `arbitrary`, and `told()`; equal for equal inputs.

    Raises
    ------
    FairkitError
        The data, the model, a law or a number cannot be used.
    """
    _check_numbers(loss, reduction, share, confidence)
    goal = _goal(objective)
    name, _, column = metric.partition(":")
    splits = _splits_of(test, column)
    level = round(1 - confidence, 12)
    aim = Aim.of(name, loss=loss, reduction=reduction, share=share, costs=goal.costs or (1.0, 1.0),
                 alpha=level / len(splits))  # fmt: skip
    declared = _declared(laws, aim)
    base = _base(model, options, threshold)
    setup, digests = _setup(base, data, test, selection, splits, declared, goal, seed)
    for law in declared:
        if _reads(law, setup) and blind:
            raise ParameterError(f'the law {law.name!r} reads a sensitive column: write without = ["sensitive"]')
    train = setup.train
    about = {
        "metric": name, "sensitive": list(splits), "groups": [*map(list, setup.groups)],
        "label": str(train.roles.label), "favorable": str(train.roles.favorable), "loss": loss, "reduction": reduction,
        "share": share, "alpha": level, "costs": list(aim.costs), "objective": goal.told(), "blind": blind,
        "seed": seed, "selected_from_test": selection is None, **digests, "version": version("fairkit"),
    }  # fmt: skip
    settings = {
        "laws": [law.to_dict() for law in declared],
        "plugins": list(plugins_tried),
        "files": sorted(candidates or {}),
    }
    look_number = record_look(test.sha256, identity_of({**about, **settings}, {}, seed, setup.train_sha256), None)
    draws = _draws(setup, declared, state, about, jobs, progress)
    files = _files(setup, base, plugins_tried, candidates or {}, aim, blind=blind)
    return _result(about | {"look": look_number.number}, declared, [*draws, *files], setup)


def planned(
    test: Dataset, metric: str, laws: int = 1, confidence: float = 0.95, *, whole: bool = False, **numbers: float
) -> tuple[int, float]:
    """Return how many draws of each law are needed, and the smallest reduction that the test rows tell.

    These are all of them where the `whole` table is for the test, else .7 of them.
    """
    as_dataset(test).learn()
    name, _, column = metric.partition(":")
    splits = _splits_of(test, column)
    aim = Aim.of(name, alpha=(1 - confidence) / len(splits), **numbers)
    table = _table(test, splits)
    nobody = np.zeros(len(table), dtype=bool)
    groups = [table.groups[split] for split in splits]
    cells = [PairedCounts.of_rows(group.codes, table.target, nobody, [], len(group.names)) for group in groups]
    share = 1.0 if whole else 1 - SELECTION
    # trainings of one learner decide .01 to .06 of the rows otherwise
    return aim.draws(laws), max(resolution(share * denominators(cell, aim), 0.04) for cell in cells)


def recheck(
    evidence: Alternatives,
    model: Any,
    data: Dataset,
    *,
    test: Dataset,
    selection: Dataset | None = None,
    threshold: float | None = None,
    options: ModelOptions | None = None,
    share: float = 0.1,
    progress: Progress = no_progress,
) -> int:
    """Train a share of the draws again, drawn from a secret of this run; return how many, all with the signed counts.

    The model and the rows are those of the search; others, and a draw with other counts, are a `DataError`.
    """
    about = evidence.about
    goal = _goal(about["objective"])
    base = _base(model, options, threshold)
    splits = tuple(about["sensitive"])
    setup, digests = _setup(base, data, test, selection, splits, evidence.laws, goal, about["seed"])
    differing = [name.removesuffix("_sha256") for name, digest in digests.items() if about[name] != digest]
    if differing:
        raise DataError(f"the evidence is of another lot: {', '.join(differing)}")
    signed = {(candidate["law"], candidate["draw"]): index for index, candidate in enumerate(evidence.candidates)}
    keys = [(law.name, number) for law in evidence.laws for number in range(law.draws or 0)]  # failed ones, too
    chosen = sorted(secrets.SystemRandom().sample(keys, max(1, math.ceil(share * len(keys)))))
    wrong = []
    for count, key in enumerate(chosen):
        progress("training draws again", count, len(chosen))
        made, place = train_draw(key, setup), signed.get(key)
        again = [] if made.decisions is None else _counted(setup, [made.decisions])
        said = [] if place is None else [part.take([place]) for part in (evidence.selection, evidence.test)]
        if [column.lines() for column in again] != [column.lines() for column in said]:
            wrong.append(made.entry["name"])
    progress("training draws again", len(chosen), len(chosen))
    if wrong:
        raise DataError(
            f"{len(wrong)} of {len(chosen)} draws that were trained again decide otherwise: {', '.join(wrong[:5])}. "
            f"The evidence is made up, or was made with other versions ({about['version']})"
        )
    return len(chosen)


def _goal(text: str) -> Objective:
    goal = Objective.parse(text, given=True)
    if goal.kind not in _OBJECTIVES or (goal.kind == "cost" and goal.costs is None):
        raise ParameterError(f"objective={text}: alternatives keep the rate, or aim at accuracy or cost=A:B")
    return goal


def _base(model: Any, options: ModelOptions | None, threshold: float | None) -> OnnxModel:
    base = loaded_base(model, at_threshold(options, threshold) or ModelOptions(task="binary"))
    if base is None:
        raise ParameterError("name the model in use: a path or bytes of an ONNX file")
    return base


def _setup(
    base: OnnxModel,
    data: Dataset,
    test: Dataset,
    selection: Dataset | None,
    splits: tuple[str, ...],
    laws: Sequence[Law],
    goal: Objective,
    seed: int,
) -> tuple[Setup, dict[str, str]]:
    """Read and split the rows, and let the model in use decide; return the digests of all with it."""
    for source in (data, test):
        as_dataset(source).learn()
    tested_rows, chosen = (test, selection) if selection is not None else split_dataset(test, SELECTION, seed)
    train, *others = tables = [_table(part, splits) for part in (data, chosen, tested_rows)]
    for part in others:
        check_leak(train, part)
    check_leak(others[0], others[1])
    check_target(train)
    names = [others[1].groups[split].names for split in splits]
    own = [np.stack([*map(_codes, [table] * len(splits), names, splits)], axis=1) for table in tables]
    crossed, codes = np.unique(np.concatenate(own), axis=0, return_inverse=True)
    learned, *shown = np.split(codes.reshape(-1), np.cumsum([*map(len, own)])[:-1])
    selected, tested = (Rows(part, codes, _decisions(base, part)) for part, codes in zip(others, shown, strict=True))
    count = len(selected.codes)
    setup = Setup(
        train=train,
        codes=learned,
        parts=(selected, tested),
        laws={law.name: law for law in laws},
        objective=goal.on(selected.decided.astype(float), np.zeros(count), np.ones(count)),
        train_sha256=data.sha256,
        rows=f"{data.sha256} {chosen.sha256} {test.sha256}",
        groups=tuple(tuple(of[code] for of, code in zip(names, cell, strict=True)) for cell in crossed),
    )
    digests = {"model": base.sha256, "train": data.sha256, "selection": chosen.sha256, "test": test.sha256}
    return setup, {f"{name}_sha256": digest for name, digest in digests.items()}


def _check_numbers(loss: float, reduction: float, share: float, confidence: float) -> None:
    for name, value, low, high in (
        ("loss", loss, 0, 1), ("reduction", reduction, 0, 1), ("share", share, 0, 1), ("confidence", confidence, 0.5, 1)
    ):  # fmt: skip
        if not (low < value < high or (name == "loss" and value == 0)):
            raise ParameterError(f"{name}={value:g} is out of range: it lies between {low:g} and {high:g}")


def _declared(laws: Sequence[Law | str], aim: Aim) -> tuple[Law, ...]:
    """Return the laws with their numbers of draws, which are declared with them."""
    made = [Law.named(law) if isinstance(law, str) else law for law in laws]
    if not made:
        raise ParameterError("name at least one law of draws: bootstrap, reweigh, seeds, settings, or one of your own")
    if len({law.name for law in made}) < len(made):
        raise ParameterError("a law is named twice: what it shows does not grow with it")
    draws = aim.draws(len(made))
    return tuple(dataclasses.replace(law, draws=law.draws or draws) for law in made)


def _splits_of(data: Dataset, column: str) -> tuple[str, ...]:
    names = tuple(split.name for split in data.roles.sensitive)
    if not names:
        raise ParameterError("name a sensitive column: whose disparity is it?")
    if column and column not in names:
        raise ParameterError(f"{column!r} is no sensitive column here; there is {', '.join(names)}")
    return (column,) if column else names


def _table(data: Dataset, splits: Sequence[str]) -> Table:
    table = Table.from_dataset(data, "binary")
    roles = data.roles
    if roles.weights is not None or roles.cluster is not None:
        raise DataError(
            f"{data.name}: alternatives are counted in rows that count the same and do not depend on each other; leave "
            "weights and clusters out"
        )
    for split in splits:
        if split not in table.groups or (table.groups[split].codes < 0).any():
            raise DataError(
                f"{data.name}: some rows have no value of {split!r}; leave these rows out, or name their group"
            )
    return table


def _codes(table: Table, groups: Sequence[str], split: str) -> NDArray[np.int64]:
    codes = table.groups[split]
    unknown = [name for name in codes.names if name not in groups]
    if unknown:
        raise DataError(f"{table.name} has the group {unknown[0]!r} of {split}, and the test rows do not")
    return np.array([groups.index(name) for name in codes.names], dtype=np.int64)[codes.codes]


def _decisions(model: OnnxModel, table: Table) -> Bits:
    """Return a file's decisions; one that draws them by chance is refused."""
    decided = BaseModel(model, table, ModelOptions(task="binary")).decisions(table.columns)
    if not np.isin(decided, (0, 1)).all():
        raise DataError(f"{model.name} draws decisions by chance, and these cannot be counted row by row")
    return np.asarray(decided > 0)


def train_draw(key: tuple[str, int], setup: Setup) -> Alternative:
    """Train one draw and let it decide on both lots of rows; one that fails counts as a hit."""
    law = setup.laws[key[0]]
    entry = entry_of(law, key[1], _reads(law, setup))
    try:
        fitted = _fit(law, key[1], setup)
        scores = [_scores(fitted, law, setup, part) for part in (0, 1)]
        cut = _cutoff(scores[0], setup)
        return Alternative(entry=entry, decisions=(scores[0] >= cut, scores[1] >= cut))
    except Exception as error:  # a refusal of drawn settings, the library's own, too
        return Alternative(entry=entry, decisions=None, failed=one_line(error)[:200])


def _reads(law: Law, setup: Setup) -> bool:
    return bool(sensitive_columns(setup.train) & {*law.features(setup.train)})


_ENCODED: dict[Any, Any] = {}
"""In each process the encoder and matrices of the last rows, by learner and columns."""


def _encoded(law: Law, setup: Setup) -> Any:
    key = (setup.rows, law.learner, law.features(setup.train))
    if key not in _ENCODED:
        if len(_ENCODED) >= len(setup.laws):
            _ENCODED.clear()
        encoder = encoder_for(law.learner, dataclasses.replace(setup.train, features=key[-1]))
        tables = (setup.train, setup.parts[0].table, setup.parts[1].table)
        _ENCODED[key] = encoder, [encoder.transform(table.columns) for table in tables]
    return _ENCODED[key]


def _fit(law: Law, number: int, setup: Setup) -> TabularModel:
    draw = law.draw(setup.train_sha256, number)
    encoder, matrices = _encoded(law, setup)
    matrix, target, codes = matrices[0], setup.train.target, setup.codes
    if law.bootstrap:
        places = np.random.default_rng([draw.seed, 1]).integers(0, len(target), len(target))
        matrix, target, codes = matrix[places], target[places], codes[places]
    factors = independent_weights(codes, (target > 0).astype(np.int64), np.ones(len(codes)))
    estimator = fit_estimator(
        law.learner,
        matrix,
        target,
        weights=1.0 + draw.strength * (factors - 1.0) if draw.strength else None,
        task="binary",
        run=Run(seed=draw.seed, threads=1),
        categorical=encoder.categorical,
        settings=draw.settings,
    )
    return TabularModel(encoder=encoder, estimator=estimator, task="binary")


def _scores(fitted: TabularModel, law: Law, setup: Setup, part: int) -> NDArray[np.float64]:
    from fairkit_onnx.write.estimators import score_estimator

    _, matrices = _encoded(law, setup)
    scores = score_estimator(fitted.estimator, matrices[1 + part], "binary")
    return scores.astype(np.float32).astype(np.float64)


def _cutoff(scores: NDArray[np.float64], setup: Setup) -> float:
    """Return the one threshold that the objective takes on the selection rows."""
    rows = setup.parts[0]
    return common_threshold(
        ScoredRows(
            scores=scores,
            codes=np.zeros(len(scores), dtype=np.int64),
            names=("all",),
            favorable=rows.table.target,
            gain=setup.objective.gains(rows.table),
            rate=setup.objective.rate,
        )
    )


def _draws(
    setup: Setup,
    laws: Sequence[Law],
    state: str | Path | None,
    about: Mapping[str, Any],
    jobs: int | None,
    progress: Progress,
) -> list[Alternative]:
    """Make every draw, from the state where it is there."""
    keys = [(law.name, number) for law in laws for number in range(law.draws or 0)]
    state_file = _Kept(
        state, {**about, "laws": [law.to_dict() for law in laws]}, [len(part.codes) for part in setup.parts]
    )
    made = {key: draw for key in keys if (draw := state_file.read(key, setup)) is not None}

    def done(one: Alternative) -> None:
        state_file.write(one)
        made[one.key] = one
        progress("training alternatives", len(made), len(keys))

    missing = [key for key in keys if key not in made]
    progress("training alternatives", len(made), len(keys))
    LocalEngine(max(1, jobs or os.cpu_count() or 1)).each(train_draw, missing, setup, done=done)
    return [made[key] for key in keys]


class _Kept:
    """Finished draws in a folder: packed decisions, a file each, written atomically."""

    def __init__(self, folder: str | Path | None, about: Mapping[str, Any], sizes: Sequence[int]) -> None:
        self.sizes = sizes
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        self.folder = None if folder is None else Path(folder) / digest
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def read(self, key: tuple[str, int], setup: Setup) -> Alternative | None:
        if self.folder is None:
            return None
        path = self.folder / f"{key[0]}-{key[1]}.bits"
        if not path.is_file() or path.stat().st_size != (sum(self.sizes) + 7) // 8:
            return None
        bits = np.unpackbits(np.frombuffer(path.read_bytes(), dtype=np.uint8), count=sum(self.sizes)).astype(bool)
        first, second = np.split(bits, [self.sizes[0]])
        law = setup.laws[key[0]]
        return Alternative(entry=entry_of(law, key[1], _reads(law, setup)), decisions=(first, second))

    def write(self, one: Alternative) -> None:
        if self.folder is not None and one.decisions is not None:
            content = np.packbits(np.concatenate(one.decisions)).tobytes()
            write_atomic(self.folder / f"{one.key[0]}-{one.key[1]}.bits", content)


def _files(
    setup: Setup,
    base: OnnxModel,
    methods: Sequence[str],
    files: Mapping[str, str | Path | bytes],
    aim: Aim,
    *,
    blind: bool,
) -> list[Alternative]:
    """Fit methods in the ways that they name, and load files."""
    models = [(name, OnnxModel.load(file)) for name, file in files.items()]
    for name in methods:
        models += _of_method(name, setup, base, aim)
    made = []
    for name, model in models:
        read = sensitive_columns(setup.train) & {entry.name for entry in model.inputs}
        if blind and read:
            continue
        parts = [_decisions(model, part.table) for part in setup.parts]
        entry = {"name": name, "law": None, "draw": None, "reads_group": bool(read)}
        made.append(Alternative(entry=entry, decisions=(parts[0], parts[1]), content=model.content))
    return made


def _of_method(name: str, setup: Setup, base: OnnxModel, aim: Aim) -> list[tuple[str, OnnxModel]]:
    cls = find_mitigator(name)
    wanted = f"{aim.rate.name}_{aim.kind}"
    ways = [way for way in cls.capabilities if way.meets(wanted) and not way.randomized]
    if not ways or "binary" not in cls.tasks:
        raise ParameterError(
            f"the method {name!r} does not say that it lowers {wanted.replace('_', ' ')}; leave it out"
        )
    if setup.objective.kind not in getattr(cls, "objectives", _OBJECTIVES):
        raise ParameterError(f"{name} cannot be set for the objective {setup.objective.kind}")
    made = []
    for way in ways:
        for settings in list(way.tries(aim.reduction * _STEPS))[:_STEPS]:
            method = cls.with_values({**way.settings, **settings})
            run = Run(threads=1, objective=setup.objective)
            model = base if cls.stage == "post" else None
            ((_, content),) = fit_files([method], setup.train, run, model)
            text = " ".join(f"{key}={value}" for key, value in {**way.settings, **settings}.items())
            made.append((f"{name} {text}".strip(), OnnxModel(content, name)))
    return made


def _result(
    about: Mapping[str, Any], laws: tuple[Law, ...], tried: Sequence[Alternative], setup: Setup
) -> Alternatives:
    """Count, and write the file of the pick."""
    with_decisions = [(draw, draw.decisions) for draw in tried if draw.decisions is not None]
    counts = _counted(setup, [decisions for _, decisions in with_decisions])
    failed = [draw.key for draw in tried if draw.decisions is None]
    reasons = {draw.entry["law"]: draw.failed for draw in reversed(tried) if draw.failed}
    result = Alternatives(
        about={**about, "failed_because": reasons} if reasons else about,
        laws=laws,
        failed={law.name: tuple(number for name, number in failed if name == law.name) for law in laws},
        candidates=tuple(draw.entry for draw, _ in with_decisions),
        selection=counts[0],
        test=counts[1],
        disagreement={},
    )
    disagreement = {}
    for law in laws:
        close = close_draws(result.selection, result.places(law.name), result.aim)
        if len(close) > 1:
            bits = np.stack([with_decisions[index][1][1] for index in close])
            disagreement[law.name] = Disagreement.of_rows(bits, setup.parts[1].codes, len(about["groups"]))
    model = None if result.pick is None else _file_of(*with_decisions[result.pick], setup)
    return dataclasses.replace(result, disagreement=disagreement, model=model)


def _counted(setup: Setup, decisions: Sequence[tuple[Bits, Bits]]) -> list[PairedCounts]:
    """Count decisions on selection and test rows."""
    return [
        PairedCounts.of_rows(
            rows.codes, rows.table.target, rows.decided, [decision[part] for decision in decisions], len(setup.groups)
        )
        for part, rows in enumerate(setup.parts)
    ]


def _file_of(one: Alternative, decisions: tuple[Bits, Bits], setup: Setup) -> bytes:
    """Return the file of the pick; that of a draw, trained again, decides every selection and test row as it did."""
    if one.content is not None:
        return one.content
    content = draw_file(setup.laws[one.key[0]], one.key[1], setup)
    loaded = OnnxModel(content, one.entry["name"])
    pairs = zip(setup.parts, decisions, strict=True)
    differing = sum(int((_decisions(loaded, rows.table) != bits).sum()) for rows, bits in pairs)
    if differing:
        raise DataError(
            f"the file of {loaded.name} decides {differing} rows otherwise than the draw did; this is a bug"
        )
    return content


def draw_file(law: Law, number: int, setup: Setup) -> bytes:
    """Train a draw again and return its file, with its threshold in it."""
    fitted = _fit(law, number, setup)
    rows = setup.parts[0].table
    features = law.features(setup.train)
    rows = dataclasses.replace(rows, features=features, roles=dataclasses.replace(rows.roles, features=features))
    cut = _cutoff(_scores(fitted, law, setup, 0), setup)
    model = dataclasses.replace(fitted, threshold=cut)
    record = {
        "alternative": {
            "law": law.to_dict(),
            "draw": number,
            "seed": law.draw(setup.train_sha256, number).seed,
            "threshold": cut,
        }
    }
    return export_bytes(model, rows, record)
