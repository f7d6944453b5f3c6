"""Tensors of the Open Inference Protocol: numpy arrays as JSON or as bytes, and back."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import fairkit_http
from fairkit.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DTYPES: Mapping[str, Any] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}

_KINDS = {"BOOL": "bool", "FP16": "float16", "FP32": "float", "FP64": "double", "BYTES": "string"}

BINARY_LENGTH = "Inference-Header-Content-Length"
"""The header that says how many bytes of a body are JSON; tensors follow."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or an output as a model's metadata describe it: shape with None where it is free."""

    name: str
    datatype: str
    shape: tuple[int | None, ...]

    @property
    def kind(self) -> str:
        """The type as onnxruntime spells it, such as ``tensor(float)``."""
        return f"tensor({_KINDS.get(self.datatype, self.datatype.lower())})"

    @classmethod
    def of(cls, record: Any, where: str) -> Tensor:
        """Read one entry of the metadata."""
        try:
            name, datatype, shape = record["name"], record["datatype"], record["shape"]
            if not isinstance(name, str) or datatype not in _DTYPES:
                raise ValueError(f"{name!r} with the datatype {datatype!r}")
            sizes = tuple(None if int(size) < 0 else int(size) for size in shape)
        except (TypeError, KeyError, ValueError) as error:
            raise ModelError(f"{where} describes a tensor that cannot be read: {error}") from error
        return cls(name, datatype, sizes)


def encode(
    feeds: Mapping[str, NDArray[Any]], types: Mapping[str, str], outputs: Sequence[str], *, binary: bool
) -> tuple[bytes, int | None]:
    """Write a request."""
    inputs: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for name, values in feeds.items():
        entry: dict[str, Any] = {"name": name, "shape": list(values.shape), "datatype": types[name]}
        if binary:
            raw = _raw(values, types[name])
            entry["parameters"] = {"binary_data_size": len(raw)}
            tail.append(raw)
        else:
            entry["data"] = values.reshape(-1).tolist()
        inputs.append(entry)
    wanted: list[dict[str, Any]] = [{"name": name} for name in outputs]
    if binary:
        wanted = [entry | {"parameters": {"binary_data": True}} for entry in wanted]
    head = json.dumps({"inputs": inputs, "outputs": wanted}, ensure_ascii=False, separators=(",", ":")).encode()
    return b"".join([head, *tail]), len(head) if binary else None


def holds_gaps(feeds: Mapping[str, NDArray[Any]]) -> bool:
    """Tell whether a number is missing or infinite: JSON has no such numbers."""
    return any(values.dtype.kind == "f" and not bool(np.isfinite(values).all()) for values in feeds.values())


def decode(
    body: bytes, head: int | None, described: Mapping[str, Tensor], rows: int, where: str
) -> tuple[dict[str, NDArray[Any]], str]:
    """Read an answer, in whichever of the two forms it is."""
    record, tail = _parsed(body, head, where)
    arrays: dict[str, NDArray[Any]] = {}
    for entry in _entries(record, where):
        raw, tail = _taken(entry, tail, where)
        name = str(entry.get("name"))
        if name in described:
            arrays[name] = _values(entry, raw, described[name], rows, where)
    absent = [name for name in described if name not in arrays]
    if absent:
        raise ModelError(f"{where} answers without the output {absent[0]!r}, which its metadata promise")
    return arrays, str(record.get("model_version") or "")


def _parsed(body: bytes, head: int | None, where: str) -> tuple[dict[str, Any], memoryview]:
    if head is not None and not 0 < head <= len(body):
        raise ModelError(f"{where} answers with a damaged {BINARY_LENGTH} ({head} of {len(body)} bytes)")
    record = fairkit_http.read_json(body if head is None else body[:head])
    if record is None:
        raise ModelError(f"{where} answers with something that is no JSON: {_shown(body)}")
    if not isinstance(record, dict):
        raise ModelError(f"{where} answers with JSON that is no object")
    return record, memoryview(body)[len(body) if head is None else head :]


def _entries(record: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    outputs = record.get("outputs")
    if not isinstance(outputs, list) or not all(isinstance(entry, dict) for entry in outputs):
        raise ModelError(f"{where} answers without a list of outputs; does it speak version 2 of the protocol?")
    return outputs


def _taken(entry: Mapping[str, Any], tail: memoryview, where: str) -> tuple[memoryview | None, memoryview]:
    """Return this output's bytes, if it has any, and those of the next ones."""
    parameters = entry.get("parameters")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is None:
        return None, tail
    if not isinstance(size, int) or not 0 <= size <= len(tail):
        raise ModelError(f"{where} announces {size!r} bytes for an output and sends {len(tail)}")
    return tail[:size], tail[size:]


def _values(entry: Mapping[str, Any], raw: memoryview | None, described: Tensor, rows: int, where: str) -> NDArray[Any]:
    datatype, shape = str(entry.get("datatype")), entry.get("shape")
    if datatype not in _DTYPES or (datatype == "BYTES") != (described.datatype == "BYTES"):
        raise ModelError(
            f"{where} answers the output {described.name!r} as {datatype!r}; its metadata say {described.datatype}"
        )
    values = _listed(entry.get("data"), datatype, described.name, where) if raw is None else _unpacked(raw, datatype)
    if not isinstance(shape, list) or not shape or not all(type(size) is int and size >= 0 for size in shape):
        raise ModelError(f"{where} answers the output {described.name!r} with the shape {shape!r}")
    if int(np.prod(shape, dtype=object)) != len(values):
        raise ModelError(
            f"{where} answers the output {described.name!r} with {len(values)} values for the shape {shape}"
        )
    if shape[0] != rows:
        raise ModelError(
            f"{where} answers {shape[0]} rows where {rows} were sent (output {described.name!r}): a decision must be "
            "told for every row, in order"
        )
    promised = _DTYPES[described.datatype]
    return values.reshape(shape).astype(promised if promised.kind == "f" else values.dtype, copy=False)


def _listed(data: Any, datatype: str, name: str, where: str) -> NDArray[Any]:
    """Turn JSON's data, flat or nested, into an array."""
    try:
        if not isinstance(data, list):
            raise ValueError(f"data of type {type(data).__name__}")
        if datatype == "BYTES":
            return np.array([*_texts(data)] or [""], dtype=object)[: None if data else 0]
        values = np.array(data, dtype=np.float64 if _DTYPES[datatype].kind == "f" else None).reshape(-1)
        if values.dtype.kind not in ("fiub" if len(values) == 0 else _allowed(datatype)):
            raise ValueError(f"values such as {data[0]!r}")
    except (TypeError, ValueError) as error:
        raise ModelError(f"{where} answers the output {name!r} with {datatype} that cannot be read: {error}") from error
    return values.astype(_DTYPES[datatype])


def _allowed(datatype: str) -> str:
    kind = _DTYPES[datatype].kind
    return "b" if kind == "b" else "f" if kind == "f" else "iu"


def _texts(data: Sequence[Any]) -> list[str]:
    texts: list[str] = []
    for item in data:
        if isinstance(item, list):
            texts += _texts(item)
        elif isinstance(item, str):
            texts.append(item)
        else:
            raise ValueError(f"{item!r} where text is due")
    return texts


def _raw(values: NDArray[Any], datatype: str) -> bytes:
    if datatype != "BYTES":
        return np.ascontiguousarray(values, dtype=_DTYPES[datatype]).tobytes()
    parts = []
    for text in values.reshape(-1).tolist():
        encoded = str(text).encode()
        parts += [struct.pack("<I", len(encoded)), encoded]
    return b"".join(parts)


def _unpacked(raw: memoryview, datatype: str) -> NDArray[Any]:
    dtype = _DTYPES[datatype]
    if datatype != "BYTES":
        if len(raw) % dtype.itemsize:
            raise ModelError(f"{len(raw)} bytes are no whole number of {datatype} values")
        return np.frombuffer(raw, dtype=dtype)
    texts, offset = [], 0
    while offset < len(raw):
        if offset + 4 > len(raw):
            raise ModelError("the text of a binary output is cut off")
        size = struct.unpack_from("<I", raw, offset)[0]
        offset += 4
        if offset + size > len(raw):
            raise ModelError("the text of a binary output is cut off")
        texts.append(bytes(raw[offset : offset + size]).decode("utf-8", "replace"))
        offset += size
    return np.array(texts, dtype=object)


def _shown(body: bytes) -> str:
    text = body[:120].decode("utf-8", "replace")
    return repr(text)
