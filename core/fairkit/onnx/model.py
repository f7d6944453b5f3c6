"""An ONNX file as a model that can be audited: loaded without running code, run on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.models.scorer import ModelOptions, Scorer
from fairkit.onnx.batches import Batches
from fairkit.onnx.read import safety
from fairkit.onnx.read.feeds import GraphInput
from fairkit.onnx.session import open_session

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset


class OnnxModel:
    """An ONNX model: digest, inputs, outputs, embedded audit settings. Made by `OnnxModel.load`.

    Nothing in the file is executed besides the graph's standard operators, and no path outside the
    model's own folder is read.
    """

    def __init__(
        self, content: bytes, name: str, folder: Path | None = None, threads: int | None = None
    ) -> None:
        self.name = name
        self.content = content
        self.folder = folder
        self.proto: onnx.ModelProto = safety.parse(content, name)
        self.external = safety.external_files(self.proto, name, folder)
        self.sha256 = safety.digest(content)
        self.settings = safety.embedded_settings(self.proto)
        self._threads = threads
        self._session: Any = None
        self._batches = Batches()
        self._inputs: list[GraphInput] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None, "proto": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.proto = safety.parse(self.content, self.name)

    @classmethod
    def load(cls, model: str | Path | bytes | onnx.ModelProto, *, threads: int | None = None) -> OnnxModel:
        """Load a model from a path, bytes or a proto.

        Parameters
        ----------
        model
            Where it is.
        threads
            How many threads onnxruntime may use; by default all cores.

        Raises
        ------
        ModelError
            No such file; not an ONNX model; data outside its folder; an operator that onnxruntime lacks.
        """
        if isinstance(model, str | Path):
            path = Path(model)
            if path.is_dir():
                raise ModelError(f"{str(path)!r} is a folder; give the .onnx file in it")
            loaded = cls(safety.read_bytes(path), path.name, path.parent, threads)
        else:
            content = model if isinstance(model, bytes) else model.SerializeToString()
            loaded = cls(content, "model in memory", None, threads)
        loaded.session  # noqa: B018 -- a model that cannot be run is refused here
        return loaded

    def use_threads(self, threads: int) -> None:
        """Let onnxruntime use so many threads, unless the session runs already."""
        self._threads = threads

    @property
    def session(self) -> Any:
        """The onnxruntime session."""
        if self._session is None:
            self._session = _start_session(self.content, self.name, self.folder, self.external, self._threads)
        return self._session

    @property
    def inputs(self) -> list[GraphInput]:
        """The graph's inputs."""
        if self._inputs is None:
            self._inputs = [GraphInput(i.name, i.type, _shape(i.shape)) for i in self.session.get_inputs()]
        return self._inputs

    @property
    def output_names(self) -> list[str]:
        """The graph's outputs."""
        return [output.name for output in self.session.get_outputs()]

    @property
    def outputs(self) -> list[tuple[str, str]]:
        """The graph's outputs: names and onnxruntime's types."""
        return [(output.name, output.type) for output in self.session.get_outputs()]

    @property
    def batch(self) -> int | None:
        """The number of rows that the graph takes at once; None where it is free."""
        return self.inputs[0].shape[0] if self.inputs and self.inputs[0].shape else None

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run the graph on arrays, in batches that fit in memory; a fixed size is met by cutting and padding.

        Raises
        ------
        ModelError
            The graph fails on these rows.
        """
        names = list(self.output_names if outputs is None else outputs)
        fixed = self.batch
        rows = len(next(iter(feeds.values())))
        if fixed is None:
            parts = self._batches.each(feeds, lambda some: self._run(names, some))
            if len(parts) == 1:
                return dict(zip(names, parts[0], strict=True))
        else:
            parts = [self._run(names, _cut(feeds, start, fixed)) for start in range(0, rows, fixed)]
        columns = zip(*parts, strict=True)
        return {name: _join(values, rows) for name, values in zip(names, columns, strict=True)}

    def _run(self, names: list[str], feeds: Mapping[str, NDArray[Any]]) -> list[Any]:
        try:
            values: list[Any] = self.session.run(names, dict(feeds))
        except Exception as error:
            raise ModelError(f"{self.name} fails on the data: {_first_line(error)}") from error
        return values

    def bind(self, dataset: Dataset, options: ModelOptions | None = None) -> Scorer:
        """Match inputs with columns, find the favorable score column, and say what was guessed.

        Raises
        ------
        DataError
            The model's inputs are not in the data.
        ModelError
            The outputs cannot be interpreted; the message names the option that helps.
        """
        from fairkit.onnx.read.scorer import bind

        return bind(self, dataset, options or ModelOptions())


def _start_session(
    content: bytes, name: str, folder: Path | None, external: Sequence[Path], threads: int | None
) -> Any:
    try:
        return open_session(folder / name if external and folder is not None else content, threads=threads)
    except Exception as error:
        raise ModelError(_session_message(error, name)) from error


def _session_message(error: Exception, name: str) -> str:
    text = _first_line(error)
    if "is not a registered function/op" in text or "No Op registered" in text or "not a registered" in text:
        return (
            f"{name} uses an operator that onnxruntime does not know: {text}. "
            "Export the model with standard operators, or with an opset that the installed onnxruntime has"
        )
    return f"onnxruntime refuses {name}: {text}. Check it with onnx.checker, or export it again"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].strip() if str(error).strip() else type(error).__name__


def _shape(dims: Sequence[Any]) -> tuple[int | None, ...]:
    return tuple(dim if isinstance(dim, int) and dim > 0 else None for dim in dims)


def _cut(feeds: Mapping[str, NDArray[Any]], start: int, size: int) -> dict[str, NDArray[Any]]:
    """Take `size` rows from `start`, repeating the last row where there are fewer."""
    places = np.minimum(np.arange(start, start + size), len(next(iter(feeds.values()))) - 1)
    return {name: array[places] for name, array in feeds.items()}


def _join(values: Sequence[Any], rows: int) -> Any:
    if isinstance(values[0], list):
        return [row for part in values for row in part][:rows]
    return np.concatenate([np.atleast_1d(value) for value in values])[:rows]
