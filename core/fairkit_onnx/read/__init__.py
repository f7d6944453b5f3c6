"""Reading ONNX models: safety, inputs, outputs, and what the outputs mean."""
