"""The interval of a paired difference whose documents and names are both samples: closed form, two-way, with floors.

One answer y_tcj ∈ [0, 1] is about document t, context c and name j. With T documents, write d_t for the difference of
the two groups' mean answers on document t (the mean over its contexts), D = mean d_t, and for each answer of group g
its contribution c_tj = (±(y_tj - mean of the other group's answers) - D) · weight / T, where the weights of a group's
names add up to 1 on each document. B_j = Σ_t c_tj is what name j moves D by. Then

    v = Σ(d_t - D)² / (T(T-1))                                             documents, as sampled
    V_T = max(v, (Σ(d_t - D)² + 2h²) / ((T+1)(T+2)))                       two pseudo-documents at ±h
    W_g = J/(J-1) ΣB_j²,   N_g = max(0, W_g - Σc_tj² + v/J)                names: products on different documents only
    N_g += N_g/W_g max(0, (ΣB_j² + 2 max B_j²) J²/((J+1)(J+2)) - W_g)      two pseudo-names
    D ± t(df) √(V_T + N_g + N_h),  df = (V_T + W_g + W_h)² / (V_T²/(T-1) + W_g²/(J_g-1) + W_h²/(J_h-1))

h is max |d_t|, or 1 where fewer than ten documents speak: k = (Σ|d_t|)²/Σd_t² < 10. There the interval is also no
narrower than MOVER's (Newcombe 1998) from the exact limits of Σmax(d, 0) and Σmax(-d, 0) of T.

J is the number of names, as many of one size: with s_j a name's part of the answers' weights (Σ s_j)² / Σ s_j².

Sources: crossed samples of stimuli and participants (Judd, Westfall & Kenny 2012), two-way clusters (Cameron, Gelbach &
Miller 2011; MacKinnon, Nielsen & Webb 2024), pigeonhole models (Owen 2007).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import clopper_pearson, student, two_sided

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.results.values import Interval

    Array = NDArray[np.float64]
    Indices = NDArray[np.int64]

FEW_SPEAKING = 10.0
"""With fewer documents that differ the exact limits guard the interval, and h is 1."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Mean answers of two groups: one entry for each document, context and name."""

    document: Indices  # indices, shape [n]; documents from 0 to `documents` - 1, names numbered across both groups
    context: Indices  # indices, shape [n]; documents from 0 to `documents` - 1, names numbered across both groups
    name: Indices  # indices, shape [n]; documents from 0 to `documents` - 1, names numbered across both groups
    side: NDArray[np.bool_]  # whether the name is of the first group, shape [n], bool
    low: Array  # the answer in [0, 1] if everything open is 0, and if it is 1, shape [n]; equal where nothing is open
    high: Array  # the answer in [0, 1] if everything open is 0, and if it is 1, shape [n]; equal where nothing is open
    documents: int  # how many there are: T

    def answers(self, towards: float) -> Array:
        """Return the answers with open ones at `towards` for the first group and 1 - `towards` for the second."""
        share = np.where(self.side, towards, 1 - towards)
        return np.asarray(self.low + share * (self.high - self.low))


@dataclass(frozen=True, slots=True)
class Parts:
    """What the interval of one difference is made of: see the module's equations."""

    differences: Array  # d_t, shape [T]
    value: float  # D
    documents: float  # V_T
    names: tuple[float, float]  # N_g and N_h
    spread: tuple[float, float]  # W_g and W_h
    counts: tuple[float, float]  # J_g and J_h: as how many names of one size they count
    speaking: float  # k

    @property
    def error(self) -> float:
        """√V, names as samples."""
        return math.sqrt(self.documents + sum(self.names))


def parts(cells: Cells, towards: float = 0.5) -> Parts:
    """Return the parts of a difference's variance; every document must have both groups in each of its contexts."""
    y = cells.answers(towards)
    size, contexts = cells.documents, int(cells.context.max(initial=0)) + 1
    place = cells.document * contexts + cells.context
    side = cells.side.astype(np.int64)
    both = 2 * place + side
    count = np.bincount(both, minlength=2 * size * contexts).astype(np.float64)
    mean = np.bincount(both, y, minlength=2 * size * contexts) / np.maximum(count, 1)
    present = count[::2] > 0
    within = present.reshape(size, contexts).sum(axis=1)
    gap = (mean[1::2] - mean[::2]) * present
    d = gap.reshape(size, contexts).sum(axis=1) / within
    value = float(d.mean())
    # weights of a group's answers add up to 1 on each document
    weight = 1 / (count[both] * within[cells.document])
    contribution = np.where(cells.side, 1, -1) * (y - mean[both ^ 1]) - value
    contribution *= weight / size
    residual = float(((d - value) ** 2).sum())
    v = residual / (size * (size - 1)) if size > 1 else math.inf
    total, squares = float(np.abs(d).sum()), float((d**2).sum())
    speaking = total**2 / squares if squares > 0 else 0.0
    reach = 1.0 if speaking < FEW_SPEAKING else float(np.abs(d).max())
    documents = max(v, (residual + 2 * reach**2) / ((size + 1) * (size + 2)))
    sides = [_names(cells, contribution, weight, which, v) for which in (True, False)]
    return Parts(
        differences=d,
        value=value,
        documents=documents,
        names=(sides[0][0], sides[1][0]),
        spread=(sides[0][1], sides[1][1]),
        counts=(sides[0][2], sides[1][2]),
        speaking=speaking,
    )


def _names(cells: Cells, contribution: Array, weight: Array, which: bool, v: float) -> tuple[float, float, float]:
    """Return N, W and J of one group."""
    rows = cells.side == which
    names, local = np.unique(cells.name[rows], return_inverse=True)
    part = contribution[rows]
    count = effective(np.bincount(local, weight[rows]).astype(np.float64))
    if count < 1.5:
        return math.inf, math.inf, count
    moved = np.bincount(local, part)
    # a name's answers on one document, in all contexts, are one contribution
    pair = local * cells.documents + cells.document[rows]
    if len(names) * cells.documents > 8 * len(part):
        pair = np.unique(pair, return_inverse=True)[1]
    squares = float((np.bincount(pair, part) ** 2).sum())
    total = float((moved**2).sum())
    spread = count / (count - 1) * total
    variance = max(0.0, spread - squares + v / count)
    pseudo = (total + 2 * float((moved**2).max())) * count**2 / ((count + 1) * (count + 2))
    if spread > 0:
        variance += variance / spread * max(0.0, pseudo - spread)
    return variance, spread, count


def effective(sizes: Array) -> float:
    """Return as how many names of one size some count: (Σ size)² / Σ size²."""
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def limits(found: Parts, confidence: float, *, fixed: bool = False) -> Interval:
    """Return the two-sided interval of a difference, within [-1, 1]; `fixed` names: V_T alone."""
    z, size = two_sided(confidence), len(found.differences)
    names, degrees = (0.0, size - 1.0) if fixed else (sum(found.names), _degrees(found))
    if not math.isfinite(names + found.documents):
        return -1.0, 1.0
    half = float(student(z, np.array([degrees + 1]))[0]) * math.sqrt(found.documents + names)
    low, high = found.value - half, found.value + half
    if found.speaking < FEW_SPEAKING:
        exact = _exact(found.differences, z)
        low, high = min(low, exact[0]), max(high, exact[1])
    return max(low, -1.0), min(high, 1.0)


def _degrees(found: Parts) -> float:
    """Satterthwaite's degrees of freedom."""
    top = (found.documents + sum(found.spread)) ** 2
    bottom = found.documents**2 / max(len(found.differences) - 1, 1)
    bottom += sum(w**2 / max(j - 1, 0.5) for w, j in zip(found.spread, found.counts, strict=True))
    return top / bottom if math.isfinite(top) and bottom > 0 else 1.0


def _exact(d: Array, z: float) -> Interval:
    """Return MOVER's limits of the mean of max(d, 0) minus that of max(-d, 0)."""
    size = np.array([len(d)], dtype=np.float64)
    rates = [np.array([float(np.maximum(sign * d, 0).mean())]) for sign in (1, -1)]
    (up, down), ends = (float(rate[0]) for rate in rates), [clopper_pearson(rate, size, z) for rate in rates]
    (up_low, up_high), (down_low, down_high) = ((float(low[0]), float(high[0])) for low, high in ends)
    value = up - down
    low = value - math.hypot(up - up_low, down_high - down)
    return low, value + math.hypot(up_high - up, down - down_low)
