"""Text from outside is shown as it is spelled: nothing in it acts, and equal JSON comes back."""

from __future__ import annotations

import json
import tomllib
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairkit.support.escaping import json_text, markdown, toml_text, visible

TEXT = st.text(st.characters(), max_size=30)  # with surrogates
WHOLE = st.text(max_size=30)
JOINERS = "\u200c\u200d"


def _acts(text: str) -> set[str]:
    """Characters of the kinds control, format, surrogate and separator of lines that none of ours is."""
    kinds = ("Cf", "Cc", "Cs", "Zl", "Zp")
    return {char for char in text if unicodedata.category(char) in kinds} - set(NUMBER_SIGNS + JOINERS + "\n")


NUMBER_SIGNS = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
"""Format characters that are seen: signs above numbers."""


@given(TEXT)
@example("\x1b]8;;http://e\x07x\x9b31m")
@example("fe\u200dmale\u202e")
def test_nothing_in_visible_text_acts(text):
    assert not _acts(visible(text))
    assert "\n" not in visible(text)
    assert visible(text, lines=True).count("\n") == text.count("\n")


def test_how_characters_are_spelled():
    assert visible("a\x1b[31m\x9b\u202eb\udcff\n\t") == r"a\x1b[31m\x9b\u202eb\udcff\n\t"
    assert visible("fe\u200dmale \U000e0041") == r"fe\u200dmale \U000e0041"
    plain = "naïve 日本 ❤️ می‌خواهم é [/x] <b>"
    assert visible(plain) == plain


@pytest.mark.long
@given(st.recursive(st.none() | st.integers() | WHOLE, lambda one: st.lists(one) | st.dictionaries(WHOLE, one)))
@example(["\udcff", "\x7f", "fe\u200dmale"])
def test_json_is_equal_when_it_is_read_again_and_holds_nothing_that_acts(value):
    text = json_text(value)
    assert json.loads(text) == value
    text.encode()
    assert not _acts(text)


@given(st.text(max_size=30))
@example('\x7f😀\\"\x00\u202e')
def test_toml_text_is_equal_when_it_is_read_again(text):
    assert tomllib.loads(f"x = {toml_text(text)}")["x"] == text


def test_half_a_surrogate_pair_is_no_toml():
    with pytest.raises(ValueError, match="no valid Unicode"):
        toml_text("\udcff")


def test_markdown_has_no_marks_and_one_line():
    assert markdown("# [x](http://e) www.e <b>&lt; a|b\n\x1b `c`") == (
        r"\# \[x\](http\://e) www\.e \<b\>\&lt; a\|b \\x1b \`c\`"
    )
