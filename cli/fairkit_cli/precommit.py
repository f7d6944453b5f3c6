"""The pre-commit hook: `fairkit audit` on each of several models.

``python -P -m fairkit_cli.precommit [OPTIONS of fairkit audit] MODEL.onnx ...``
"""

from __future__ import annotations

import subprocess
import sys

_COMMAND = "import sys; from fairkit_cli.main import run; sys.argv[0] = 'fairkit'; run()"


def main(words: list[str]) -> int:
    """Audit every model named at the end; return the worst exit code: an error's, then a broken policy's."""
    index = len(words)
    while index > 0 and words[index - 1].endswith(".onnx"):
        index -= 1
    options, models = words[:index], words[index:]
    codes = [
        subprocess.run([sys.executable, "-P", "-c", _COMMAND, "audit", model, *options], check=False).returncode
        for model in models
    ]
    return max(codes, key=lambda code: (code not in (0, 1, 3), code == 1, code), default=0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
