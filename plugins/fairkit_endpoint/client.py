"""Asking an endpoint: requests with a limit of time, size and rate, tried again where that can help."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

import fairkit_http
from fairkit.errors import MissingExtraError, ModelError, ParameterError
from fairkit.sources.address import TOKEN, check_address, token_for, without_token
from fairkit.support.escaping import visible
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import httpx
    from numpy.typing import NDArray


MOST_SENT = 16 << 20
"""No request is longer, in bytes."""
MOST_READ = 64 << 20
"""No answer may be longer, in bytes."""
TRIES = 5
"""How often a request is sent where the endpoint is busy or the connection breaks."""
_CONNECT = 4.0
"""Seconds for opening a connection."""
_LONGEST_PAUSE = 20.0
"""Seconds that an endpoint may ask to be left alone before the next try."""
_BUSY = (429, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """How an endpoint is asked."""

    url: str  # the server's address, such as `http://host:8000`; what follows, `/v2/models/...`, is added
    model: str  # the model's name there
    version: str | None = None  # its version; None leaves the choice to the server
    timeout: float = 60.0  # seconds that one answer may take, above 0
    rate: float | None = None  # the largest number of requests a second; None for no limit

    def __post_init__(self) -> None:
        check_address(self.url, "http://host:port or https://host")
        if not self.model:
            raise ParameterError("an endpoint serves models by name; say which one with `model_name`")
        for name in ("timeout", "rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ParameterError(f"{name}={value} of an endpoint is not a number above 0")

    @property
    def base(self) -> str:
        """The address without a slash at its end."""
        return self.url.rstrip("/")

    @property
    def path(self) -> str:
        """Where the model is."""
        version = "" if self.version is None else f"/versions/{quote(self.version, safe='')}"
        return f"{self.base}/v2/models/{quote(self.model, safe='')}{version}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the bytes, and how many of them are JSON where tensors follow."""

    body: bytes
    head: int | None


class Client:
    """One endpoint's connection. It leaves the connection behind when it is pickled."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self._http: httpx.Client | None = None
        self._cutter = fairkit_http.Cutter()
        self._owner = os.getpid()
        self._next = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": self.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["settings"])  # type: ignore[misc]

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._http is not None and self._owner == os.getpid():
            self._http.close()
        self._http = None

    def __del__(self) -> None:
        self.close()

    @property
    def name(self) -> str:
        """What messages call the endpoint."""
        return f"the endpoint {visible(self.settings.base)}"

    def describe(self) -> dict[str, Any]:
        """Return the model's metadata."""
        return self._record(self._send("GET", self.settings.path, None, {}))

    def server(self) -> dict[str, Any]:
        """Return the server's metadata; empty where it has none."""
        try:
            return self._record(self._send("GET", f"{self.settings.base}/v2", None, {}))
        except ModelError:
            return {}

    def infer(self, body: bytes, head: int | None) -> Answer:
        """Send rows."""
        headers = {"Content-Type": "application/json" if head is None else "application/octet-stream"}
        if head is not None:
            headers[BINARY_LENGTH] = str(head)
        return self._send("POST", f"{self.settings.path}/infer", body, headers)

    def _record(self, answer: Answer) -> dict[str, Any]:
        record = fairkit_http.read_json(answer.body)
        if not isinstance(record, dict):
            raise ModelError(
                f"{self.name} does not answer with metadata as JSON; does it speak version 2 of the Open Inference "
                "Protocol?"
            )
        return record

    def _send(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Ask once, and again where the endpoint is busy or the connection broke."""
        pause = 0.25
        for attempt in range(TRIES):
            last = attempt == TRIES - 1
            self._wait()
            try:
                status, answer, retry_after = self._once(method, url, body, headers)
            except _BrokenError as broken:
                # an address that nobody listens at is not asked for long
                if last or (broken.unreachable and attempt):
                    raise ModelError(f"{self.name} {broken}") from broken
                retry_after = None
            else:
                if status < 300:
                    return answer
                if status not in _BUSY or last:
                    raise ModelError(self._refusal(status, answer, retry_after))
            wanted = None if retry_after is None else fairkit_http.pause_of({"retry-after": retry_after})
            if wanted is not None and wanted > _LONGEST_PAUSE:
                raise ModelError(
                    f"{self.name} is busy, and asks to be left alone for {wanted:,.0f} s; ask it again then"
                )
            time.sleep(max(pause, wanted or 0.0))
            pause *= 2
        raise AssertionError("unreachable")  # pragma: no cover

    def _once(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Answer, str | None]:
        """Return the status, the answer, and what a header says about the next try or another address."""
        deadline = time.monotonic() + self.settings.timeout
        client = self._client()
        traced = {"trace": self._cutter.trace}
        with (
            self._named(),
            self._cutter.within(self.settings.timeout),
            client.stream(method, url, content=body, headers=dict(headers), extensions=traced) as response,
        ):
            content = fairkit_http.collect(response.iter_bytes(), MOST_READ, deadline)
            more = response.headers.get("Location" if 300 <= response.status_code < 400 else "Retry-After")
            length = response.headers.get(BINARY_LENGTH)
            head = int(length) if length is not None and length.isdigit() else None
            return response.status_code, Answer(content, head), more

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn the library's errors into ours, without what they may quote."""
        import httpx

        try:
            yield
        except fairkit_http.LateError:
            raise ModelError(self._slow()) from None
        except fairkit_http.OversizedError:
            raise ModelError(f"{self.name} answers with more than {MOST_READ >> 20} MiB") from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _BrokenError(f"cannot be reached: {without_token(error)}", unreachable=True) from None
        except httpx.TimeoutException:
            raise ModelError(self._slow()) from None
        except httpx.TransportError as error:
            raise _BrokenError(f"breaks the connection: {without_token(error)}") from None
        except (httpx.DecodingError, httpx.InvalidURL) as error:
            raise ModelError(f"{self.name} cannot be read: {without_token(error)}") from None

    def _slow(self) -> str:
        return (
            f"{self.name} did not answer within {self.settings.timeout:g} s; ask it with a longer `endpoint_timeout`, "
            "or when it is less busy"
        )

    def _refusal(self, status: int, answer: Answer, told: str | None) -> str:
        """Return an error message for an answer that is no success."""
        if 300 <= status < 400:
            return (
                f"{self.name} redirects to {without_token(told or 'another address')}, which is not followed: the rows "
                "would go to an address that nobody named. Name that address if it is the right one"
            )
        where = f"model {visible(self.settings.model)}"
        if self.settings.version is not None:
            where += f", version {visible(self.settings.version)}"
        if status in (401, 403):
            return f"{self.name} refuses access ({status}, {where}); put a token into the environment variable {TOKEN}"
        return f"{self.name} answers with the error {status} ({where}): {without_token(_error_text(answer.body))}"

    def _wait(self) -> None:
        """Keep to the rate."""
        if self.settings.rate is None:
            return
        now = time.monotonic()
        if self._next > now:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + 1 / self.settings.rate

    def _client(self) -> httpx.Client:
        if self._http is None or self._owner != os.getpid():
            try:
                import httpx
            except ImportError as error:
                raise MissingExtraError("httpx", "endpoint") from error
            token = token_for(self.settings.base)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            timeout = httpx.Timeout(self.settings.timeout, connect=min(_CONNECT, self.settings.timeout))
            self._http = httpx.Client(headers=headers, timeout=timeout, follow_redirects=False)
            self._owner = os.getpid()
        return self._http


class _BrokenError(Exception):
    """The connection was not made, or was lost."""

    def __init__(self, what: str, *, unreachable: bool = False) -> None:
        super().__init__(what)
        self.unreachable = unreachable


def _error_text(body: bytes) -> str:
    record = fairkit_http.read_json(body[:100_000])
    text = record.get("error") if isinstance(record, dict) else None
    return str(text) if text else body[:200].decode("utf-8", "replace")


# Tensors of the Open Inference Protocol: numpy arrays as JSON or as bytes, and back.


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
