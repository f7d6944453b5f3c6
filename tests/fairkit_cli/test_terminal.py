"""Commands in a real terminal of 80 columns: nothing is asked, nothing is cut, no codes are left on the screen."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from terminal import assert_readable, typed

ROLES = "--label decision --favorable approved --sensitive sex"
COMMANDS = {
    "fairkit audit plain.onnx --data test.parquet": 0,
    "fairkit audit plain.onnx --data test.parquet --max demographic_parity_difference:sex=0.01": 1,
    "fairkit why plain.onnx --data test.parquet": 0,
    "fairkit compare plain.onnx fair.onnx --data test.parquet": 0,
    f"fairkit data test.parquet {ROLES}": 0,
    "fairkit plan --max demographic_parity_difference:sex=0.1 --groups female=0.5,male=0.5": 0,
    "fairkit registry list": 0,
    "fairkit registry list loans": 0,
    "fairkit registry alias": 0,
    "fairkit registry show loans@1": 0,
    "fairkit plugins": 0,
    "fairkit packs": None,
    "fairkit audit nowhere.onnx --data test.parquet": 2,
}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The demo's folder, made in a terminal in which nobody answers."""
    folder = tmp_path_factory.mktemp("terminal")
    shown, code = typed("fairkit demo --keep kept", folder)
    assert code == 0, shown
    said = " ".join(shown.split())
    assert "The demo's key is written without a passphrase, so that nothing is asked" in said, said
    assert "$ fairkit key new auditor.key --no-passphrase" in said
    assert "exit code 2" not in said
    return folder / "kept"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_screen_has_no_codes_and_no_line_that_is_too_long(kept, command):
    shown, code = typed(command, kept)
    assert code != 70, shown
    assert COMMANDS[command] in (None, code), shown
    assert_readable(shown)
