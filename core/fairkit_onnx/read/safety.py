"""Looking at an ONNX file without running it: digest, metadata, and what it may refer to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairkit.errors import ModelError
from fairkit.support.timings import phase
from fairkit_onnx.read.nodes import function_key, replaces_operator, walk

if TYPE_CHECKING:
    import onnx

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
        yield from (one.name for one in listed)
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
            known = node.domain in DOMAINS or node.domain in allowed
            if not known and function_key(node) not in functions:
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
    for attribute in (*defaults, *(one for node in graph.node for one in node.attribute)):
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
    texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
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
