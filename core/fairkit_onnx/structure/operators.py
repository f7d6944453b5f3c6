"""What is known about ONNX operators, which readers, structure and bounds share."""

from __future__ import annotations

ARRANGES = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
"""A row's numbers stay as they are, in their order."""
CHOOSES = frozenset({"Concat", "FeatureVectorizer", "Gather", "ArrayFeatureExtractor", "Slice", "Split"})
"""Columns are taken, or joined."""
RISES = frozenset({"Cast", "Clip", "Exp", "Relu", "Sigmoid", "Tanh"})
"""Each number follows from one, and never falls while that rises."""
POSITIVE = frozenset({"Exp", "Relu", "Sigmoid", "Softmax"})
"""No number is below zero."""
COMPARES = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
"""A truth value from two numbers, one of which makes it true by rising."""
EACH = frozenset({
    "Identity", "Scaler", "Imputer", "Binarizer", "IsNaN", "Not", "LabelEncoder", "Neg", "Abs", "Log", "Sqrt", "Floor",
    "Ceil", "Round", "CategoryMapper", "StringNormalizer", *RISES,
})  # fmt: skip
"""Each number follows from one."""
PAIRS = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Equal", "Where", "Min", "Max", "And", "Or", *COMPARES})
"""Each number follows from those of the inputs at its place."""
TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")
"""Sums of trees: the first two of ai.onnx.ml 1 to 3, the last of version 5."""
