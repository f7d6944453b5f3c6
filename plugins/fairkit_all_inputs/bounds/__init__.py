"""What a model can do to anybody: bounds over all inputs, with evidence that is checked without searching."""
