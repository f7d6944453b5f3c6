"""The interface of packs: what a law or a house rule asks of an audit, as a data file that a lawyer can read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar


class Pack(ABC):
    """A rendering for a law, or for an employer's own policy.

    The text is TOML: `fairkit_laws.files` says which keys it has. A complete plugin, in a module ``my_plugin.py``
    whose distribution declares the entry point ``[project.entry-points.fairkit] my-plugin = "my_plugin"``::

        from __future__ import annotations

        import fairkit
        from fairkit.packs import Pack

        RULES = '''
        title = "House rules on hiring tools"
        law = "Personnel handbook, chapter 7"
        source = "https://example.org/handbook#7"
        checked = 2026-01-15
        notice = "Internal use."

        [[facts]]
        key = "approved_by"
        title = "Approved by"

        [[items]]
        clause = "7.2"
        title = "Selection rates"
        says = "The share of each group that the tool selects."
        table = "selection_rates"

        [[items]]
        clause = "7.3"
        title = "Approval"
        facts = ["approved_by"]
        '''


        class HouseRules(Pack):
            \"\"\"What our handbook asks of hiring tools.\"\"\"

            name = "house-rules"

            @classmethod
            def text(cls):
                return RULES


        @fairkit.hookimpl
        def fairkit_packs():
            return [HouseRules]

    Attributes
    ----------
    name
        What ``--pack`` takes: small letters, digits and hyphens.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def text(cls) -> str:
        """Return the pack as TOML; the same each time."""
