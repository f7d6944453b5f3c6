"""The auditor `alternatives`: evidence of a search beside the model that it is about, to certify and to judge."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairkit.auditors import AuditContext, Auditor
from fairkit.charts import ChartTable, EvidenceChart
from fairkit.errors import DataError
from fairkit.hookspecs import hookimpl
from fairkit.metrics import Headline, Term
from fairkit.parameters import parameter
from fairkit.results.findings import Finding
from fairkit.support.lazy_dataclass import dataclass
from fairkit_alternatives.laws import Law
from fairkit_alternatives.record import KEY, Alternatives, entry_of
from fairkit_alternatives.statements import Disagreement, PairedCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.arrow_types import Batch
    from fairkit.data.task import Task
    from fairkit.metrics import Metric
    from fairkit.models.scorer import Predictions
    from fairkit_alternatives.record import Column

_HOW = "name the file that `fairkit alternatives` wrote (the parameter `alternatives.evidence`)"


class AlternativesAuditor(Auditor):
    """Says what a search for less discriminatory alternatives shows, from its evidence and these test rows.

    `alternatives_reduction` is how much less disparity the best of the alternatives has that lose at most the accepted
    loss; its upper end is the statement *none*, its lower end above 0 the statement *found*. `alternatives_share` is
    the share of a law's trainings with the reduction that counts, `alternatives_disagreement` how often two equally
    good draws decide otherwise about a person. The decisions of the audited model are counted on the audited rows and
    must be those of the evidence; every bound is computed from the counts again.
    """

    name: ClassVar[str] = "alternatives"
    summary: ClassVar[str] = "What a search for less discriminatory alternatives shows (fairkit alternatives)."
    tasks: ClassVar[frozenset[Task]] = frozenset({"binary"})
    citation: ClassVar[str] = "Berger (1982), Technometrics 24(4); Clopper & Pearson (1934), Biometrika 26(4)"
    terms: ClassVar[Mapping[str, Term]] = {
        "alternatives_reduction": Term(
            "less disparity elsewhere", "How much less disparity the best alternative has at an accepted loss."
        ),
        "alternatives_share": Term(
            "share of better trainings", "The share of trainings of this kind that have less disparity at little loss."
        ),
        "alternatives_disagreement": Term(
            "arbitrary decisions", "How often two equally good models decide otherwise about a person."
        ),
    }
    headlines: ClassVar[Mapping[str, Headline]] = {
        "alternatives_reduction": Headline(), "alternatives_share": Headline()
    }  # fmt: skip

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Parameters:
        """What can be set with --set alternatives.KEY=VALUE."""

        evidence: str = parameter("", help="The JSON file that `fairkit alternatives --output FILE` wrote.")

    def __init__(self, parameters: Any = None) -> None:
        super().__init__(parameters)
        self._found: Alternatives | None = None

    @classmethod
    def measures(cls, metrics: Sequence[type[Metric]]) -> frozenset[str]:
        """Return the names of its findings."""
        return frozenset(cls.terms)

    def begin(self, context: AuditContext) -> None:
        """Read the evidence: of the certificate that is checked, else of the file."""
        signed = [
            finding.evidence[KEY]
            for finding in context.signed
            if finding.auditor == self.name and KEY in finding.evidence
        ]
        if not signed and not self.parameters.evidence:
            return
        self._found = _evidence_of(signed[0]) if signed else Alternatives.read(Path(self.parameters.evidence))
        about = self._found.about
        for split in about["sensitive"]:
            if split not in context.dataset.profile.groups:
                raise DataError(f"the evidence is about groups of {split!r}, which is no sensitive column here")
        for name, now in (("test", context.dataset.sha256), ("model", context.scorer.info.sha256)):
            if about[f"{name}_sha256"] != now:
                what = "rows" if name == "test" else "model"
                raise DataError(
                    f"the evidence about alternatives is of another {what}: its digest is "
                    f"{about[f'{name}_sha256'][:16]}..., and this one's {str(now)[:16]}..."
                )

    def measure(self, batch: Batch, predictions: Predictions, context: AuditContext) -> NDArray[np.int64]:
        """Count rows by group, outcome and decision, shape [G, 2, 2]."""
        if self._found is None:
            return np.zeros((0, 2, 2), dtype=np.int64)
        about = self._found.about
        cells = {tuple(names): index for index, names in enumerate(about["groups"])}
        names = [context.dataset.group_names(split) for split in about["sensitive"]]
        distinct, back = np.unique([batch.groups[split] for split in about["sensitive"]], axis=1, return_inverse=True)
        # a row without a group has the code -1
        places = [
            cells.get(tuple(of[c] if c >= 0 else "" for of, c in zip(names, cell, strict=True)), -1)
            for cell in distinct.T
        ]
        codes = np.array(places, dtype=np.int64)[back.reshape(-1)]
        if predictions.decision is None or batch.favorable is None or (codes < 0).any():
            raise DataError("evidence about alternatives is of decisions, outcomes and groups, and some are not there")
        cell = 4 * codes + 2 * (batch.favorable > 0) + (predictions.decision > 0.5)
        return np.bincount(cell, minlength=4 * len(cells)).reshape(-1, 2, 2).astype(np.int64)

    def findings(self, total: Any, context: AuditContext) -> list[Finding]:
        """Turn the statements into findings, after the model's own decisions were found to be those of the evidence."""
        search = self._found
        if search is None:
            note = f"No search is named: {_HOW}."
            return [Finding(auditor=self.name, metric="alternatives_reduction", value=None, notes=(note,),
                            inconclusive=f"no search is named; {_HOW}")]  # fmt: skip
        rows = search.test.base + (search.selection.base if search.about["selected_from_test"] else 0)
        if not np.array_equal(total, rows):
            raise DataError("the audited model decides these rows otherwise than the evidence about alternatives says")
        evidence = {KEY: json.dumps(search.to_dict(), separators=(",", ":"))}
        made = []
        for column in search.columns.values():
            made += _of_column(column, evidence)
            evidence = {}  # once is enough
        return made


def _of_column(column: Column, evidence: Mapping[str, Any]) -> list[Finding]:
    """Return the findings about the groups of one column."""
    search, none, best = column.search, column.none, column.found
    low = max(0.0, best.at_least) if best is not None and best.counts else 0.0
    common: dict[str, Any] = {"auditor": AlternativesAuditor.name, "sensitive": column.name, "better": "lower",
              "confidence": 1 - search.about["alpha"]}  # fmt: skip
    declared = {name: search.about[name] for name in ("metric", "loss", "reduction", "objective")}
    shared = ", over all sensitive columns of the search" if len(search.columns) > 1 else " by itself"
    note = f"Each end holds at this confidence{shared}. It is about these laws and rows, not all possible models."
    nothing = "the test rows exclude no reduction" if none.at_most >= none.base else None
    value = max(none.largest, best.reduction if best is not None and best.counts else 0.0)
    made = [
        Finding(
            metric="alternatives_reduction",
            value=value,
            interval=(min(low, value), max(none.at_most, value)),
            parameters=declared | {"alternatives": none.count},
            evidence=evidence,
            notes=(*(f"{name}: {text}" if name else text for name, text in column.told()), note),
            inconclusive=None if low > 0 else nothing or column.weak,
            **common,
        )
    ]
    made += [
        Finding(
            metric="alternatives_share",
            value=share.hits / share.draws,
            interval=(0.0, max(share.share, share.hits / share.draws)),
            parameters=declared | {"law": share.law, "draws": share.draws},
            notes=("Draws that these rows do not exclude, over all; the upper end is the statement.",),
            **common,
        )
        for share in column.one_more
    ]
    return made + [
        Finding(
            metric="alternatives_disagreement",
            value=share[0],
            interval=share[1:],
            parameters={"law": each.law, "models": each.models, "group": group},
            **common,
        )
        for each in column.arbitrary
        for group, share in each.shares.items()
        if share is not None
    ]


def _evidence_of(value: Any) -> Alternatives:
    """Read a finding's evidence, a JSON text: a certificate leaves out what could hold rows, and keeps texts."""
    return Alternatives.from_dict(json.loads(value))


def _records(value: Any) -> list[dict[str, Any]]:
    """Return a line for each alternative and sensitive column."""
    columns = _evidence_of(value).columns
    return [{"column": name, **record} for name, column in columns.items() for record in column.records()]


class AlternativesChart(EvidenceChart):
    """Alternatives as points: the reduction of the disparity against the loss, on the test rows."""

    name = KEY
    title = "Alternatives that were tried"
    _MOST = 12

    def table(self, value: Any) -> ChartTable:
        """Return the alternatives with the largest reductions, the pick first."""
        lines = sorted(_records(value), key=lambda candidate: (not candidate["pick"], -candidate["reduction"]))
        return ChartTable(
            columns=("alternative", "groups", "less disparity", "from", "to", "loss", "from", "to"),
            rows=[
                (line["name"] + (" (pick)" if line["pick"] else ""), line["column"],
                 *(round(line[key], 4) for key in ("reduction", "reduction_low", "reduction_high")),
                 *(round(line[key], 4) for key in ("loss", "loss_low", "loss_high")))
                for line in lines[: self._MOST]
            ],
        )  # fmt: skip

    def picture(self, value: Any, *, narrow: bool) -> Mapping[str, Any]:
        """Draw a point for each alternative, the accepted loss and the bound as lines, the pick larger."""
        evidence = _evidence_of(value)
        points = [
            {"name": candidate["name"], "law": candidate["law"] or "others", "column": candidate["column"],
             "reduction": round(candidate["reduction"], 5), "loss": round(candidate["loss"], 5),
             "size": 140 if candidate["pick"] else 24}
            for candidate in _records(value)
        ]  # fmt: skip
        x = {"field": "loss", "type": "quantitative", "title": "loss"}
        y = {"field": "reduction", "type": "quantitative", "title": "less disparity"}
        rule = {"type": "rule", "strokeDash": [4, 3], "color": "#777"}
        return {
            "height": 220,
            "layer": [
                {
                    "data": {"values": points},
                    "mark": {"type": "point", "filled": True},
                    "encoding": {
                        "x": x,
                        "y": y,
                        "size": {"field": "size", "type": "quantitative", "scale": None, "legend": None},
                        "shape": {"field": "column", "type": "nominal", "title": None if narrow else "groups"},
                        "color": {"field": "law", "type": "nominal", "title": None if narrow else "tried"},
                    },
                },
                {"data": {"values": [{"loss": evidence.aim.loss}]}, "mark": rule, "encoding": {"x": x}},
                {
                    "data": {"values": [{"reduction": column.none.at_most} for column in evidence.columns.values()]},
                    "mark": rule,
                    "encoding": {"y": y},
                },
            ],
        }

    @classmethod
    def example(cls) -> Any:
        """Return a small search: two draws, of which one has less disparity."""
        base = np.array([[[40, 20], [10, 30]], [[30, 30], [10, 30]]])
        less = np.array([[[0, 0], [0, 0]], [[8, 1], [2, 4]]])
        counts = PairedCounts(base, less, np.zeros_like(less))
        law = Law(name="seeds", draws=2)
        about = {
            "metric": "demographic_parity_difference", "sensitive": ["sex"], "groups": [["women"], ["men"]],
            "label": "repaid", "favorable": "yes", "loss": 0.0, "reduction": 0.02, "share": 0.02, "alpha": 0.05,
            "costs": [1.0, 1.0], "objective": "rate", "blind": False, "selected_from_test": False, "seed": 0,
            "look": 1, "version": "0",
            **{f"{name}_sha256": "0" * 64 for name in ("model", "train", "selection", "test")},
        }  # fmt: skip
        seen = Disagreement(accepted=np.array([[50, 9, 41], [40, 6, 54]]), apart=np.array([[9, 6], [9, 6]]))
        search = Alternatives(
            about=about, laws=(law,), failed={"seeds": ()}, selection=counts, test=counts, disagreement={"seeds": seen},
            candidates=tuple(entry_of(law, number, False) for number in (0, 1)),
        )  # fmt: skip
        return json.dumps(search.to_dict())


@hookimpl
def fairkit_auditors() -> list[type[Auditor]]:
    """Offer the auditor."""
    return [AlternativesAuditor]


@hookimpl
def fairkit_evidence_charts() -> list[type[EvidenceChart]]:
    """Offer its picture."""
    return [AlternativesChart]
