"""A model whose score follows from one sum over features: what lies before the sum, and what after it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError, ParameterError
from fairkit.support.lazy_dataclass import dataclass, replace
from fairkit_onnx.read.feeds import RANDOM_INPUT, built
from fairkit_onnx.read.graph import ancestors, name_of
from fairkit_onnx.structure.cells import Listed, Numbers, column_of, keys_of, numbers_of, pieces_of
from fairkit_onnx.structure.ensemble import ARRANGES, EACH, PAIRS, attributes_of
from fairkit_onnx.structure.link import WIDE, Tail
from fairkit_onnx.structure.monotone import Condition, conditions_of, constant_of

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.file import OnnxFile
    from fairkit_onnx.read.scorer import OnnxScorer

    Columns = Mapping[str, NDArray[Any]]
    Places = NDArray[np.int64]


_DRAWS = "all-inputs: the model draws its decisions; a deterministic model is asked"


@dataclass(frozen=True, slots=True)
class Features:
    """What the features are made of."""

    source: list[str | None]  # the raw column behind each feature; None: a constant
    listed: Mapping[str, list[Any]]  # by column whose values are a list to the graph, those that an encoder names
    conditions: Sequence[Condition] = ()  # what must hold where an operator keeps the order of a column of numbers
    cuts: Sequence[Condition] = ()  # where the rule that decides by group tells numbers apart


@dataclass(frozen=True, eq=False)
class Encoded:
    """A model whose score follows from one sum."""

    scorer: OnnxScorer  # it, bound to a table
    matrix: str  # the tensor of the features
    tail: Tail  # what follows the sum

    @property
    def width(self) -> int:
        """The number of features that are read."""
        raise NotImplementedError

    def encoding(self, tensor: str | None = None, *, doubles: bool = False) -> Callable[[Columns], NDArray[Any]]:
        """Return the graph's function from raw columns to features (or another tensor), float32, [n, d].

        With `doubles`, of float64 where the graph's are.
        """
        feeds, matrix = self.scorer.feeds, tensor or self.matrix
        direct = next((feed for feed in feeds if feed.input.name == matrix), None)
        if direct is not None:
            feed = direct
            kind = np.float64 if doubles and feed.input.kind == "tensor(double)" else np.float32
            return lambda columns: np.asarray(feed.build(columns), dtype=kind).reshape(
                len(columns[feed.columns[0]]), -1
            )
        run = self.tensor(matrix)

        def encode(columns: Columns) -> NDArray[Any]:
            encoded = run(columns)
            kind = np.float64 if doubles and encoded.dtype == np.float64 else np.float32
            return encoded.astype(kind, copy=False)

        return encode

    def tensor(self, name: str) -> Callable[[Columns], NDArray[Any]]:
        """Return the function from raw columns to a tensor of the graph, shape [n, d]."""
        file = self._open([name])

        def run(columns: Columns) -> NDArray[Any]:
            values = np.asarray(file.run(built(self.scorer.feeds, columns), [name])[name])
            return values.reshape(len(values), -1)

        return run

    @property
    def grouped(self) -> list[str]:
        """The columns by which decisions differ at one sum."""
        return [] if self.tail.groups is None else self.tail.groups.columns

    def pieces(self, domains: Sequence[Numbers | Listed], features: Features) -> dict[str, NDArray[np.float64]]:
        """Return by column of numbers where its pieces end, on which features keep their order."""
        encoding = functools.partial(self.encoding, doubles=True)
        conditions = [*features.conditions, *features.cuts]
        return pieces_of(domains, conditions, encoding, self.defaults(domains), self.kinds())

    def rest(self, features: NDArray[Any]) -> OnnxFile:
        """Return the graph after such features, shape [n, d], as a file with the matrix as its input."""
        double = features.dtype == np.float64
        after = Tail(scorer=self.scorer, cut=self.matrix, columns=features.shape[1], double=double)
        return after.opened(after.after(self.matrix))

    def defaults(self, domains: Sequence[Numbers | Listed]) -> dict[str, Any]:
        """Return a raw value of every column."""
        defaults: dict[str, Any] = {}
        for domain in domains:
            if isinstance(domain, Numbers):
                defaults[domain.name] = float(domain.low)
            else:
                defaults |= dict(zip(domain.columns, domain.values[0], strict=True)) if domain.values else {}
        return defaults

    def _open(self, tensors: Sequence[str]) -> OnnxFile:
        return self.tail.opened(up_to(self.scorer.model.proto, list(dict.fromkeys(tensors))))

    def sources(self, rows: Columns, *, finite: bool = False) -> Features:
        """Follow the features back to the raw columns."""
        feeds = self.scorer.feeds
        names = list(dict.fromkeys(column for feed in feeds for column in feed.columns))
        inputs = {feed.input.name: [names.index(column) for column in feed.columns] for feed in feeds}

        def run(tensors: Sequence[str]) -> dict[str, Any]:
            return self._open(tensors).run(built(feeds, rows), list(tensors)) if tensors else {}

        origins = Sources(self.scorer.model.proto.graph, inputs, self.matrix, run, finite=finite)
        places = origins.of[self.matrix].tolist()
        if self.width > len(places):
            raise ModelError(f"the score reads feature {self.width - 1}; the matrix {self.matrix!r} has {len(places)}")
        groups = self.tail.groups
        listed: dict[str, list[Any]] = {} if groups is None else {name: [] for name in groups.listed}
        listed |= {names[index]: list(origins.keys.get(index, ())) for index in origins.listed}
        return Features(
            [names[index] if index >= 0 else None for index in places],
            listed,
            [
                replace(condition, columns=tuple(names[index] if index >= 0 else None for index in columns.tolist()))
                for condition, columns in origins.conditions
            ],
            () if groups is None else groups.conditions,
        )

    def kinds(self) -> dict[str, type]:
        """By column, the number type that the graph takes."""
        doubles = {c for feed in self.scorer.feeds if feed.input.kind == "tensor(double)" for c in feed.columns}
        return {column: np.float64 if column in doubles else np.float32 for column in self.scorer.columns}

    def link(self, low: float, high: float) -> tuple[int, float | None, bool]:
        """Return the direction in which sums are favorable, the threshold, and whether the link is logistic."""
        return self.links(low, high, [{}])[0]

    def links(self, low: float, high: float, rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, float | None, bool]]:
        """Return the same for each of some rows, given by raw values of the columns that say the group."""
        keys = keys_of(np.array([low, high]), np.float32, whole=False)
        some = _between(int(keys[0]), int(keys[1]))
        sums = _floats(some)
        readings, decisions = [], []
        for row in rows:
            said = self.tail(sums, {name: _repeated([value], len(sums)) for name, value in row.items()})
            if said.decision is not None and not np.isin(said.decision, (0.0, 1.0)).all():
                raise ParameterError(_DRAWS)
            direction = 1
            for values in (said.decision, said.score):
                if values is not None and values[-1] != values[0]:
                    direction = -1 if values[-1] < values[0] else 1
            logistic = said.score is not None and self.scorer.task == "binary"
            if said.score is not None and logistic:
                chance = 0.5 * (1.0 + np.tanh(0.5 * direction * sums))
                logistic = bool(np.abs(said.score - chance).max() < 2e-6)
            readings.append((direction, logistic, said.score))
            decisions.append(None if said.decision is None else np.asarray(said.decision))
        thresholds = self._thresholds([reading[0] for reading in readings], some, decisions, rows)
        for (direction, _, score), decision in zip(readings, decisions, strict=True):
            for turning in (score, decision):
                if turning is not None and (np.diff(direction * turning) < -1e-6).any():
                    raise ModelError(
                        f"{self.scorer.info.name}: the score does not keep the order of the sum of the trees"
                    )
        return [(reading[0], threshold, reading[1]) for reading, threshold in zip(readings, thresholds, strict=True)]

    def _thresholds(
        self,
        directions: Sequence[int],
        some: NDArray[np.int64],
        decisions: Sequence[NDArray[np.float64] | None],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[float | None]:
        """Search by row the sum from which decisions change, over float32 numbers; infinite: they do not."""
        thresholds: list[float | None] = []
        open_: dict[int, tuple[int, int]] = {}
        for row, decided in enumerate(decisions):
            if decided is None:
                thresholds.append(None)
                continue
            thresholds.append(-math.inf if decided[0] else math.inf)
            if decided[0] != decided[-1]:
                open_[row] = _step(some, decided)
        while any(last - first > 1 for first, last in open_.values()):
            parts = {index: _between(*ends, WIDE // len(open_)) for index, ends in open_.items()}
            keys = np.concatenate(list(parts.values()))
            owner = np.repeat(list(parts), [len(part) for part in parts.values()])
            columns = {name: _repeated([rows[index][name] for index in owner.tolist()], 1) for name in rows[0]}
            decided = np.asarray(self.tail(_floats(keys), columns).decision)
            open_ = {index: _step(keys[owner == index], decided[owner == index]) for index in open_}
        for row, ends in open_.items():
            at = _floats(np.array(ends))
            # upward: favorable from the last on; downward: favorable up to the first, and sums are negated
            thresholds[row] = float(at[1]) if directions[row] > 0 else -float(at[0])
        return thresholds


def _step(some: NDArray[np.int64], decided: NDArray[np.float64]) -> tuple[int, int]:
    """Return the numbers before and after the first change."""
    index = int(np.flatnonzero(decided != decided[0])[0])
    return int(some[index - 1]), int(some[index])


def _repeated(values: Sequence[Any], count: int) -> NDArray[Any]:
    return np.repeat(column_of(values), count)


def refuse_unread(scorer: OnnxScorer) -> None:
    """Refuse a file that could be read in two ways, and a model whose decisions are drawn."""
    if scorer.shown.broken is not None:
        raise ModelError(f"{scorer.info.name} is no plain file, and only such are read exactly: {scorer.shown.broken}")
    drawn = scorer.reading.chance is not None and any(
        entry.name == RANDOM_INPUT for entry in scorer.model.proto.graph.input
    )
    if drawn or scorer.shares is not None:
        raise ParameterError(_DRAWS)


def _between(first: int, last: int, most: int = WIDE) -> NDArray[np.int64]:
    """Return numbers from the first to the last, all of them or so many."""
    return np.unique(np.linspace(first, last, min(most, last - first + 1)).astype(np.int64))


def _floats(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    return numbers_of(keys, np.float32, whole=False)


def up_to(proto: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    """Return the graph with some tensors as its outputs."""
    import onnx

    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    nodes = ancestors(proto.graph, tensors)
    del whole.graph.node[:], whole.graph.output[:], whole.graph.value_info[:]
    whole.graph.node.extend(nodes)
    whole.graph.output.extend(onnx.ValueInfoProto(name=tensor) for tensor in tensors)
    return whole


# Which raw column each feature of a matrix is made of, followed through the encoders of a graph.


CONSTANT = -1

_JOINED = frozenset({"ReduceSum", "ReduceMax", "ReduceMin", "ArgMax"})


class Sources:
    """The raw columns behind every tensor of a graph's encoders."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        inputs: Mapping[str, Sequence[int]],
        tensor: str,
        run: Callable[[Sequence[str]], Mapping[str, Any]],
        *,
        finite: bool = False,
    ) -> None:
        """Follow the columns."""
        self._graph, self._finite = graph, finite
        self.of: dict[str, Places] = {name: np.array(columns, dtype=np.int64) for name, columns in inputs.items()}
        self.listed: set[int] = set()
        self.keys: dict[int, list[Any]] = {}
        self.conditions: list[tuple[Condition, Places]] = []
        nodes = ancestors(graph, [tensor])
        shapes = run([name for node in nodes for name in node.output if name])
        for node in nodes:
            self._follow(node, {name: np.asarray(value) for name, value in shapes.items()})

    def _follow(self, node: onnx.NodeProto, values: Mapping[str, NDArray[Any]]) -> None:
        traced_inputs = [self.of.get(name) for name in node.input if name]
        if all(trace is None for trace in traced_inputs):
            return  # made of constants
        traced = [trace for trace in traced_inputs if trace is not None]
        places = self._places(node, traced_inputs, traced, values)
        if places is None:
            raise ModelError(
                f"the node {name_of(node)} before the score is not understood: encoders are read that make each "
                "feature from one column, such as OneHotEncoder, LabelEncoder, Scaler, Imputer, Cast and Concat"
            )
        moving = [name for name in node.input if name in self.of]
        conditions = conditions_of(node, moving, functools.partial(constant_of, self._graph))
        self.conditions += [(condition, self.of[condition.tensor]) for condition in conditions or ()]
        if conditions is None:
            mine = [int(number) for number in np.unique(np.concatenate(traced)) if number >= 0]
            self.listed |= set(mine)
            if len(mine) == 1:  # also what a second encoder of the same text names
                keys, more = self.keys.setdefault(mine[0], []), _keys_of(node)
                keys += [key for key in more if not keys or (isinstance(key, str) and isinstance(keys[0], str))]
        for output, columns in zip(node.output, places, strict=False):
            self.of[output] = columns

    def _places(  # noqa: PLR0911 -- one for each kind of operator
        self,
        node: onnx.NodeProto,
        inputs: Sequence[Places | None],
        traced: Sequence[Places],
        values: Mapping[str, NDArray[Any]],
    ) -> list[Places] | None:
        kind = node.op_type
        width = _width(values[node.output[0]])
        if kind in EACH and len(traced[0]) == width:
            return [traced[0]]
        if kind in ("Concat", "FeatureVectorizer"):
            parts = [self._of(name, values) for name in node.input]
            return [np.concatenate(parts)] if sum(map(len, parts)) == width else None
        if kind == "OneHotEncoder":
            return [np.repeat(traced[0], width // len(traced[0]))]
        if kind in ARRANGES and len(traced[0]) == width:
            return [traced[0]]
        if kind in ("Gather", "ArrayFeatureExtractor"):
            at = constant_of(self._graph, node.input[1])
            axis = attributes_of(node).get("axis", 0) if kind == "Gather" else 1
            fits = at is not None and axis in (1, -1) and inputs[0] is not None
            return [traced[0][np.asarray(at, dtype=np.int64).reshape(-1)]] if fits else None
        if kind == "Split":
            ends = np.cumsum([_width(values[name]) for name in node.output])
            return list(np.split(traced[0], ends[:-1])) if ends[-1] == len(traced[0]) else None
        if kind == "Slice" and inputs[0] is not None:
            return self._sliced(node, traced[0], width)
        if kind == "Mul" and self._finite and any(self._is_zero(name) for name in node.input):
            return [np.full(width, CONSTANT, dtype=np.int64)]
        if kind in PAIRS:
            return _together(traced, width)
        if kind in _JOINED:
            return self._joined(node, traced[0], width)
        return None

    def _is_zero(self, name: str) -> bool:
        constant = constant_of(self._graph, name)
        return constant is not None and not constant.any()

    def _joined(self, node: onnx.NodeProto, columns: Places, width: int) -> list[Places] | None:
        """Columns of a row become one number: of one raw column, as where rare values share a code."""
        attributes = attributes_of(node)
        axes = attributes.get("axes", [attributes.get("axis", 0)])
        if len(node.input) > 1 and node.input[1]:
            constant = constant_of(self._graph, node.input[1])
            axes = [] if constant is None else constant.reshape(-1).tolist()
        behind = np.unique(columns[columns >= 0])
        along = list(axes) in ([1], [-1]) and width == 1 and len(behind) == 1
        return [behind] if along else None

    def _of(self, name: str, values: Mapping[str, NDArray[Any]]) -> Places:
        if name in self.of:
            return self.of[name]
        constant = constant_of(self._graph, name)
        size = _width(values[name]) if constant is None else constant.reshape(-1).shape[0]
        return np.full(size, CONSTANT, dtype=np.int64)

    def _sliced(self, node: onnx.NodeProto, columns: Places, width: int) -> list[Places] | None:
        constants = [constant_of(self._graph, name) for name in node.input[1:] if name]
        numbers = [[int(value) for value in constant.reshape(-1)] for constant in constants if constant is not None]
        if len(numbers) != len(node.input) - 1 or len(numbers) < 3 or numbers[2] not in ([1], [-1]):
            return None
        (start,), (end,) = numbers[:2]
        step = numbers[3][0] if len(numbers) > 3 else 1
        picked = columns[slice(start, end, step)]
        return [picked] if len(picked) == width else None


def _together(known: Sequence[Places], width: int) -> list[Places] | None:
    """Columns side by side: each has one raw column behind it, or none."""
    origins = np.full(width, CONSTANT, dtype=np.int64)
    for columns in known:
        if len(columns) not in (1, width):
            return None
        wide = np.broadcast_to(columns, (width,))
        if ((origins >= 0) & (wide >= 0) & (origins != wide)).any():
            return None
        origins = np.maximum(origins, wide)
    return [origins]


def _keys_of(node: onnx.NodeProto) -> list[Any]:
    """Return the values that an encoder names."""
    attributes = attributes_of(node)
    for name in ("keys_strings", "cats_strings", "keys_int64s", "cats_int64s", "keys_floats"):
        if attributes.get(name):
            return [key.decode("utf-8") if isinstance(key, bytes) else key for key in attributes[name]]
    return []


def _width(value: NDArray[Any]) -> int:
    return 1 if value.ndim < 2 else int(np.prod(value.shape[1:]))
