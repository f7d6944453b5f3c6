"""Promotion: what an alias asks for, and whether a version's certificates meet it."""
