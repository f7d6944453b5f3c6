"""Whether a certificate's statement can be true: what it says is held against itself, whoever signed it."""

from fairkit_registry.evidence.consistency.statement import contradictions

__all__ = ["contradictions"]
