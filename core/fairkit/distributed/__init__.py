"""Audits, certificates and training on a Dask cluster: the same code as on one machine, where the rows are.

Needs the extra ``fairkit[dask]``, here and on every worker::

    fairkit audit model.onnx --data loans/ --engine dask --scheduler tcp://10.0.0.1:8786

    engine = fairkit.distributed.DaskEngine(distributed.Client("tcp://10.0.0.1:8786"))
    fairkit.audit("model.onnx", fairkit.load_data(dask_frame, label=...), engine=engine)

Files must be found under the same path by the client and by every worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairkit.distributed.cluster import connected
    from fairkit.distributed.engine import DaskEngine

__all__ = ["DaskEngine", "connected"]


def __getattr__(name: str) -> Any:
    if name == "DaskEngine":
        from fairkit.distributed.engine import DaskEngine

        return DaskEngine
    if name == "connected":
        from fairkit.distributed.cluster import connected

        return connected
    raise AttributeError(f"module 'fairkit.distributed' has no attribute {name!r}")
