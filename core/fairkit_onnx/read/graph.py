"""What is read like an ONNX file: the file itself, or a model that a server runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairkit.data.roles import value_text
from fairkit.errors import ModelError
from fairkit.support.timings import phase

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.read.feeds import GraphInput


class Graph(Protocol):
    """Inputs, outputs, and what runs one into the other."""

    name: str  # what messages call it
    sha256: str  # a digest that draws follow from
    settings: dict[str, Any]  # the audit settings in its metadata; empty where it has none
    folder: Path | None  # where the file lies

    @property
    def content(self) -> bytes | None:
        """The file's bytes; None where there is none."""
        ...

    @property
    def proto(self) -> onnx.ModelProto:
        """The graph's nodes and metadata; empty where they cannot be seen."""
        ...

    @property
    def remark(self) -> str | None:
        """A sentence for the report about how it is run; None for the usual way."""
        ...

    @property
    def batch(self) -> int | None:
        """The number of rows that it takes at once; None where it is free."""
        ...

    @property
    def inputs(self) -> list[GraphInput]:
        """Its inputs."""
        ...

    @property
    def outputs(self) -> list[tuple[str, str]]:
        """Its outputs: names and onnxruntime's types."""
        ...

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run it on arrays, each with the rows along the first axis."""
        ...

    def run_in_parts(
        self,
        feeds: Mapping[str, NDArray[Any]],
        outputs: Sequence[str],
        sizes: Sequence[int],
        variant: tuple[int, bool] | None = None,
    ) -> dict[str, Any]:
        """Run it on batches of these sizes; a file also with so many threads, optimised or not."""
        ...


# Walking a graph without running it: every node at every depth, and the nodes that an output is made from.


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Return the bodies of a branch or a loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def walk(nodes: Collection[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Return nodes and, at every depth, those of their subgraphs; functions are not opened."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from walk(graph.node)


def name_of(node: onnx.NodeProto) -> str:
    """Return a node as messages call it: ``operator 'name'``, or the name of what it makes."""
    return f"{node.op_type} {node.name or node.output[0]!r}" if node.output else node.op_type


def read_by(node: onnx.NodeProto) -> set[str]:
    """Return the names of the values that a node reads, those that its subgraphs take from outside included."""
    names = set(node.input)
    for graph in subgraphs(node):
        own = {entry.name for entry in graph.input} | {tensor.name for tensor in graph.initializer}
        for inner in graph.node:
            names |= read_by(inner) - own
            own |= set(inner.output)
        names |= {output.name for output in graph.output} - own
    return names - {""}


def ancestors(graph: onnx.GraphProto, outputs: Collection[str]) -> list[onnx.NodeProto]:
    """Return the nodes that values are made from, in the graph's order."""
    wanted = set(outputs)
    nodes = []
    for node in reversed(graph.node):  # the standard asks for topological order, and onnxruntime checks it
        if wanted & set(node.output):
            nodes.append(node)
            wanted |= read_by(node)
    return nodes[::-1]


RUNTIME = ("ai.onnx", "com.microsoft", "com.ms", "org.pytorch")
"""Domains of operators that onnxruntime brings with it, and what they begin with."""


def replaces_operator(function: onnx.FunctionProto) -> bool:
    """Whether a function has a domain of onnxruntime's: its own operator of that name would run in its place."""
    domain = function.domain
    return not domain or any(domain == prefix or domain.startswith(f"{prefix}.") for prefix in RUNTIME)


def function_key(entry: onnx.FunctionProto | onnx.NodeProto) -> tuple[str, str, str]:
    """Return what a function is called by: domain, name and, from version 10 of the format on, overload."""
    name = getattr(entry, "op_type", None) or entry.name
    return entry.domain, name, getattr(entry, "overload", "")


# What a graph's nodes tell before it is run: draws inside it.


RANDOM = frozenset(
    {"RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Multinomial", "Bernoulli"}
)
"""Operators that draw random numbers."""


def draws(proto: onnx.ModelProto, outputs: Collection[str]) -> list[str]:
    """Return the nodes behind the outputs that draw random numbers, as ``operator 'name'``."""
    return [
        name_of(node)
        for node, around in _everything(proto, outputs)
        if node.op_type in RANDOM or (node.op_type == "Dropout" and _trains(node, around))
    ]


def _trains(node: onnx.NodeProto, around: onnx.GraphProto | onnx.FunctionProto) -> bool:
    """Whether a Dropout drops: its third input is there, and is not False wherever its name is given a value."""
    if len(node.input) < 3 or not node.input[2]:
        return False
    from onnx import numpy_helper

    name, values = node.input[2], []
    graphs = [around, *(graph for inner in walk(around.node) for graph in subgraphs(inner))]
    for graph in graphs:
        values += [tensor for tensor in getattr(graph, "initializer", ()) if tensor.name == name]
    for maker in walk(around.node):
        if name in maker.output:
            if maker.op_type != "Constant":
                return True
            values += [attribute.t for attribute in maker.attribute]
    return not values or any(bool(numpy_helper.to_array(tensor).any()) for tensor in values)


def _everything(
    proto: onnx.ModelProto, outputs: Collection[str]
) -> Iterator[tuple[onnx.NodeProto, onnx.GraphProto | onnx.FunctionProto]]:
    """Return the nodes behind the outputs at every depth, each with the graph or the function around it."""
    functions = {function_key(function): function for function in proto.functions}
    visited = set()
    waiting: list[tuple[onnx.NodeProto, onnx.GraphProto | onnx.FunctionProto]]
    waiting = [(node, proto.graph) for node in walk(ancestors(proto.graph, outputs))]
    while waiting:
        node, around = waiting.pop(0)
        yield node, around
        key = function_key(node)
        if key in functions and key not in visited:
            visited.add(key)
            waiting += [(inner, functions[key]) for inner in walk(functions[key].node)]


# Which column of the scores belongs to which value of the label output, where the graph does not say.


def classes_by_labels(
    scores: NDArray[np.float64], labels: NDArray[Any], label_values: Sequence[Any]
) -> list[Any] | None:
    """Name the columns of scores by the labels that go with them.

    A label's column is the one that is highest above its mean where the model gives that label. That holds also
    where the label is made with a threshold other than the largest score.
    """
    values, inverse = np.unique(labels.astype(str), return_inverse=True)
    width = scores.shape[1]
    if len(values) > width or len(values) == 0:
        return None
    centred = scores - scores.mean(axis=0)
    sums = np.zeros((len(values), width))
    np.add.at(sums, inverse, centred)
    means = sums / np.bincount(inverse)[:, None]
    alone = len(values) == 1  # nothing is above its mean: the one that is largest in most rows
    places = (
        [int(np.bincount(scores.argmax(axis=1), minlength=width).argmax())] if alone else list(means.argmax(axis=1))
    )
    if len(set(places)) != len(places):
        return None
    classes: list[Any] = [None] * width
    for value, place in zip(values.tolist(), places, strict=True):
        classes[place] = _typed(value, labels)
    unnamed = [index for index, value in enumerate(classes) if value is None]
    left = [
        value for value in label_values if value_text(value) not in {value_text(value) for value in values.tolist()}
    ]
    if len(unnamed) == 1 and len(left) == 1:
        classes[unnamed[0]] = left[0]
        unnamed = []
    return None if unnamed else classes


def _typed(text: str, labels: NDArray[Any]) -> Any:
    kind = labels.dtype.kind
    return int(text) if kind in "iu" else text == "True" if kind == "b" else text


# Looking at an ONNX file without running it: digest, metadata, and what it may refer to.


METADATA_KEY = "fairkit"
"""The metadata entry in which fairkit keeps a model's data settings, as JSON."""


def read_bytes(path: Path) -> bytes:
    """Read a model file."""
    try:
        if not path.is_dir() and path.exists() and not path.is_file():
            raise ModelError(f"the model {str(path)!r} is no regular file (a pipe or a device); save it as a file")
        content = path.read_bytes()
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.glob("*.onnx")) if path.parent.is_dir() else []
        hint = f" In that folder there are: {', '.join(near[:8])}." if near else ""
        raise ModelError(f"there is no model file {str(path)!r}.{hint}") from None
    except OSError as error:
        raise ModelError(f"the model {str(path)!r} cannot be read: {error.strerror}") from error
    if not content:
        raise ModelError(f"the model {path.name} is empty (0 bytes)")
    return content


_FOREIGN = {
    b"\x80": "a pickle, which runs code when it is opened",
    b"PK": "a zip archive, as torch and Keras write them",
    b"\x89HDF": "a file of Keras (HDF5)",
    b"PAR1": "a table (Parquet)",
    b"tree\n": "a booster of LightGBM",
    b"{": "JSON, as XGBoost writes it",
}
"""How files begin that are no ONNX models; a graph's first byte is never one of these."""


@phase("load model")
def parse(content: bytes, name: str) -> onnx.ModelProto:
    """Parse a model without loading what it refers to."""
    import onnx
    from google.protobuf.message import DecodeError

    foreign = next((what for start, what in _FOREIGN.items() if content.startswith(start)), None)
    if foreign is not None:
        raise ModelError(
            f"{name} is not an ONNX model but {foreign}: in Python `fairkit.to_onnx(model, X, 'model.onnx')` writes "
            "one, and `fairkit.audit(model, X, y, sensitive_features=...)` audits the object itself"
        )
    try:
        model = onnx.load_model_from_string(content)
    except (DecodeError, ValueError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{name} is not an ONNX model, or it is truncated ({error}); export it again or copy it whole"
        ) from error
    if content[4:8] == b"ORTM":
        raise ModelError(f"{name} could be read as a file of onnxruntime's own format; give the ONNX file")
    if not model.graph.output:
        raise ModelError(f"{name} is not an ONNX model: it has no graph with outputs")
    broken = next((text for text in _texts(model) if not isinstance(text, str)), None)
    if broken is not None:
        raise ModelError(f"{name} holds a text that is not UTF-8 ({broken[:40]!r}); export it again")
    return model


def _texts(model: onnx.ModelProto) -> Iterator[str]:
    """Yield the names and texts of a file; one that is not UTF-8 comes as bytes."""
    yield from (model.producer_name, model.producer_version, model.domain, model.doc_string)
    for entry in model.metadata_props:
        yield from (entry.key, entry.value)
    yield from _names(model.graph)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield graph.name
    for listed in (graph.input, graph.output, graph.value_info, graph.initializer):
        yield from (entry.name for entry in listed)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _names(inner)


def external_files(model: onnx.ModelProto, name: str, folder: Path | None) -> list[Path]:
    """Find the files that hold the model's large tensors, all inside its own folder."""
    files: dict[Path, None] = {}
    graphs: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    for tensor in (tensor for graph in graphs for tensor in _tensors(graph)):
        for entry in tensor.external_data:
            if entry.key == "location":
                files[_inside(entry.value, name, folder)] = None
    return list(files)


Key = tuple[str, str, str]
DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
"""The operator domains of the ONNX standard."""
MOST_NODES = 1_000_000
"""A graph whose functions unfold to more nodes is not opened."""


def check_operators(model: onnx.ModelProto, name: str, allowed: Collection[str] = ()) -> None:
    """Refuse operators outside the standard, at every depth, and functions that unfold without end."""
    functions = {function_key(function): function for function in model.functions if not replaces_operator(function)}
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in walk(nodes):
            registered = node.domain in DOMAINS or node.domain in allowed
            if not registered and function_key(node) not in functions:
                raise ModelError(
                    f"{name} uses the operator {node.domain}::{node.op_type}, which is not of the ONNX standard; its "
                    f"code is not checked as the standard's is. If you trust it, allow it: `domains={node.domain}`"
                )
    sizes: dict[Key, int] = {}
    if _unfolded(model.graph.node, functions, sizes, ()) > MOST_NODES:
        raise ModelError(
            f"{name} has functions that unfold to more than {MOST_NODES:,} nodes, which no real model needs; it is not "
            "opened"
        )


def _unfolded(
    nodes: Collection[onnx.NodeProto],
    functions: Mapping[Key, onnx.FunctionProto],
    sizes: dict[Key, int],
    inside: tuple[Key, ...],
) -> int:
    """Count the nodes after every call of a function is replaced by its body; endless where one calls itself."""
    total = 0
    for node in walk(nodes):
        key = function_key(node)
        if key not in functions:
            total += 1
        elif key in inside:
            return MOST_NODES + 1
        else:
            if key not in sizes:
                sizes[key] = min(_unfolded(functions[key].node, functions, sizes, (*inside, key)), MOST_NODES + 1)
            total += sizes[key]
    return total


def _inside(location: str, name: str, folder: Path | None) -> Path:
    if folder is None:
        raise ModelError(f"{name} keeps tensors in the file {location!r}; give it as a path, not as bytes")
    if "\0" in location:
        raise ModelError(f"{name} keeps tensors in a file whose name no system takes ({location!r}); export it again")
    root = folder.resolve()
    target = (root / location).resolve()
    if Path(location).is_absolute() or not target.is_relative_to(root):
        raise ModelError(
            f"{name} refers to data outside its own folder ({location!r}) and is not loaded; "
            "a trustworthy model keeps its data beside it"
        )
    if not target.is_file():
        raise ModelError(f"{name} keeps tensors in {location!r}, which is not in its folder; copy that file too")
    if target.stat().st_nlink > 1:
        raise ModelError(
            f"{name} keeps tensors in {location!r}, which has another name elsewhere (a hard link), so that it may be "
            "a file from outside the model's folder; copy it into the folder"
        )
    return target


def _tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    yield from getattr(graph, "initializer", ())
    for sparse in getattr(graph, "sparse_initializer", ()):
        yield sparse.values
        yield sparse.indices
    defaults = getattr(graph, "attribute_proto", ())  # those of a function's attributes
    for attribute in (*defaults, *(attribute for node in graph.node for attribute in node.attribute)):
        yield attribute.t
        yield from attribute.tensors
        for inner in (attribute.g, *attribute.graphs):
            if inner.node or inner.initializer:
                yield from _tensors(inner)


def digest(content: bytes) -> str:
    """Return the SHA-256 of the model file's bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def embedded_settings(model: onnx.ModelProto) -> dict[str, Any]:
    """Return the data settings that fairkit wrote into the model's metadata; empty where there are none."""
    for entry in model.metadata_props:
        if entry.key == METADATA_KEY:
            try:
                settings = json.loads(entry.value)
            except (ValueError, RecursionError):
                return {}
            if not isinstance(settings, dict):
                return {}
            for key, value in settings.items():
                _check_setting(key, value)
            return settings
    return {}


def _check_setting(key: str, value: Any) -> None:
    texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    fits = {
        "label": value is None or isinstance(value, str),
        "weights": value is None or isinstance(value, str),
        "favorable": value is None or isinstance(value, str | int | float),
        "sensitive": texts,
        "features": texts or value is None,
        "drop": texts or value is None,
    }
    if not fits.get(key, True):
        raise ModelError(
            f"the data settings in the model's metadata are damaged: {key} is {str(value)[:80]!r}; export the model "
            "again, or take the metadata out"
        )


def class_labels(model: onnx.ModelProto) -> list[Any]:
    """Return the class labels that the graph's last classifier or ZipMap node names; empty where none does."""
    labels: list[Any] = []
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("classlabels_strings", "classlabels_int64s", "classlabels_ints"):
                values: list[Any] = [text.decode("utf-8", "replace") for text in attribute.strings]
                values = values or list(attribute.ints)
                labels = values or labels
    return labels
