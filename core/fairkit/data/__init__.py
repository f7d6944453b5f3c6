"""Data: tables with roles, read in batches from files, folders and frames; groups, profiles and digests."""
