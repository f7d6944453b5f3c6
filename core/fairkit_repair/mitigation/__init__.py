"""Mitigation: split, train or repair, export one ONNX file, and audit it before and after."""
