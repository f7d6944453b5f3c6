"""Asking for the points of a frontier: grids, families that are trained together, searches with a budget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fairkit.errors import ParameterError
from fairkit_repair.frontiers.points import point_key
from fairkit_repair.frontiers.sweeps import is_whole
from fairkit_repair.frontiers.training import BASELINE, Family, Job, Trained, measure, train_family
from fairkit_repair.mitigation.choose import find_mitigator

if TYPE_CHECKING:
    from fairkit.engines.base import Engine
    from fairkit.progress import Progress
    from fairkit_repair.frontiers.points import Point
    from fairkit_repair.frontiers.state import State
    from fairkit_repair.frontiers.sweeps import Sweep
    from fairkit_repair.frontiers.training import Setup

BATCH = 4
"""A search asks for so many points at a time, whatever the number of processes, so that it can be repeated."""


def families_of(sweep: Sweep) -> list[Family]:
    """Put the points of a sweep that a plugin can train together side by side; the others stand alone."""
    method = find_mitigator(sweep.plugin)
    shared = next(
        (k for k, values in sweep.vary.items() if k in getattr(method, "together", ()) and len(values) > 1), None
    )
    groups: dict[str, list[Job]] = {}
    for place, settings in enumerate(sweep.settings()):
        rest = {key: value for key, value in settings.items() if key != shared}
        groups.setdefault(str(place) if shared is None else point_key("", rest), []).append((sweep.plugin, settings))
    return [
        Family(
            tuple(jobs),
            "" if len(jobs) == 1 else point_key("family", {str(i): point_key(*job) for i, job in enumerate(jobs)}),
        )
        for jobs in groups.values()
    ]


class Runner:
    """Asks for points, from the state where they are and by training where not."""

    def __init__(self, setup: Setup, kept: State, engine: Engine, progress: Progress) -> None:
        self.setup, self.kept, self.engine, self.progress = setup, kept, engine, progress
        self.total = self.finished = 0

    def everything(self, sweeps: Sequence[Sweep], budget: int, axes: tuple[str, str]) -> list[Point]:
        """Return the baseline, then the points of every sweep."""
        grids = [family for sweep in sweeps if not sweep.search for family in families_of(sweep)]
        searches = [sweep for sweep in sweeps if sweep.search]
        self.total = 1 + sum(len(family.jobs) for family in grids) + budget * len(searches)
        baseline = self.points([Family(((BASELINE, {}),))])
        self.setup = self.setup.after(self.kept.model(baseline[0]))
        points = baseline + self.points(grids)
        for sweep in searches:
            points += self.search(sweep, budget, axes)
        return points

    def points(self, families: Sequence[Family]) -> list[Point]:
        """Return the points of some families, in their order."""
        missing = list({part.name: part for family in families for part in self._missing(family)}.values())
        asked = sum(len(family.jobs) for family in families)
        self.finished += asked - sum(len(family.jobs) for family in missing)
        self._tell()
        # the largest first, so that none is left alone at the end
        queue = sorted(missing, key=lambda family: len(family.jobs), reverse=True)
        self.engine.each(train_family, queue, self.engine.share(self.setup), done=self._done)
        return [self.kept.points[key] for family in families for key in family.point_keys()]

    def _missing(self, family: Family) -> list[Family]:
        """Return the untrained rest of a family: all of it, unless a point alone failed before."""
        keys = family.point_keys()
        left = [i for i, key in enumerate(keys) if self.kept.finished(key) is None]
        for key in {*keys} - {keys[i] for i in left}:
            self.kept.confirm(key, partial(measure, self.setup))
        known = [self.kept.points.get(keys[i]) for i in left]
        if len(left) < len(keys) and all(point is not None and point.status == "failed" for point in known):
            return [Family((family.jobs[i],), family.key) for i in left]
        return [family] if left else []

    def _done(self, trained: Sequence[Trained]) -> None:
        for point, model in trained:
            self.kept.add(point, model)
            self.finished += 1
            self._tell()

    def _tell(self) -> None:
        self.progress("training points", self.finished, self.total)

    def search(self, sweep: Sweep, budget: int, axes: tuple[str, str]) -> list[Point]:
        """Let an optimiser choose settings; replayed from the state it asks for the same ones again."""
        optuna = _optuna()
        study = optuna.create_study(
            directions=["minimize", "maximize"], sampler=optuna.samplers.TPESampler(seed=self.setup.run.seed)
        )
        space = _space(sweep, optuna)
        points: list[Point] = []
        while len(points) < budget:
            trials = [study.ask(space) for _ in range(min(BATCH, budget - len(points)))]
            families = [Family(((sweep.plugin, dict(sweep.fixed) | trial.params),)) for trial in trials]
            for trial, point in zip(trials, self.points(families), strict=True):
                measures = [point.measures.get(name) for name in axes]
                if None in measures:
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                else:
                    flat, upright = (m for m in measures if m is not None)
                    study.tell(trial, [flat.value, upright.value * (-1 if upright.better == "lower" else 1)])
                points.append(point)
        return points


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ParameterError("a search needs the package optuna: pip install 'fairkit[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _space(sweep: Sweep, optuna: Any) -> dict[str, Any]:
    method = find_mitigator(sweep.plugin)
    return {
        key: optuna.distributions.IntDistribution(int(bounds.low), int(bounds.high), log=bounds.log)
        if is_whole(method.Parameters, key)
        else optuna.distributions.FloatDistribution(bounds.low, bounds.high, log=bounds.log)
        for key, bounds in sweep.search.items()
    }
