"""Ends with an error where an environment has more than the small verifier may take: VENV."""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from pathlib import Path

MOST_BYTES, MOST_DISTRIBUTIONS = 25 << 20, 5

packages = next(Path(sys.argv[1]).glob("[Ll]ib/**/site-packages"))
size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
names = sorted(one.metadata["Name"] for one in distributions(path=[str(packages)]))
print(f"{size / (1 << 20):.1f} MB in {len(names)} distributions: {', '.join(names)}")  # noqa: T201 -- a step of a build
sys.exit(size > MOST_BYTES or len(names) > MOST_DISTRIBUTIONS)
