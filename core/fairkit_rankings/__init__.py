"""Rankings: items ordered by score within queries, and numbers over queries."""
