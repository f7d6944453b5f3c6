"""The scikit-learn faces of mitigators."""
