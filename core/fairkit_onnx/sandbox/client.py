"""A session of onnxruntime in another process: the same calls, and a sentence where the model misbehaves."""

from __future__ import annotations

import mmap
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.errors import ModelError
from fairkit.support.lazy_dataclass import dataclass
from fairkit.support.timings import phase
from fairkit_onnx.sandbox import wire
from fairkit_onnx.sandbox.confine import shown_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fairkit_onnx.sandbox.confine import Limits

MOST = 1 << 30
"""Bytes that a model may give for one batch."""
START = 60.0
"""Seconds that the process may take to start, before it sees the model."""
_START = "import sys; sys.path[:] = {path!r}\nfrom fairkit_onnx.sandbox.child import main\nmain({area})"
_KEPT = ("LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "LANG", "LC_ALL", "TMPDIR")
"""The environment that the process gets: no secrets, no settings of other programs."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or output as onnxruntime describes it."""

    name: str
    type: str
    shape: Sequence[int | None]


def available() -> bool:
    """Whether this system can give a model a process of its own."""
    return sys.platform != "win32"


class SandboxedSession:
    """A model in a process of its own. The process starts at once and imports onnxruntime while others read data."""

    def __init__(self, limits: Limits, threads: int | None = None) -> None:
        self._limits, self._threads = limits, threads
        self._lock = threading.Lock()
        self._area = _Area()
        self._name = "the model"
        self._told: dict[str, Any] | None = None
        self._failed: str | None = None
        self.held: tuple[str, ...] = ()
        start = _START.format(path=[part for part in sys.path if part], area=self._area.fd)
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", start],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[self._area.fd],
            env=environment | {"OPENBLAS_NUM_THREADS": "1"},
        )
        self._end = weakref.finalize(self, _end, self._process, self._area)

    def open(self, content: bytes, name: str, folder: Path | None) -> None:
        """Send the model; the answer is waited for when it is needed."""
        self._name = name
        records, buffers = wire.pack([np.frombuffer(content, dtype=np.uint8)])
        self._area.fill(buffers)
        request = {
            "what": "open",
            "model": records[0],
            "memory": self._limits.bytes(),
            "threads": self._threads,
            "folder": None if folder is None else str(folder.resolve()),
        }
        self._send(request)

    def close(self) -> None:
        """End the process."""
        self._end()

    def get_inputs(self) -> list[Argument]:
        """Return the graph's inputs."""
        return [Argument(*each) for each in self._opened()["inputs"]]

    def get_outputs(self) -> list[Argument]:
        """Return the graph's outputs."""
        return [Argument(*each) for each in self._opened()["outputs"]]

    def run(
        self,
        outputs: Sequence[str],
        feeds: Mapping[str, NDArray[Any]],
        sizes: Sequence[int] | None = None,
        variant: tuple[int, bool] | None = None,
    ) -> list[Any]:
        """Run the graph, at once or on batches of these sizes; a variant in a session of its own."""
        self._opened()
        with self._lock:
            rows = max((len(array) for array in feeds.values()), default=0)
            records, buffers = wire.pack(list(feeds.values()))
            self._area.fill(buffers)
            named = [{"name": name, **record} for name, record in zip(feeds, records, strict=True)]
            self._send({"what": "run", "outputs": list(outputs), "feeds": named, "sizes": sizes, "variant": variant})
            answer, payload = self._receive(f"scoring {rows:,} rows")
            values = answer.get("outputs")
            if not isinstance(values, list) or len(values) != len(outputs):
                raise self._broken("answered with no outputs")
            try:
                return [wire.unpack(record, payload) for record in values]
            except wire.BrokenPipe as error:
                raise self._broken(f"answered with {error}") from error

    def _opened(self) -> dict[str, Any]:
        if self._failed is not None:
            raise ModelError(self._failed)
        with self._lock:
            if self._told is None:
                with phase("load model"):
                    self._receive("starting", max(START, self._limits.timeout))
                    message, _ = self._receive("loading it")
                self.held = ("a process of its own", "a limit of time", *map(str, message.get("held", ())))
                self._told = message
        return self._told

    def _send(self, request: dict[str, Any]) -> None:
        cores = self._threads or os.cpu_count() or 1
        request |= {"size": self._area.size, "processor": self._limits.timeout * cores}
        assert self._process.stdin is not None  # noqa: S101 -- a pipe was asked for
        try:
            self._process.stdin.write(wire.frame(request))
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise self._dead("starting") from error

    def _receive(self, doing: str, seconds: float | None = None) -> tuple[dict[str, Any], Any]:
        deadline = time.monotonic() + (seconds or self._limits.timeout)
        assert self._process.stdout is not None  # noqa: S101 -- a pipe was asked for
        source = self._process.stdout.fileno()
        try:
            answer, payload = wire.read_frame(lambda count: _read(source, count, deadline), MOST)
        except TimeoutError:
            raise self._fail(
                f"{self._name} took more than {self._limits.timeout:g} seconds for {doing} and was stopped. If it is "
                "to take so long, allow more: `timeout=SECONDS`"
            ) from None
        except EOFError:
            raise self._dead(doing) from None
        except wire.BrokenPipe as error:
            raise self._broken(f"answered with {error}") from error
        if "error" in answer:
            self._raise(answer, doing)
        return answer, payload

    def _raise(self, answer: dict[str, Any], doing: str) -> None:
        text = str(answer["error"])
        if answer.get("memory") or any(sign in text for sign in _MEMORY):
            raise self._fail(
                f"{self._name} needs more memory than the {shown_bytes(self._limits.bytes())} that it may take, while "
                f"{doing}. If it is to take so much, allow more: `memory=8GB`"
            )
        raise RuntimeError(text)

    def _dead(self, doing: str) -> ModelError:
        self._process.kill()
        code = self._process.wait()
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
        if name == "SIGXCPU":
            seconds = self._limits.timeout
            return self._fail(
                f"{self._name} computed for more than {seconds:g} seconds on every core while {doing} and was stopped. "
                "If it is to take so long, allow more: `timeout=SECONDS`"
            )
        more = ", most likely for its memory" if name == "SIGKILL" else ""
        return self._fail(
            f"{self._name} crashed while {doing} ({name}{more}). It ran in a process of its own, and nothing else was "
            "harmed; export it again with standard operators"
        )

    def _broken(self, what: str) -> ModelError:
        return self._fail(f"the process of {self._name} {what}; it is not trusted any further")

    def _fail(self, message: str) -> ModelError:
        self._failed = message
        self._end()
        return ModelError(message)


_MEMORY = ("bad_alloc", "Failed to allocate memory", "std::length_error", "Cannot allocate memory", "bad allocation")


class _Area:
    """Memory that both processes see: we write, the model's process reads."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("fairkit")
        else:
            with tempfile.TemporaryFile() as file:
                self.fd = os.dup(file.fileno())
        self.size = 0
        self._map: mmap.mmap | None = None

    def fill(self, buffers: Sequence[tuple[int, Any]]) -> None:
        """Write arrays to their places."""
        size = wire.size(buffers)
        if size > self.size:
            self.size = max(size, 1 << 20, self.size * 3 // 2)
            os.ftruncate(self.fd, self.size)
            self._map = mmap.mmap(self.fd, self.size)
        if self._map is not None:
            with memoryview(self._map) as view:
                wire.write(buffers, view)

    def close(self) -> None:
        """Release the memory."""
        if self._map is not None:
            self._map.close()
        os.close(self.fd)


def _read(source: int, count: int, deadline: float) -> bytearray:
    """Read exactly so many bytes before the deadline."""
    content = bytearray(count)
    view, at = memoryview(content), 0
    with selectors.DefaultSelector() as ready:
        ready.register(source, selectors.EVENT_READ)
        while at < count:
            left = deadline - time.monotonic()
            if left <= 0 or not ready.select(left):
                raise TimeoutError
            got = os.readv(source, [view[at:]])
            if not got:
                raise EOFError
            at += got
    return content


def _end(process: subprocess.Popen[bytes], area: _Area) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was not yet written is for nobody
                continue
    area.close()
