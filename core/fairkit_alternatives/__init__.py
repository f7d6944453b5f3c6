"""Evidence about less discriminatory alternatives: draws of a declared law, and what their counts show."""
