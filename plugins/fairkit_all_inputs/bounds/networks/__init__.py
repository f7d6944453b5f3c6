"""Networks: bounds over boxes of inputs by linear relaxation, and a search that splits boxes."""
