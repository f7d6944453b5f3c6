"""Writing ONNX models: encoders, estimators, trees, rules and mixtures as one self-contained graph."""
