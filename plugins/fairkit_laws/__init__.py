"""What laws and house rules ask of an audit: packs as TOML, the tables that they name, and their rendering."""
