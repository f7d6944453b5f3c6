"""A model behind an endpoint as a model that can be audited: read like an ONNX file, scored by requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.settings import ModelOptions
from fairkit_endpoint.client import MOST_SENT, Client, EndpointSettings, Tensor, decode, encode, holds_gaps
from fairkit_onnx.read.feeds import RANDOM_INPUT, GraphInput
from fairkit_onnx.read.graph import METADATA_KEY
from fairkit_onnx.read.outputs import DECISION, DECISION_PROBABILITY, SCORE
from fairkit_onnx.read.scorer import bind

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.models.scorer import Scorer

_FIRST_ROWS, _MOST_ROWS = 1_024, 16_384
_LOOK_AGAIN = 256
"""Before so many rows are scored the metadata are read again."""
_BINARY = "binary_tensor_data"


class EndpointModel:
    """A model that a server scores by the Open Inference Protocol, version 2.

    Inputs are matched with columns, and outputs are read, as an ONNX file's are. Nothing is known of the model but
    what it answers: there is no digest, so a certificate about it is about these answers to these rows.

    Examples
    --------
    >>> model = EndpointModel(EndpointSettings(url="http://localhost:8000", model="credit"))  # doctest: +SKIP
    >>> fairkit.audit(model, data)  # doctest: +SKIP
    """

    sandbox = None
    folder: Path | None = None
    content: bytes | None = None
    remark: str | None = None
    held: tuple[str, ...] = ()
    batch: int | None = None
    external: tuple[Path, ...] = ()

    def __init__(self, settings: EndpointSettings) -> None:
        self.client = Client(settings)
        self.settings: dict[str, Any] = {}
        self.name = f"{settings.model} at {settings.base}"
        self.metadata = _trimmed(self.client.describe(), self._where)
        self.inputs_described = self._tensors("inputs")
        self.outputs_described = {tensor.name: tensor for tensor in self._tensors("outputs")}
        server = self.client.server()
        extensions = server.get("extensions")
        self.binary = isinstance(extensions, list) and _BINARY in extensions
        self.sha256 = _digest({"url": settings.base, **self.metadata})
        self._version: str | None = None
        self._rows = _FIRST_ROWS

    @property
    def _where(self) -> str:
        return f"{self.client.name}, model {self.client.settings.model!r},"

    def _tensors(self, which: str) -> list[Tensor]:
        entries = self.metadata[which]
        if not entries:
            raise ModelError(
                f"{self._where} has no {which} in its metadata, so its columns cannot be matched; let the server "
                f"describe them (MLServer: {which} in model-settings.json)"
            )
        return [Tensor.of(entry, self._where) for entry in entries]

    @property
    def inputs(self) -> list[GraphInput]:
        """The model's inputs."""
        return [GraphInput(tensor.name, tensor.kind, tensor.shape) for tensor in self.inputs_described]

    @property
    def outputs(self) -> list[tuple[str, str]]:
        """The model's outputs: names and types."""
        return [(tensor.name, tensor.kind) for tensor in self.outputs_described.values()]

    @property
    def output_names(self) -> list[str]:
        """The names of the model's outputs."""
        return list(self.outputs_described)

    @property
    def proto(self) -> onnx.ModelProto:
        """An empty graph: nothing can be read in the model itself.

        A model that takes a draw ``u`` and answers score, decision probability and decision is read as a randomized
        model of ours, whose decisions are then checked against its draws on every row.
        """
        import onnx

        proto = onnx.ModelProto()
        drawn = {SCORE, DECISION_PROBABILITY, DECISION} <= set(self.outputs_described)
        if drawn and any(tensor.name == RANDOM_INPUT for tensor in self.inputs_described):
            entry = proto.metadata_props.add()
            entry.key, entry.value = METADATA_KEY, json.dumps({"randomized": True})
        return proto

    def bind(self, dataset: Dataset, options: ModelOptions | None = None) -> Scorer:
        """Match inputs with columns, find the favorable score column, and say what was guessed."""
        scorer = bind(self, dataset, options or ModelOptions())
        version = f", version {self._version}" if self._version else ""
        notes = (
            f"The model answered at {self.client.settings.base} as {self.client.settings.model!r}{version}. It was "
            "not seen as a file: what is said is about these answers.",
        )
        scorer.info = replace(scorer.info, sha256=None, notes=(*notes, *scorer.info.notes), endpoint=self.described())
        return scorer

    @property
    def record(self) -> dict[str, Any]:
        """Where and as what it was asked, so that it can be asked again: ``url``, ``model``, ``version``."""
        settings = self.client.settings
        return {"url": settings.base, "model": settings.model, "version": settings.version}

    def described(self) -> dict[str, Any]:
        """Return the endpoint's record: address, model, version, platform, digest of the metadata."""
        return {
            "url": self.client.settings.base,
            "model": self.client.settings.model,
            "version": self._version or self.client.settings.version,
            "platform": str(self.metadata.get("platform", "")),
            "metadata_sha256": _digest(self.metadata),
        }

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Send rows in requests of at most `MOST_SENT` bytes, and return the answers."""
        rows = len(next(iter(feeds.values())))
        if rows >= _LOOK_AGAIN:
            self._look_again()
        names = self.output_names if outputs is None else list(outputs)
        parts, start = [], 0
        while start < rows:
            end = min(start + self._rows, rows)
            body, head = self._body({name: array[start:end] for name, array in feeds.items()}, names)
            fitting = int((end - start) * MOST_SENT * 0.9 / max(len(body), 1))
            self._rows = max(1, min(_MOST_ROWS, fitting))
            if len(body) > MOST_SENT and end - start > 1:
                continue  # shorter ones fit
            parts.append(self._ask(body, head, names, end - start))
            start = end
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    def run_in_parts(
        self,
        feeds: Mapping[str, NDArray[Any]],
        outputs: Sequence[str],
        sizes: Sequence[int],
        variant: tuple[int, bool] | None = None,
    ) -> dict[str, Any]:
        """Send rows in requests of these sizes; how the server runs the model is its own."""
        from fairkit_onnx.sandbox.wire import in_parts

        names = list(outputs)
        values = in_parts(lambda part: list(self.run(part, names).values()), feeds, sizes)
        return dict(zip(names, values, strict=True))

    def use_threads(self, threads: int) -> None:
        """Do nothing: the server's threads are its own."""

    def _body(self, feeds: Mapping[str, NDArray[Any]], names: Sequence[str]) -> tuple[bytes, int | None]:
        """Write a request: as JSON, unless the server says that it takes bytes or JSON cannot carry the numbers."""
        types = {tensor.name: tensor.datatype for tensor in self.inputs_described}
        return encode(feeds, types, names, binary=self.binary or holds_gaps(feeds))

    def _ask(self, body: bytes, head: int | None, names: Sequence[str], rows: int) -> dict[str, NDArray[Any]]:
        answer = self.client.infer(body, head)
        described = {name: self.outputs_described[name] for name in names}
        outputs, version = decode(answer.body, answer.head, described, rows, self._where)
        if self._version is None:
            self._version = version
        elif version != self._version:
            raise ModelError(
                f"{self._where} answered as version {self._version!r} and now answers as version {version!r}: the "
                "model was replaced during the audit. Name one with `model_version`, or audit again"
            )
        return outputs

    def _look_again(self) -> None:
        now = _trimmed(self.client.describe(), self._where)
        if now != self.metadata:
            changed = next(key for key in {**now, **self.metadata} if now.get(key) != self.metadata.get(key))
            raise ModelError(
                f"{self._where} changed its metadata during the audit ({changed!r}): another model may answer now. "
                "Audit again when the deployment is finished"
            )


def _trimmed(record: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the part of a model's metadata that the protocol defines."""
    trimmed = {key: record[key] for key in ("name", "versions", "platform", "inputs", "outputs") if key in record}
    for which in ("inputs", "outputs"):
        entries = trimmed.setdefault(which, [])
        if not isinstance(entries, list):
            raise ModelError(f"{where} has {which} in its metadata that are no list")
    return trimmed


def _digest(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
