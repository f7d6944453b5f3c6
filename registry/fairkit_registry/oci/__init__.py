"""A client of OCI registries: addresses, credentials, blobs, manifests, referrers. It knows none of fairkit's files."""
