"""Models: what can be scored, whatever it comes from."""
