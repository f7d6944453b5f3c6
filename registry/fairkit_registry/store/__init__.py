"""The store: content-addressed blobs, an index, an append-only log of events, and what keeps them consistent."""
