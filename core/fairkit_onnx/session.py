"""The one place that opens an onnxruntime session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairkit.support.timings import phase

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

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
