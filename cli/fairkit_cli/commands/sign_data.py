"""`fairkit sign-data`: an auditor vouches for a table before models are audited on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairkit_cli import options as opt
from fairkit_cli.terminal.output import print_as


def sign_data(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="CSV or Parquet: a file, a folder or a glob; or an address.")
    ],
    *,
    keys: opt.SigningKeys,
    insecure_key: opt.InsecureKey = False,
    output: Annotated[Path, opt.option("--output", "FILE", "The signed statement.")],
    purpose: Annotated[str, opt.option("--purpose", "TEXT", "What the table is for; it is signed too.")] = "",
    output_format: opt.TableFormat = "table",
) -> None:
    """Sign a statement about a table: its content's digest, rows and columns.

    `fairkit certify --signed-data STATEMENT` puts it into a certificate; an alias with `--data-key PUB` asks for one.
    """
    from fairkit.data.loading import load_data
    from fairkit.support.files import check_writable, write_atomic
    from fairkit_cli.terminal.passphrases import load_signers
    from fairkit_registry.evidence.tables import read_statement, sign_table

    secrets = load_signers(keys, insecure=insecure_key)  # before the table, which may be large
    check_writable(output)
    data = load_data(table)
    seen = data.learn()
    rows = seen.rows + seen.dropped_rows
    raw = sign_table(data.name, data.sha256, rows, data.columns, secrets, purpose=purpose)
    write_atomic(output, raw)
    statement = read_statement(raw)
    print_as(
        output_format,
        statement.to_dict() | {"statement": str(output)},
        f"{output}: {statement.name}, {statement.rows:,} rows, content {statement.sha256}",
        f"signed by key {', '.join(keyid[:16] for keyid in statement.keyids)}",
    )
