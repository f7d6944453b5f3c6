"""The interface of evidence charts: how evidence of an auditor's own is shown on a terminal and on a page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fairkit.support.lazy_dataclass import dataclass

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartTable:
    """Evidence as numbers: what a terminal shows, and a page beside the picture."""

    columns: tuple[str, ...]  # their names
    rows: Sequence[Sequence[Cell]]  # each as long as `columns`; None is shown as not defined


class EvidenceChart(ABC):
    """How one kind of evidence is shown.

    An auditor puts what it found under a key of its finding's ``evidence``; the chart of that name shows it. A complete
    plugin, in a module ``my_plugin.py`` whose distribution declares the entry point
    ``[project.entry-points.fairkit] my-plugin = "my_plugin"``::

        from __future__ import annotations

        import fairkit
        from fairkit.charts import ChartTable, EvidenceChart


        class WaitingTimes(EvidenceChart):
            \"\"\"How long people of each group wait for a decision.\"\"\"

            name = "waiting_times"
            title = "Days until the decision"

            def table(self, value):
                return ChartTable(columns=("group", "days"), rows=[(name, days) for name, days in value.items()])

            def picture(self, value, *, narrow):
                values = [{"group": name, "days": days} for name, days in value.items()]
                x, y = {"field": "days", "type": "quantitative"}, {"field": "group", "type": "nominal"}
                return {"data": {"values": values}, "mark": "bar", "encoding": {"x": x, "y": y}}

            @classmethod
            def example(cls):
                return {"women": 12.5, "men": 9.0}


        @fairkit.hookimpl
        def fairkit_evidence_charts():
            return [WaitingTimes]

    Attributes
    ----------
    name
        The key of ``Finding.evidence`` that it shows.
    title
        What stands above it, in a few words.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    @abstractmethod
    def table(self, value: Any) -> ChartTable:
        """Return the evidence as numbers.

        Parameters
        ----------
        value
            What the finding has under `name`, as JSON values. It may come from somebody else's certificate: raise
            ValueError, KeyError or TypeError where it is not as expected, and it is left out with a note.
        """

    def picture(self, value: Any, *, narrow: bool) -> Mapping[str, Any] | None:
        """Return a Vega-Lite specification with its data in it; None where the table is enough.

        `value`: as for `table`; `narrow`: whether it is for a phone.
        """
        return None

    @classmethod
    @abstractmethod
    def example(cls) -> Any:
        """Return a small value, for the contract checks."""
