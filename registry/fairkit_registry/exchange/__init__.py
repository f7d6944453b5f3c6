"""Exchange: archives, bills of material, model cards, and descriptions of versions."""
