"""Engines: what runs functions where the rows are, in this process or on the workers of a Dask cluster.

Dask needs the extra ``fairkit[dask]``, here and on every worker::

    fairkit audit model.onnx --data loans/ --engine dask --set engine.scheduler=tcp://10.0.0.1:8786

    engine = fairkit.engines.DaskEngine(distributed.Client("tcp://10.0.0.1:8786"))
    fairkit.audit("model.onnx", fairkit.load_data(dask_frame, label=...), engine=engine)

Files must be found under the same path by the client and by every worker.
"""

from __future__ import annotations

from fairkit.support.lazy_package import lazy_names

__all__ = ["DaskEngine", "LocalEngine", "connected"]

__getattr__, __dir__ = lazy_names(
    __name__, {"DaskEngine": "fairkit_dask", "LocalEngine": ".local", "connected": "fairkit_dask"}
)
