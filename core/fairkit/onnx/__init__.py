"""ONNX files: `fairkit.onnx.read` understands and runs foreign ones, `fairkit.onnx.write` makes ours."""
