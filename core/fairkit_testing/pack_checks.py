"""Checks on packs: their text can be read, is the same each time, and a rendering of it shows every gap."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from fairkit.errors import ConfigError
from fairkit.plugins.finding import pack_plugins
from fairkit_testing.require import require

if TYPE_CHECKING:
    from fairkit.packs import Pack, PackFile


def check_pack_can_be_read(cls: type[Pack]) -> None:
    """`text` is TOML with the keys of a pack."""
    _read(cls)


def check_pack_is_the_same_each_time(cls: type[Pack]) -> None:
    """`text` gives the same text each time: what was filed can be made again."""
    require(cls.text() == cls.text(), "text gives another text the second time")


def check_pack_states_its_source(cls: type[Pack]) -> None:
    """The source and the day on which it was checked are stated, and that day is not to come."""
    pack = _read(cls)
    require(pack.checked <= datetime.datetime.now(datetime.UTC).date(), f"checked is {pack.checked}, a day to come")
    require(len(pack.notice) > 20, "notice is short: say what the page is not, for example legal advice")


def check_pack_shows_its_gaps(cls: type[Pack]) -> None:
    """Filled without facts, every fact that is required is a gap."""
    import fairkit
    from fairkit_testing.samples import sample_data, sample_model

    pack = _read(cls)
    report = fairkit.audit(sample_model("binary"), sample_data("binary", rows=200))
    signed = {"sha256": "0" * 64, "audited_at": f"{pack.to_dict()['edition']}T00:00:00Z", "keyids": []}
    made = pack_plugins()[1].render(pack, report, {}, signed, today=pack.checked)
    asked = {fact.title for fact in pack.facts if fact.required}
    told = {fact.title for one in made.items for fact, _ in one.facts}
    require(asked <= told, f"no item asks for the facts {sorted(asked - told)}: name them in an item")
    require(len(made.gaps) >= len(asked), f"{len(asked)} facts are required and {len(made.gaps)} gaps are shown")


def _read(cls: type[Pack]) -> PackFile:
    try:
        return pack_plugins()[1].read(cls.name, cls.text())
    except ConfigError as error:
        require(False, str(error))
        raise


CHECKS = (
    check_pack_can_be_read,
    check_pack_is_the_same_each_time,
    check_pack_states_its_source,
    check_pack_shows_its_gaps,
)
