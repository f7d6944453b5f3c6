"""`fairkit` run in this process."""

from __future__ import annotations

from typing import Any


def invoke(*words: object, **more: Any) -> Any:
    """Run fairkit with these words, as `CliRunner.invoke` does."""
    from typer.testing import CliRunner

    from fairkit_cli.main import app

    return CliRunner().invoke(app, [str(word) for word in words], **more)


def ok(result: Any, code: int = 0) -> Any:
    """Refuse another exit code than this one."""
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    return result


def checked(*words: object, code: int = 0) -> Any:
    """Run fairkit with these words; refuse another exit code than this one."""
    return ok(invoke(*words), code)
