"""What the tests of sources share."""

from __future__ import annotations

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAOPENSESAME00",
    "AWS_SECRET_ACCESS_KEY": "sesame/opens+the/S3-door",
    "PGPASSWORD": "sesame-opens-Postgres",
}
"""What no report, certificate or message may show."""
ROLES = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")


def no_secret_in(*texts: object) -> None:
    """Assert that no secret is shown."""
    for text in texts:
        shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        for secret in SECRETS.values():
            assert secret not in shown
