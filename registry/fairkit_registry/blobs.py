"""A store of files under the SHA-256 of their content."""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from fairkit.support.files import explain, sync_folder
from fairkit.support.lazy_dataclass import dataclass
from fairkit_registry.errors import CertificateError, RegistryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import onnx

    from fairkit.errors import FairkitError


CHUNK = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ABANDONED_SECONDS = 24 * 3600
"""A temporary file that nobody has written to for a day belongs to a process that is gone."""


def is_digest(text: str) -> bool:
    """Tell whether a text is a SHA-256 in lower-case hexadecimal."""
    return _DIGEST.fullmatch(text) is not None


def chunks(handle: BinaryIO) -> Iterator[bytes]:
    """Read a file piece by piece, so that memory does not grow with it."""
    while piece := handle.read(CHUNK):
        yield piece


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise RegistryError(f"cannot read {path}: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Content that lies flushed under a temporary name and is not part of the store yet."""

    digest: str
    size: int
    path: Path

    def discard(self) -> None:
        """Remove it, if it was not moved into the store."""
        with suppress(OSError):
            self.path.unlink()


class BlobStore:
    """Files under ``sha256/ab/cdef...``, each written once and never changed.

    Writing has two steps. `stage` copies and flushes the content under a temporary name; that takes
    long and holds nobody up. `keep` renames it into place and flushes the folder; the caller does that
    while it holds the index's write lock, so that `Registry.gc`, which takes the same lock, never
    meets a file between its arrival and the row that refers to it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.temporary = root / "tmp"

    def path(self, digest: str) -> Path:
        """Return the place of a blob."""
        if not is_digest(digest):
            raise RegistryError(f"{digest!r} is not a SHA-256 digest")
        return self.root / "sha256" / digest[:2] / digest[2:]

    def stage(self, content: Iterable[bytes]) -> Staged:
        """Copy content under a temporary name and flush it."""
        path = self.temporary / os.urandom(16).hex()
        digest = hashlib.sha256()
        size = 0
        try:
            self.temporary.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as handle:
                for piece in content:
                    digest.update(piece)
                    size += len(piece)
                    handle.write(piece)
                handle.flush()
                os.fsync(handle.fileno())
        except BaseException as error:
            with suppress(OSError):
                path.unlink()
            if isinstance(error, OSError):
                raise RegistryError(explain(error, "cannot write to the registry", self.root)) from None
            raise
        return Staged(digest=digest.hexdigest(), size=size, path=path)

    def keep(self, staged: Staged) -> None:
        """Move staged content into the store. A damaged blob of the same digest is replaced by it."""
        target = self.path(staged.digest)
        if target.is_file() and not staged.path.exists():
            return  # kept a moment ago, for another version with the same content
        try:
            if not target.parent.is_dir():
                target.parent.mkdir(parents=True, exist_ok=True)
                sync_folder(target.parent.parent)
                sync_folder(self.root)
            staged.path.replace(target)
            target.chmod(0o444)
            sync_folder(target.parent)
        except OSError as error:
            raise RegistryError(explain(error, "cannot write to the registry", target)) from None

    def read(self, digest: str, *, limit: int) -> bytes:
        """Return a small blob's content, after checking its digest."""
        path = self.path(digest)
        try:
            with path.open("rb") as handle:
                content = handle.read(limit + 1)
        except OSError as error:
            raise RegistryError(
                f"blob {digest[:12]} cannot be read: {error.strerror}. `fairkit registry check` lists all damage."
            ) from None
        if len(content) > limit:
            raise RegistryError(f"blob {digest[:12]} is larger than the {limit} bytes it may have here")
        if hashlib.sha256(content).hexdigest() != digest:
            raise RegistryError(_changed(digest, path))
        return content

    def intact(self, digest: str) -> Path:
        """Return a blob's path after hashing it again."""
        problem = self.problem(digest)
        if problem is not None:
            raise RegistryError(problem)
        return self.path(digest)

    def problem(self, digest: str) -> str | None:
        """Hash a blob again; None where it is what its name says, else a sentence."""
        path = self.path(digest)
        if not path.is_file():
            return f"blob {digest} is missing ({path}); restore it from an export or add the file again"
        try:
            same = hash_file(path) == digest
        except RegistryError as error:
            return str(error)
        return None if same else _changed(digest, path)

    def digests(self) -> Iterator[str]:
        """Return every digest that the store holds a file for."""
        for path in sorted(self.root.glob("sha256/??/*")):
            digest = path.parent.name + path.name
            if is_digest(digest):
                yield digest

    def strays(self) -> Iterator[Path]:
        """Return files of the store that are neither blobs nor temporary."""
        for path in sorted(self.root.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                continue
            if path.parent == self.temporary:
                continue
            relative = path.relative_to(self.root).parts
            if len(relative) != 3 or relative[0] != "sha256" or not is_digest(relative[1] + relative[2]):
                yield path

    def abandoned(self) -> Iterator[Path]:
        """Return temporary files that no living process can still be writing."""
        if self.temporary.is_dir():
            limit = time.time() - _ABANDONED_SECONDS
            for path in sorted(self.temporary.iterdir()):
                with suppress(OSError):
                    if path.stat().st_mtime < limit:
                        yield path


def _changed(digest: str, path: Path) -> str:
    return (
        f"blob {digest} was changed or damaged: its content no longer has this SHA-256 ({path}); "
        "restore it from an export or add the file again"
    )


# A look at an ONNX file that never runs it and never follows a path in it.


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSummary:
    """What stands in a graph: how often each operator, numbers in its weights, inputs, outputs."""

    operators: dict[str, int]
    weights: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: dict[str, int]


def check_file(path: Path, *, shown: Path | None = None) -> None:
    """Refuse a file that is not an ONNX model or whose weights lie in other files.

    A digest of the file says nothing about weights outside of it, so a certificate could not name them.
    """
    model = _load(path, shown or path)
    if any(tensor.external_data or tensor.data_location == 1 for tensor in _walk(model)[1]):
        raise RegistryError(
            f"{shown or path} keeps weights in other files, which its digest does not cover; save it as one file: "
            "onnx.save_model(onnx.load(path), out, save_as_external_data=False)"
        )


def _load(path: Path, name: Path) -> onnx.ModelProto:
    """Parse a file without following a path in it; a protobuf message of another kind is refused."""
    import onnx
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except OSError as error:
        raise RegistryError(f"cannot read the model {name}: {error.strerror or error}") from None
    except DecodeError:
        raise RegistryError(f"{name} is not an ONNX file (or is damaged)") from None
    if not model.HasField("graph") or len(UnknownFieldSet(model)):
        raise RegistryError(f"{name} is not an ONNX file: it holds no graph")
    return model


def _walk(model: Any) -> tuple[list[Any], list[Any]]:
    """Return all nodes and all tensors, those of subgraphs and functions included."""
    nodes: list[Any] = []
    tensors: list[Any] = []
    graphs = [model.graph, *model.functions]
    while graphs:
        graph = graphs.pop()
        nodes.extend(graph.node)
        tensors.extend(getattr(graph, "initializer", ()))
        for sparse in getattr(graph, "sparse_initializer", ()):
            tensors.extend((sparse.values, sparse.indices))
        defaults = getattr(graph, "attribute_proto", ())
        for attribute in (*defaults, *(attribute for node in graph.node for attribute in node.attribute)):
            tensors.extend([*attribute.tensors, *([attribute.t] if attribute.HasField("t") else [])])
            graphs.extend([*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])])
    return nodes, tensors


def summarise(path: Path) -> GraphSummary:
    """Count the operators and weights of an ONNX file, subgraphs and functions included."""
    model = _load(path, path)
    nodes, tensors = _walk(model)
    operators = Counter(_operator(node) for node in nodes)
    attributes = [attribute for node in nodes for attribute in node.attribute]
    weights = sum(math.prod(tensor.dims) for tensor in tensors)
    weights += sum(len(attribute.floats) + len(attribute.ints) for attribute in attributes)
    return GraphSummary(
        operators=dict(sorted(operators.items())),
        weights=weights,
        inputs=tuple(_typed(value) for value in model.graph.input),
        outputs=tuple(_typed(value) for value in model.graph.output),
        opsets={_text(entry.domain) or "ai.onnx": entry.version for entry in model.opset_import},
    )


def _text(value: str | bytes) -> str:
    """Read a string field; protobuf gives bytes where it is not UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _operator(node: Any) -> str:
    domain, kind = _text(node.domain), _text(node.op_type)
    return f"{domain}.{kind}" if domain else kind


def _typed(value: Any) -> str:
    from onnx import TensorProto

    name = _text(value.name)
    if not value.type.HasField("tensor_type"):
        return f"{name}: {value.type.WhichOneof('value') or 'untyped'}"
    kind = value.type.tensor_type
    types = TensorProto.DataType.values()
    element = TensorProto.DataType.Name(kind.elem_type).lower() if kind.elem_type in types else "unknown"
    shape = [str(d.dim_value) if d.HasField("dim_value") else (_text(d.dim_param) or "?") for d in kind.shape.dim]
    return f"{name}: {element}[{', '.join(shape)}]"


def read_limited(path: Path, limit: int, what: str, refused: type[FairkitError] = CertificateError) -> bytes:
    """Read a file that may come from anybody; `refused` is what one that cannot be read, or is too large, raises."""
    try:
        with path.open("rb") as handle:
            raw = handle.read(limit + 1)
    except OSError as error:
        raise refused(f"cannot read {path}: {error.strerror or error}") from None
    if len(raw) > limit:
        raise refused(f"{path} is too large to be {what} (more than {limit:,} bytes)")
    return raw
