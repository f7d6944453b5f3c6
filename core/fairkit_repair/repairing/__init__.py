"""Repair by policy: search the most accurate model that will surely pass, and look at the test rows once."""
