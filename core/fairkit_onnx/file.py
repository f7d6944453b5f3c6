"""An ONNX file: loaded without running code, described, and run on arrays, in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fairkit.errors import ModelError
from fairkit.settings import ModelOptions
from fairkit.support.timings import peak_memory, phase
from fairkit_onnx.arrange import Arranged, has_large_trees
from fairkit_onnx.read import graph
from fairkit_onnx.read.feeds import GraphInput
from fairkit_onnx.read.scorer import bind
from fairkit_onnx.sandbox.confine import current
from fairkit_onnx.sandbox.wire import Maps, in_parts

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset
    from fairkit.models.scorer import Scorer
    from fairkit_onnx.sandbox.client import SandboxedSession
    from fairkit_onnx.sandbox.confine import Limits

    Feeds = Mapping[str, NDArray[Any]]


_UNHELD = "The model ran inside fairkit: this system gives it no process of its own, and no limit held it."


class OnnxFile:
    """An ONNX file: digest, inputs, outputs, embedded audit settings. Made by `OnnxFile.load`.

    Nothing in the file is executed besides the graph's standard operators, and no path outside the
    model's own folder is read.
    """

    def __init__(
        self,
        content: bytes,
        name: str,
        folder: Path | None = None,
        threads: int | None = None,
        sandbox: Limits | None = None,
    ) -> None:
        started = _sandbox(sandbox, threads)  # first: it starts while this process parses
        self.name = name
        self.content = content
        self.folder = folder
        self.proto: onnx.ModelProto = graph.parse(content, name)
        if sandbox is not None:
            graph.check_operators(self.proto, name, sandbox.domains)
        self.external = graph.external_files(self.proto, name, folder)
        self.sha256 = graph.digest(content)
        self.settings = graph.embedded_settings(self.proto)
        self.sandbox = None if started is None else sandbox
        self.unheld = (_UNHELD,) if sandbox is not None and started is None else ()
        self._threads = threads
        self._session: Any = None
        self._batches = Batches()
        self._large_trees = has_large_trees(self.proto)
        self._inputs: list[GraphInput] | None = None
        self._owner = os.getpid()
        if started is not None:
            self._open(started)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None, "proto": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.proto = graph.parse(self.content, self.name)

    @classmethod
    def load(
        cls,
        model: str | Path | bytes | onnx.ModelProto,
        *,
        threads: int | None = None,
        sandbox: Limits | bool | None = None,
    ) -> Self:
        """Load a model from a path, bytes or a proto.

        Parameters
        ----------
        model
            Where it is.
        threads
            How many threads onnxruntime may use; by default all cores.
        sandbox
            Whether the model runs in a process of its own, within limits of memory and time, without network (see
            `fairkit_onnx.sandbox.confine.Limits`). None: a file does, bytes and protos in memory do not. False is
            for files that you trust; the report says so.

        Raises
        ------
        ModelError
            No such file; not an ONNX model; data outside its folder; an operator that onnxruntime lacks.
        """
        if isinstance(model, str | Path):
            path = Path(model)
            if path.is_dir():
                raise ModelError(f"{str(path)!r} is a folder; give the .onnx file in it")
            limits = _limits(True if sandbox is None else sandbox)
            loaded = cls(graph.read_bytes(path), path.name, path.parent, threads, limits)
        else:
            content = model if isinstance(model, bytes) else model.SerializeToString()
            loaded = cls(content, "model in memory", None, threads, _limits(sandbox or False))
        if loaded.sandbox is None:
            loaded.session  # noqa: B018 -- a model that cannot be run is refused here; in a sandbox at its first use
        return loaded

    def use_threads(self, threads: int) -> None:
        """Let onnxruntime use so many threads, unless the session runs already."""
        self._threads = threads

    @property
    def session(self) -> Any:
        """The onnxruntime session, or what stands for it in another process."""
        if self._session is None or self._owner != os.getpid():
            started = _sandbox(self.sandbox, self._threads)
            if started is None:
                self._session = _start_session(self._source(), self.name, self._threads)
                self._owner = os.getpid()
            else:
                self._open(started)
        return self._session

    @property
    def held(self) -> tuple[str, ...]:
        """What kept the model from doing harm, in words: a process of its own, limits; empty without a sandbox."""
        return tuple(self._session.held) if self.sandbox is not None and self._session is not None else ()

    @property
    def machine(self) -> dict[str, Any]:
        """What could make the rounding of a sum another one elsewhere: processor, threads, versions."""
        import platform
        from importlib.metadata import version

        return {
            "processor": _processor(),
            "threads": self._threads or os.cpu_count() or 1,
            "system": platform.platform(),
            "onnxruntime": version("onnxruntime"),
        }

    @property
    def remark(self) -> str | None:
        """A sentence where a file runs without a sandbox; None otherwise."""
        if self.sandbox is not None or self.folder is None:
            return None
        return (
            "The model ran in the audit's own process, without a sandbox: it was said to be trusted, or this system "
            "has none."
        )

    def _open(self, started: SandboxedSession) -> None:
        started.open(self.content, self.name, self.folder if self.external else None)
        self._session, self._owner = started, os.getpid()

    @property
    def inputs(self) -> list[GraphInput]:
        """The graph's inputs."""
        if self._inputs is None:
            self._inputs = [GraphInput(i.name, i.type, _shape(i.shape)) for i in self._described("get_inputs")]
        return self._inputs

    @property
    def output_names(self) -> list[str]:
        """The graph's outputs."""
        return [name for name, _ in self.outputs]

    @property
    def outputs(self) -> list[tuple[str, str]]:
        """The graph's outputs: names and onnxruntime's types."""
        return [(output.name, output.type) for output in self._described("get_outputs")]

    def _described(self, what: str) -> list[Any]:
        try:
            result: list[Any] = getattr(self.session, what)()
        except RuntimeError as error:
            raise ModelError(_session_message(error, self.name)) from error
        return result

    @property
    def batch(self) -> int | None:
        """The number of rows that the graph takes at once; None where it is free.

        Raises
        ------
        ModelError
            The inputs take different numbers of rows.
        """
        sizes = {entry.shape[0]: entry.name for entry in self.inputs if entry.shape}
        if len(sizes) > 1:
            sizes_text = ", ".join(f"{name!r} {size or 'any number of'} rows" for size, name in sizes.items())
            raise ModelError(
                f"the inputs of {self.name} take different numbers of rows at once ({sizes_text}); export it again"
            )
        return next(iter(sizes), None)

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
            return dict(zip(names, self._run_arranged(names, feeds), strict=True))
        parts = [self._run(names, _cut(feeds, start, fixed)) for start in range(0, rows, fixed)]
        columns = zip(*parts, strict=True)
        return {name: _join(values, rows) for name, values in zip(names, columns, strict=True)}

    def _run_arranged(self, names: list[str], feeds: Mapping[str, NDArray[Any]]) -> list[Any]:
        """Run a graph of large trees on each distinct row once, rows that are alike together."""
        arranged = Arranged.of(feeds) if self._large_trees else None
        if arranged is None:
            return self._run_batches(names, feeds)
        results = [arranged.restore(values) for values in self._run_batches(names, arranged.take(feeds))]
        # an output that is not one value for each row is not understood here: the rows as they are
        return results if all(values is not None for values in results) else self._run_batches(names, feeds)

    def _run_batches(self, names: list[str], feeds: Mapping[str, NDArray[Any]]) -> list[Any]:
        parts = self._batches.each(feeds, lambda some: self._run(names, some))
        if len(parts) == 1:
            return parts[0]
        rows = len(next(iter(feeds.values())))
        return [_join(values, rows) for values in zip(*parts, strict=True)]

    def run_in_parts(
        self,
        feeds: Mapping[str, NDArray[Any]],
        outputs: Sequence[str],
        sizes: Sequence[int],
        variant: tuple[int, bool] | None = None,
    ) -> dict[str, Any]:
        """Run the graph on batches of these sizes, with so many threads, rewritten by onnxruntime or as it is.

        Raises
        ------
        ModelError
            The graph fails on these rows.
        """
        names = list(outputs)
        if variant is None:
            return dict(zip(names, self._run(names, feeds, sizes), strict=True))
        if self.sandbox is None:
            session = open_session(self._source(), threads=variant[0], optimised=variant[1])
            values = in_parts(lambda part: session.run(names, part), feeds, sizes)
        else:
            values = self.session.run(names, dict(feeds), sizes, variant)
        return dict(zip(names, values, strict=True))

    def _source(self) -> Path | bytes:
        """What an onnxruntime session is opened from."""
        return self.folder / self.name if self.external and self.folder is not None else self.content

    def _run(
        self, names: list[str], feeds: Mapping[str, NDArray[Any]], sizes: Sequence[int] | None = None
    ) -> list[Any]:
        try:
            values: list[Any]
            if sizes is None:
                values = self.session.run(names, dict(feeds))
            elif self.sandbox is None:
                values = in_parts(lambda part: self.session.run(names, part), feeds, sizes)
            else:
                values = self.session.run(names, dict(feeds), sizes)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(f"{self.name} fails on the data: {_first_line(error)}") from error
        return values


def _processor() -> str:
    """Return the processor's name, as far as the system says it."""
    import platform

    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return f"{platform.machine()} {line.partition(':')[2].strip()}"
    except OSError:
        pass
    return f"{platform.machine()} {platform.processor()}".strip()


def _limits(sandbox: Limits | bool) -> Limits | None:
    if isinstance(sandbox, bool):
        return current() if sandbox else None
    return sandbox


def _sandbox(limits: Limits | None, threads: int | None) -> SandboxedSession | None:
    """Start a process for a model; None where it needs none, or the system gives none."""
    if limits is None:
        return None
    from fairkit_onnx.sandbox.client import SandboxedSession, available

    return SandboxedSession(limits, threads) if available() else None


def _start_session(source: Path | bytes, name: str, threads: int | None) -> Any:
    try:
        return open_session(source, threads=threads)
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
    if isinstance(values[0], list | Maps):
        return [row for part in values for row in part][:rows]
    return np.concatenate([np.atleast_1d(value) for value in values])[:rows]


# How many rows a graph is given at once: as many as its memory allows, found while it runs.


FIRST, MOST = 512, 65_536
"""The first batch has so many rows; each is twice as long as the last, up to the second."""

BUDGET = 192.0
"""MiB by which a batch may raise the process's peak of memory before batches stop growing."""


class Batches:
    """Cuts rows into batches that grow until they cost memory.

    A model of nearest neighbours holds a distance to every one of its rows for each row that it scores; a linear
    model holds nothing. Both start with `FIRST` rows, and the peak of memory tells them apart.
    """

    def __init__(self) -> None:
        self.rows = FIRST
        self._growing = peak_memory() is not None

    def each(self, feeds: Feeds, run: Callable[[Feeds], list[Any]]) -> list[list[Any]]:
        """Run a graph on rows in batches, and return the outputs of each."""
        count = len(next(iter(feeds.values())))
        if count <= self.rows:
            return [run(feeds)]
        parts, start = [], 0
        while start < count:
            # a rest that is hardly longer than a batch goes along: no batch of one row at the end
            end = start + self.rows if count - start > self.rows * 5 // 4 else count
            before = peak_memory() or 0.0
            parts.append(run({name: array[start:end] for name, array in feeds.items()}))
            self._pace((peak_memory() or 0.0) - before)
            start = end
        return parts

    def _pace(self, grown: float) -> None:
        """Set the next batch's rows by what the last one cost."""
        if grown > BUDGET:
            self.rows = max(self.rows // 2, 1)
            self._growing = False
        elif grown > BUDGET / 2:
            self._growing = False
        elif self._growing:
            self.rows = min(self.rows * 2, MOST)


# The one place that opens an onnxruntime session.


_ONLY_FATAL = 4
"""onnxruntime raises its errors too; what it logs besides is not for the user."""


@phase("load model")
def open_session(model: onnx.ModelProto | bytes | Path, *, threads: int | None = None, optimised: bool = True) -> Any:
    """Open a session on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ONLY_FATAL
    # threads that spin while they wait took half as much processor time again, and other programs' cores
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if threads is not None:
        options.intra_op_num_threads = threads
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if isinstance(model, bytes):
        source: bytes | str = model
    elif hasattr(model, "SerializeToString"):
        source = model.SerializeToString()
    else:
        source = str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


# An ONNX file as a model that can be audited: its inputs are matched with columns, its outputs are resolved.


class OnnxModel(OnnxFile):
    """An ONNX model: digest, inputs, outputs, embedded audit settings. Made by `OnnxModel.load`.

    Nothing in the file is executed besides the graph's standard operators, and no path outside the
    model's own folder is read.
    """

    said: ModelOptions = ModelOptions()
    """What the user said about the model, wherever it is bound; options of a single call win."""

    def bind(self, dataset: Dataset, options: ModelOptions | None = None) -> Scorer:
        """Match inputs with columns, find the favorable score column, and say what was guessed.

        Raises
        ------
        DataError
            The model's inputs are not in the data.
        ModelError
            The outputs cannot be interpreted; the message names the option that helps.
        """
        return bind(self, dataset, (options or ModelOptions()).over(self.said))
