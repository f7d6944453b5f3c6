"""The process in which a foreign model runs. It reads requests from standard input and answers on standard output.

It imports numpy and onnxruntime, gives its rights away (`confine`), and only then sees a model.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from typing import Any, BinaryIO

from fairkit_onnx.sandbox import confine, wire


def main(area: int) -> None:
    """Serve until the other side closes the pipe."""
    source, sink = os.fdopen(0, "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a library prints is no message
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other side, which ends this process
    import onnxruntime as ort

    served = _Served(ort, area)
    _send(sink, {"ready": True}, [])
    while True:
        try:
            request, _ = wire.read_frame(lambda count: _exactly(source, count), 0)
        except (wire.BrokenPipe, EOFError):
            return
        try:
            answer, buffers = served.answer(request)
        except MemoryError:
            answer, buffers = {"error": "MemoryError", "memory": True}, []
        except Exception as error:
            answer, buffers = {"error": f"{error}" or type(error).__name__}, []
        _send(sink, answer, buffers)


class _Served:
    """The model that is served."""

    def __init__(self, ort: Any, area: int) -> None:
        self._content = b""
        self._folder: str | None = None
        self._ort, self._fd = ort, area
        self._area: mmap.mmap | None = None
        self._session: Any = None

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        if request["size"] and (self._area is None or len(self._area) < request["size"]):
            self._area = mmap.mmap(self._fd, request["size"], access=mmap.ACCESS_READ)
        if request["what"] == "open":
            return self._open(request), []
        confine.limit_processor(request["processor"])
        feeds = {each["name"]: wire.unpack(each, self._area or b"") for each in request["feeds"]}
        names, sizes, variant = request["outputs"], request["sizes"], request["variant"]
        session = self._session if variant is None else self._start(variant[0], optimised=variant[1])
        if sizes is None:
            values = session.run(names, feeds)
        else:
            values = wire.in_parts(lambda part: session.run(names, part), feeds, sizes)
        records, buffers = wire.pack(values)
        return {"outputs": records}, buffers

    def _open(self, request: dict[str, Any]) -> dict[str, Any]:
        confine.limit_dumps()
        refusals = [
            confine.limit_memory(request["memory"]),
            confine.limit_processor(request["processor"]),
            *confine.forbid_calls(),
        ]
        self._folder = request["folder"]
        self._content = bytes(wire.unpack(request["model"], self._area or b""))
        self._session = self._start(request["threads"])
        return {
            "held": [sentence for sentence in refusals if sentence],
            "inputs": [[i.name, i.type, _dims(i.shape)] for i in self._session.get_inputs()],
            "outputs": [[o.name, o.type, _dims(o.shape)] for o in self._session.get_outputs()],
        }

    def _start(self, threads: int | None, *, optimised: bool = True) -> Any:
        options = self._ort.SessionOptions()
        options.log_severity_level = 4
        # threads that wait by spinning would take the cores from the process that prepares the next batch
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if threads is not None:
            options.intra_op_num_threads = threads
        if not optimised:
            options.graph_optimization_level = self._ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        if self._folder is not None:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", self._folder)
        return self._ort.InferenceSession(self._content, options, providers=["CPUExecutionProvider"])


def _dims(shape: list[Any]) -> list[int | None]:
    return [dim if isinstance(dim, int) else None for dim in shape]


def _exactly(source: BinaryIO, count: int) -> bytes:
    parts = []
    while count:
        part = source.read(count)
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _send(sink: BinaryIO, answer: dict[str, Any], buffers: list[Any]) -> None:
    area = bytearray(wire.size(buffers))
    wire.write(buffers, memoryview(area))
    for data in (wire.frame(answer, len(area)), area):
        rest = memoryview(data)
        while rest:
            rest = rest[sink.write(rest) :]


if __name__ == "__main__":
    main(int(sys.argv[1]))
