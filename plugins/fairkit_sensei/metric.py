"""The fair metric of a training, and the features that network and metric share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import DataError, ParameterError, did_you_mean
from fairkit.support.lazy_dataclass import dataclass
from fairkit_similarity import learn
from fairkit_similarity.encode import Encoder as MetricEncoder
from fairkit_similarity.metric import FairMetric
from fairkit_similarity.networks import DenseNetwork, ModuleNetwork, as_matrix, dense_layers
from fairkit_similarity.outside import read_given
from fairkit_similarity.training import feature_columns, graph_encoder, named_directions, sensitive_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Table
    from fairkit_onnx.write.encode import Encoder
    from fairkit_sensei.counterfactuals import Flip
    from fairkit_similarity.encode import Floats


KINDS = ("subspace", "face", "explore")


def make_metric(
    kind: str,
    table: Table,
    flips: Sequence[Flip],
    *,
    strength: float,
    directions: Sequence[str] | None = None,
    rank: int,
    standardise: bool = True,
    counterfactuals: str | None = None,
    of: str = "of",
) -> FairMetric:
    """Learn the metric, or load it from a file."""
    features = feature_columns(table)
    if kind == "subspace":
        sensitive = sensitive_columns(table)
        if not sensitive:
            raise DataError(
                f"{table.name}: metric=subspace is learned from the sensitive columns; name some with `sensitive`, "
                "or use fair_metric=face with sensitive=COLUMNS, or fair_metric=FILE"
            )
        return learn.subspace(
            features | sensitive, list(sensitive), strength=strength, directions=named_directions(table, directions)
        )
    if kind == "face" and counterfactuals is not None:
        pairs = read_given(counterfactuals, of, table.features)
        return learn.face(pairs.columns, pairs.originals(), rank=rank, standardise=standardise)
    if kind in KINDS:
        stacked, people = _versions(features, flips)
        if kind == "face":
            return learn.face(stacked, people, rank=rank, standardise=standardise)
        return _explore(stacked, people, table)
    if not Path(kind).exists():
        raise ParameterError(
            f"sensei: the metric {kind!r} is none of {', '.join(KINDS)}, nor a file. {did_you_mean(kind, KINDS)}"
        )
    return FairMetric.load(kind)


def _versions(
    columns: Mapping[str, NDArray[Any]], flips: Sequence[Flip]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Put all counterfactual versions of the rows below the rows; return each one's person too."""
    rows = len(next(iter(columns.values())))
    copies = [dict(columns)]
    for flip in flips:
        for combination in flip.combinations:
            copy = dict(columns)
            for name, value in zip(flip.columns, combination, strict=True):
                same: NDArray[Any] = np.empty(rows, dtype=columns[name].dtype)
                same[:] = value
                copy[name] = same
            copies.append(copy)
    stacked = {name: np.concatenate([copy[name] for copy in copies]) for name in columns}
    return stacked, np.tile(np.arange(rows), len(copies))


def _explore(columns: Mapping[str, NDArray[Any]], people: NDArray[np.int64], table: Table) -> FairMetric:
    """Comparable: a person and another version of them. Not comparable: two people with different labels."""
    rng = np.random.default_rng(0)
    rows = len(table)
    count = min(5_000, len(people) - rows)
    versions = rows + rng.choice(len(people) - rows, count, replace=False)
    pairs = np.column_stack([people[versions], versions])
    middle = np.median(table.target)
    high = table.target > middle if table.task == "regression" else table.target == table.target.max()
    first, second = rng.choice(np.flatnonzero(high), count), rng.choice(np.flatnonzero(~high), count)
    apart = np.column_stack([first, second])
    return learn.explore(columns, np.concatenate([pairs, apart]), np.arange(2 * count) < count)


def plain_encoder(table: Table) -> Encoder:
    """Encode the features as a metric would, where there is none."""
    return graph_encoder(MetricEncoder.learn(feature_columns(table)).columns)


def shared_features(metric: FairMetric, table: Table) -> tuple[Encoder, Floats]:
    """Return the network's encoder in the metric's own coordinates, and the metric's matrix for these features.

    Columns of the metric that are no features stay as they are when a row moves, so they cost nothing.
    """
    by_name = {column.name: column for column in metric.encoder.columns}
    absent = [name for name in table.features if name not in by_name]
    if absent:
        raise DataError(
            f"the fair metric is for the columns {', '.join(metric.columns)}, and not for the feature {absent[0]!r}: "
            f"it has another width than the features. Leave the feature out with `drop` {absent[0]}, or learn a "
            "metric with it"
        )
    for name in table.features:
        text = table.columns[name].dtype.kind in "OUS"
        if text != (by_name[name].kind == "category"):
            raise DataError(
                f"the fair metric takes the column {name!r} as a {by_name[name].kind}, but here it holds "
                f"{'text' if text else 'numbers'}"
            )
    chosen = [by_name[name] for name in table.features]
    places = [metric.encoder.places([name]) for name in table.features]
    return graph_encoder(chosen), metric.matrix[np.concatenate(places)]


# Gradient steps on a network's parameters, from the gradient in its outputs.


Tensor = Any


class DenseStepper:
    """A fully connected network whose parameters lie in one vector: one gradient, one Adam step, few calls.

    The module's own parameters become views of that vector, so that the module always is the network.
    """

    def __init__(self, module: Any, rate: float, decay: float) -> None:
        import torch

        layers = dense_layers(module)
        assert layers is not None  # noqa: S101 -- the caller asked `stepper`
        sizes = [part.numel() for weight, bias, _ in layers for part in (weight, bias)]
        self.theta = torch.cat([part.reshape(-1) for w, b, _ in layers for part in (w, b)]).clone()
        self.theta.grad = torch.zeros_like(self.theta)
        shapes = [part.shape for weight, bias, _ in layers for part in (weight, bias)]
        views, slopes = (
            [piece.view(shape) for piece, shape in zip(torch.split(flat, sizes), shapes, strict=True)]
            for flat in (self.theta, self.theta.grad)
        )
        linear = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
        for index, part in enumerate(linear):
            part.weight.data, part.bias.data = views[2 * index], views[2 * index + 1]
        self.network = DenseNetwork([(views[2 * i], views[2 * i + 1], layer[2]) for i, layer in enumerate(layers)])
        self.slopes = [(slopes[2 * i], slopes[2 * i + 1]) for i in range(len(layers))]
        self.optimizer = torch.optim.AdamW([self.theta], lr=rate, weight_decay=decay, fused=True)

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs (n, K) of a training step; `step` follows."""
        self._x = x
        outputs, self._saved = self.network.tail(self.network.root(x))
        return outputs

    def step(self, up: Tensor) -> None:
        """Descend along the gradient of <up, outputs> in the parameters."""
        self.network.parameter_slopes(self._x, self._saved, up, self.slopes)
        self.optimizer.step()

    def state(self) -> Tensor:
        """Return a copy of the parameters."""
        return self.theta.clone()

    def restore(self, state: Tensor) -> None:
        """Put a copy back."""
        self.theta.copy_(state)


class ModuleStepper:
    """Any module, by automatic differentiation."""

    def __init__(self, module: Any, rate: float, decay: float) -> None:
        import torch

        self.module, self.network = module, ModuleNetwork(module)
        self.optimizer = torch.optim.AdamW(
            [part for part in module.parameters() if part.requires_grad], lr=rate, weight_decay=decay
        )

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs (n, K) of a training step; `step` follows."""
        import torch

        self.module.train()
        with torch.enable_grad():
            self._outputs = as_matrix(self.module(x))
        self.module.eval()
        return self._outputs.detach()

    def step(self, up: Tensor) -> None:
        """Descend along the gradient of <up, outputs> in the parameters."""
        self.optimizer.zero_grad(set_to_none=True)
        self._outputs.backward(up)
        self.optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the parameters."""
        return {name: value.clone() for name, value in self.module.state_dict().items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Put a copy back."""
        self.module.load_state_dict(state)


def stepper(module: Any, rate: float, decay: float) -> DenseStepper | ModuleStepper:
    """Choose by the module: fully connected networks whose layers are all trained, or any other."""
    layers = dense_layers(module)
    learns = all(part.requires_grad for part in module.parameters())
    return ModuleStepper(module, rate, decay) if layers is None or not learns else DenseStepper(module, rate, decay)


# Counterfactual sentences: words that should not matter are swapped for each other.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwappedSentences:
    """Other versions of sentences."""

    sentences: tuple[str, ...]  # the versions that differ from the sentence they were made from
    source: NDArray[np.int64]  # shape (p,): the sentence that each was made from
    count: int  # how many sentences were given

    def groups(self) -> NDArray[np.int64]:
        """Group the given sentences followed by `sentences`: versions of one sentence bear its number (FACE)."""
        return np.concatenate([np.arange(self.count), self.source])


def swap_words(sentences: Sequence[str], words: Sequence[Sequence[str]]) -> SwappedSentences:
    """Make the counterfactual versions of sentences (Garg et al. 2019; SenSeI, appendix B).

    Version k of a sentence has every listed word replaced by the k-th next of its list, all at once: with
    ``[("he", "she"), ("his", "her")]`` "He lost his key" becomes "She lost her key". Whole words are replaced,
    whatever their case, which is kept. A sentence without a listed word has no other version.

    Examples
    --------
    >>> swap_words(["Some people are gay", "Tea?"], [("gay", "straight")]).sentences
    ('Some people are straight',)
    """
    lists = [[word.casefold() for word in line] for line in words]
    listed = [word for line in lists for word in line]
    lengths = {len(line) for line in lists}
    if len(lengths) != 1 or min(lengths) < 2:
        raise ParameterError(
            "words must be lists of at least two words, all of one length, as in [('he', 'she'), ('his', 'her')]"
        )
    twice = {word for word in listed if listed.count(word) > 1}
    if twice or "" in listed:
        raise ParameterError(
            f"the word {min(twice | {''} & set(listed))!r} is listed twice or empty: what should it become?"
        )
    places = {word: (line, index) for line in lists for index, word in enumerate(line)}
    pattern = re.compile(
        r"(?<!\w)(?:" + "|".join(map(re.escape, sorted(listed, key=len, reverse=True))) + r")(?!\w)", re.IGNORECASE
    )
    made: list[str] = []
    source: list[int] = []
    for number, sentence in enumerate(sentences):
        for shift in range(1, len(lists[0])):

            def other(match: re.Match[str], shift: int = shift) -> str:
                line, column = places[match.group().casefold()]
                return _cased(line[(column + shift) % len(line)], match.group())

            version = pattern.sub(other, sentence)
            if version != sentence:
                made.append(version)
                source.append(number)
    return SwappedSentences(sentences=tuple(made), source=np.array(source, dtype=np.int64), count=len(sentences))


def _cased(word: str, like: str) -> str:
    """Write a word as another is written: lower, Capitalised, or UPPER (one letter counts as capitalised)."""
    if like.isupper() and len(like) > 1:
        return word.upper()
    return word[:1].upper() + word[1:] if like[:1].isupper() else word
