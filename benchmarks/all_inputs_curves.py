"""How far onnxruntime's Sigmoid and Tanh are from the exact functions: for every finite float32 number there is.

    python benchmarks/all_inputs_curves.py [--every 1] [--kinds Sigmoid,Tanh]

`all-inputs` takes both to be within 1e-6 on any machine. This script measures it for the onnxruntime and the processor
at hand: all 4,278,190,080 numbers in blocks of 2^20; with `--every 100` only every hundredth block. Vectorised kernels
take the last numbers of an array another way, so that of every 64th block numbers are asked again at other places, in
arrays of 1 to 33 numbers, and with two threads. It exits with 1 where a number is further off.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time

import numpy as np
import onnx
import onnxruntime

from fairkit_onnx.structure.networks.layers import CURVED

BLOCK = 1 << 20


def runner(kind, threads):
    """Return the operator as onnxruntime runs it."""
    helper = onnx.helper
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(kind, ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def exact(kind, x):
    """Return the function in float64."""
    wide = x.astype(np.float64)
    if kind == "Tanh":
        return np.tanh(wide)
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-wide))


def moved(run, both, x, served):
    """Return by how much a number's value depends on where in an array it is, and on the threads, at most."""
    most = float(np.abs(both(x) - served).max())
    for length in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33):
        some = x[: 64 * length].reshape(-1, length)
        again = np.concatenate([run(np.ascontiguousarray(part)) for part in some])
        most = max(most, float(np.abs(again - served[: 64 * length]).max()))
        shifted = run(x[length:])
        most = max(most, float(np.abs(shifted - served[length:]).max()))
    return most


def measured(kind, every):
    """Print what is found for one operator; return the largest error."""
    run, both, started = runner(kind, 1), runner(kind, 2), time.process_time()
    worst, at, apart, count, beyond = 0.0, 0.0, 0.0, 0, 0
    low, high = (0.0, 1.0) if kind == "Sigmoid" else (-1.0, 1.0)
    for number, first in enumerate(range(0, 1 << 32, every * BLOCK)):
        bits = np.arange(first, first + BLOCK, dtype=np.uint32)
        x = bits.view(np.float32)
        x = x[np.isfinite(x)]
        if not len(x):
            continue
        served = run(x)
        off = np.abs(served - exact(kind, x))
        place = int(off.argmax())
        count += len(x)
        beyond += int(((served < low) | (served > high)).sum())
        if not off[place] <= worst:  # a NaN is worse than anything
            worst, at = float(off[place]), float(x[place])
        if number % 64 == 0:
            apart = max(apart, moved(run, both, x, served))
    print(
        f"{kind}: {count:,} numbers, largest error {worst:.3g} at {at!r}, {beyond:,} values outside "
        f"[{low:g}, {high:g}], by place and threads {apart:.3g} at most; {time.process_time() - started:.0f} s",
        flush=True,
    )
    return worst + apart


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--kinds", default="Sigmoid,Tanh")
    told = parser.parse_args()
    print(f"onnxruntime {onnxruntime.__version__} on {platform.processor() or platform.machine()}")
    found = [measured(kind, told.every) for kind in told.kinds.split(",")]
    return 0 if max(found) <= CURVED else 1


if __name__ == "__main__":
    sys.exit(main())
