"""Whether an endpoint runs a model that is known as a file: the same rows are sent to both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.errors import DataError, ModelError, ParameterError
from fairkit.intervals import clopper_pearson
from fairkit.progress import Progress, no_progress
from fairkit_onnx.read.scorer import runner_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairkit.data.batch import Batch
    from fairkit.data.dataset import Dataset
    from fairkit_onnx.file import OnnxFile

TOLERANCE = 1e-5
"""Numbers that are nearer count as equal: float32 sums in another order."""


class Answering(Protocol):
    """What an endpoint has: its inputs and outputs by name, answers, and what a report says of it."""

    name: str

    @property
    def inputs(self) -> Sequence[Any]: ...  # noqa: D102 -- see the class

    @property
    def output_names(self) -> Sequence[str]: ...  # noqa: D102

    def run(self, arrays: Mapping[str, Any], outputs: Sequence[str]) -> Mapping[str, Any]: ...  # noqa: D102

    def described(self) -> dict[str, Any]: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """What a comparison of an endpoint with a file found."""

    endpoint: dict[str, Any]  # address, model, version, platform, digest of the metadata
    model_name: str  # the file
    model_sha256: str  # the file
    data_name: str  # the table that the rows are from
    data_sha256: str  # the table that the rows are from
    rows: int  # how many rows were sent
    compared: tuple[str, ...]  # the file's outputs that the endpoint has too, and the others
    not_compared: tuple[str, ...]  # the file's outputs that the endpoint has too, and the others
    labels_differ: int
    numbers_differ: int
    differ: int  # on how many rows either is so
    upper: float
    largest_gap: float | None
    tolerance: float  # as asked
    confidence: float  # as asked
    seed: int  # as asked

    @property
    def matches(self) -> bool:
        """Whether no row came out otherwise."""
        return self.differ == 0

    @property
    def sentence(self) -> str:
        """What is shown, in words."""
        return (
            f"{self.differ:,} of {self.rows:,} answers differ: at most {100 * self.upper:.2g} % do, "
            f"at {100 * self.confidence:g} % confidence"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "matches": self.matches}


def attest(
    endpoint: Answering,
    file: OnnxFile,
    data: Dataset,
    *,
    rows: int | None = None,
    seed: int = 0,
    tolerance: float = TOLERANCE,
    confidence: float = 0.95,
    progress: Progress = no_progress,
) -> Attestation:
    """Send rows to an endpoint and to the file, and count the answers that differ.

    Outputs are compared by name, as they are: no label, no favorable value and no threshold is needed. A randomized
    model gets the same draws in both places.
    """
    if not tolerance > 0:
        raise ParameterError(f"`tolerance` is {tolerance}; it is above 0")
    if not 0 < confidence < 1:
        raise ParameterError(f"`confidence` is {confidence}; it is between 0 and 1, such as 0.95")
    profile = data.learn()
    there = profile.rows
    if rows is not None and not 1 <= rows <= there:
        raise DataError(f"{rows:,} rows are asked for, and {data.name} has {there:,}; name at most so many `rows`")
    runner, _ = runner_of(file, data)
    compared, left = _outputs(endpoint, file)
    chosen = np.sort(np.random.default_rng(seed).choice(there, there if rows is None else rows, replace=False))
    count = _Count(tolerance)
    seen = 0
    for batch in data.batches(runner.columns):
        taken = _taken(batch, chosen, seen)
        seen += len(batch)
        if len(taken):
            arrays = runner.arrays(taken.columns(runner.columns))
            count.add(file.run(arrays, compared), endpoint.run(arrays, compared))
            progress("asking the endpoint", count.rows, len(chosen))
    _, upper = clopper_pearson(
        np.array([count.either / count.rows]), np.array([float(count.rows)]), NormalDist().inv_cdf(confidence)
    )
    return Attestation(
        endpoint=endpoint.described(),
        model_name=file.name,
        model_sha256=file.sha256,
        data_name=data.name,
        data_sha256=data.sha256,
        rows=count.rows,
        compared=tuple(compared),
        not_compared=tuple(left),
        labels_differ=count.labels,
        numbers_differ=count.numbers,
        differ=count.either,
        upper=float(upper[0]),
        largest_gap=count.gap,
        tolerance=tolerance,
        confidence=confidence,
        seed=seed,
    )


class _Count:
    """Rows sent so far, and those that came out otherwise."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.rows = self.labels = self.numbers = self.either = 0
        self.gap: float | None = None

    def add(self, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
        """Compare two answers to the same rows."""
        rows = len(next(iter(mine.values())))
        label, number = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
        for name, values in mine.items():
            expected, answered = (np.asarray(values).reshape(rows, -1), np.asarray(theirs[name]).reshape(rows, -1))
            if expected.shape != answered.shape:
                raise ModelError(
                    f"the endpoint answers {answered.shape[1]} values a row for the output {name!r}, the file "
                    f"{expected.shape[1]}: it serves another model"
                )
            if expected.dtype.kind == "f":
                gaps = _gaps(expected, answered)
                self.gap = max(self.gap or 0.0, float(gaps.max(initial=0.0)))
                number |= gaps > self.tolerance
            else:
                label |= (expected.astype(str) != answered.astype(str)).any(axis=1)
        self.rows += rows
        self.labels += int(label.sum())
        self.numbers += int(number.sum())
        self.either += int((label | number).sum())


def _gaps(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64]:
    """Return each row's largest difference, shape [n]; numbers missing in both are equal."""
    first, second = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gaps = np.abs(first - second) / np.maximum(1, np.abs(first))
    gaps[(first == second) | (np.isnan(first) & np.isnan(second))] = 0
    return np.asarray(np.nan_to_num(gaps, nan=np.inf).max(axis=1))


def _outputs(endpoint: Answering, file: OnnxFile) -> tuple[list[str], list[str]]:
    """Return the outputs that both have, and those that only the file has."""
    mine, theirs = [i.name for i in file.inputs], [i.name for i in endpoint.inputs]
    if set(mine) != set(theirs):
        raise ModelError(
            f"{endpoint.name} takes the inputs {', '.join(theirs)}, but {file.name} takes {', '.join(mine)}: it serves "
            "another model"
        )
    tensors = [name for name, kind in file.outputs if kind.startswith("tensor(")]
    compared = [name for name in tensors if name in endpoint.output_names]
    if not compared:
        raise ModelError(
            f"{endpoint.name} has none of the outputs of {file.name} ({_listed(file.output_names)}); it has "
            f"{_listed(endpoint.output_names)}"
        )
    return compared, [name for name in file.output_names if name not in compared]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _taken(batch: Batch, chosen: NDArray[np.int64], seen: int) -> Batch:
    keep = np.zeros(len(batch), dtype=bool)
    first, last = np.searchsorted(chosen, [seen, seen + len(batch)])
    keep[chosen[first:last] - seen] = True
    return batch if keep.all() else batch.take(keep)
