"""ONNX files: `fairkit_onnx.read` understands and runs foreign ones, `fairkit_onnx.write` makes ours."""
