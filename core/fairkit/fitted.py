"""What learning gives: how a run is made, predictions, and a model in memory that becomes one ONNX file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from fairkit.objective import Objective
from fairkit.progress import Progress, no_progress
from fairkit.support.lazy_dataclass import dataclass, replace

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    from fairkit.data.table import Table


Runner = Callable[[Mapping[str, "NDArray[Any]"]], Mapping[str, Any]]
"""Runs an exported graph on raw columns, and returns its outputs by name."""


SMALL_ROWS = 50_000
"""Below so many rows threads wait for each other longer than they work, most of all on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How to run: what is not a parameter of the method."""

    seed: int = 0  # every random draw comes from ``numpy.random.default_rng(seed)``
    threads: int | None = None  # how many threads to use; None leaves it to the libraries, and to `on`
    # The learner's name, for methods that take one; None is the method's first choice. Methods that say so take an
    # estimator of scikit-learn's kind too
    learner: Any = None
    progress: Progress = no_progress  # call it at least once a second
    # Those that compare the models before and after besides, such as ``why``; a method does not need them
    auditors: tuple[str, ...] = ()
    # What thresholds are chosen for; rules on scores get it as their rows' gains and rate
    objective: Objective = Objective()

    def on(self, rows: int) -> Run:
        """Return the run for a table of `rows` rows: with one thread if they are few and nothing was said."""
        return replace(self, threads=1) if self.threads is None and rows < SMALL_ROWS else self

    def rng(self) -> np.random.Generator:
        """Make the generator of this run."""
        return np.random.default_rng(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a model says about rows."""

    # Shape [n]; binary: in [0, 1]; regression: the value. Multiclass: shape [n, k] probabilities
    score: NDArray[np.float64]
    # The chance of the favorable decision, shape [n]: 0 or 1 for a deterministic model; None where there is no
    # decision (regression, multiclass)
    decision_probability: NDArray[np.float64] | None = None


class FittedModel(ABC):
    """A model in memory that can become one ONNX file.

    `details` holds what happened, as plain JSON values (histories, chosen settings); `notes` holds
    sentences that the user must read. What only some models do is in contracts of their own, which a model meets by
    having the method: `MeasuresItself`, `NamesAudits`, `Attaches`, `RunsItself`.
    """

    details: Mapping[str, Any]
    notes: tuple[str, ...]

    @abstractmethod
    def predict(self, columns: Mapping[str, NDArray[Any]]) -> Prediction:
        """Score rows given as raw columns."""

    @abstractmethod
    def to_onnx(self) -> onnx.ModelProto:
        """Return the model as a graph over raw columns; metadata and the parity check are added by fairkit."""


@runtime_checkable
class MeasuresItself(Protocol):
    """A fitted model that measures on held-out rows what only the method knows, such as a frontier."""

    def held_out(self, table: Table, confidence: float) -> Mapping[str, Any]:
        """Return plain JSON values for the details; sentences under ``"notes"`` are shown with the model's own."""
        ...


@runtime_checkable
class NamesAudits(Protocol):
    """A fitted model that names the auditors that show what the method is for."""

    def audits(self, folder: Path) -> Mapping[str, Mapping[str, Any]]:
        """Name auditors besides ``group``, each with its parameters.

        The models before and after are audited by them on the held-out rows. Files that their parameters name,
        such as a fair metric, are written to `folder`, which is removed afterwards.
        """
        ...


@runtime_checkable
class Attaches(Protocol):
    """A fitted model with texts that are written beside its file."""

    def attachments(self, details: Mapping[str, Any]) -> Mapping[str, str]:
        """Return texts by suffix: ``{".metric.json": "{...}"}``."""
        ...


@runtime_checkable
class RunsItself(Protocol):
    """A fitted model whose graph has inputs other than one raw column each, of shape [rows, 1]."""

    def runner(self, proto: onnx.ModelProto) -> Runner:
        """Return a function from raw columns to the outputs of the exported graph, for the parity check."""
        ...
