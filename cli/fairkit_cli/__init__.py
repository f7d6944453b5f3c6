"""The `fairkit` command."""
