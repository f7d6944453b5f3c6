"""Evidence: certificates, their keys and envelopes, and making, checking and repeating them."""
