"""The small verifier: checks fairness certificates with `cryptography` as its only large library."""
