"""The search for the worst x' near every row: reward(h(x')) - λ d²(x, x'), over all x' and not only over rows.

Both rewards here are convex in the outputs. So the search replaces the reward by its tangent, whose best point
under the metric is known in closed form, and moves there (the convex-concave procedure). For a network that is
linear along the way this never lowers the objective; where it would, the step is shortened, row by row.
There is no step size to choose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fairkit.support.lazy_dataclass import dataclass
from fairkit_similarity.networks import squared_difference, without_shift

if TYPE_CHECKING:
    from fairkit_similarity.metric import Geometry
    from fairkit_similarity.networks import Image, Network

Tensor = Any

SMALL = 1e-12
"""Below this a difference of outputs is none, and a slope is flat."""


FASTEST = 16.0
"""Along the paid axes a step goes at most so many times as far as the best point of the tangent."""


_USES = 12
"""About so often a search maps the moves of all rows to the root, or a slope back."""


class Reward(Protocol):
    """What is made large: a convex function of the outputs of every row."""

    def __call__(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reward, shape (n,), and its gradient in the outputs, shape (n, K)."""

    def toward(self, outputs: Tensor) -> Tensor:
        """Return a direction in the outputs to set out in where the gradient may vanish, shape (n, K)."""


class Disparity:
    """d_Y(h(x), h(x')) (SenSeI, appendix B); see `fairkit_similarity.networks`."""

    def __init__(self, here: Tensor, direction: Tensor, *, logits: bool = False) -> None:
        self.here, self.direction, self.logits = here, direction, logits

    def __call__(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """See `Reward`."""
        value, slope = squared_difference(outputs - self.here, logits=self.logits)
        return value, slope

    def toward(self, outputs: Tensor) -> Tensor:
        """See `Reward`."""
        import torch

        gap = outputs - self.here
        if self.logits:
            gap = without_shift(gap)
        return torch.where(gap.square().sum(dim=1, keepdim=True) > SMALL, gap, self.direction)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame:
    """A `Geometry` as tensors of one type on one device."""

    free: Tensor
    low: Tensor
    high: Tensor
    paid: Tensor
    price: Tensor
    reach: float

    @classmethod
    def of(cls, geometry: Geometry, like: Tensor) -> Frame:
        """Put a geometry where a tensor is."""
        import torch

        arrays = {name: getattr(geometry, name) for name in ("free", "low", "high", "paid", "price")}
        tensors = {name: torch.as_tensor(array, dtype=like.dtype, device=like.device) for name, array in arrays.items()}
        return cls(reach=geometry.reach, **tensors)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AscentResult:
    """What the search found for n rows."""

    s: Tensor  # moves along the free axes, shape (n, r): x' = x + s freeᵀ + t paidᵀ
    t: Tensor  # moves along the paid axes, shape (n, m)
    reward: Tensor  # the reward at x', shape (n,)
    cost: Tensor  # d²(x, x'), shape (n,)
    outputs: Tensor  # h(x'), shape (n, K)
    evaluations: int  # how often the outputs of all rows were computed, h(x) aside

    def moved(self, x: Tensor, frame: Frame) -> Tensor:
        """Return x'."""
        import torch

        x = torch.addmm(x, self.s, frame.free.t()) if self.s.shape[1] else x
        return torch.addmm(x, self.t, frame.paid.t())


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """A network at the rows themselves: the root u, the outputs h(x), and what slopes need; computed once."""

    u: Tensor
    outputs: Tensor
    saved: Any

    @classmethod
    def of(cls, network: Network, x: Tensor) -> Origin:
        """Compute it."""
        u = network.root(x)
        return cls(u, *network.tail(u))


class Climb:
    """The state of the search: moves, values, slopes and paces of all rows; `step` never lowers a row's value."""

    def __init__(
        self, network: Network, origin: Origin, reward: Reward, frame: Frame, x: Tensor, multiplier: float
    ) -> None:
        import torch

        self.network, self.u, self.reward, self.frame = network, origin.u, reward, frame
        self.multiplier = multiplier
        along = x @ frame.free
        self.low, self.high = frame.low - along, frame.high - along
        self.free = network.image(frame.free).for_rows(_USES * len(x))
        self.paid: Image | None = None
        self.s = torch.zeros_like(along)
        self.t = x.new_zeros(len(x), len(frame.price))
        self.outputs, saved = origin.outputs, origin.saved
        self.value, up = reward(self.outputs)
        self.slope = network.slope(saved, up)
        self.out_slope = network.slope(saved, reward.toward(self.outputs))
        self.pace = x.new_ones(len(x), 1)
        self.evaluations = 0

    def set_out(self) -> None:
        """Try the two corners of the box that the outputs differ most in, to first order."""
        import torch

        # a linear function is largest at a corner of the box: the sign of its slope picks it
        slope = self.free.slope(self.out_slope)
        up = torch.where(slope > 0, self.high, self.low)
        down = torch.where(slope > 0, self.low, self.high)
        self._try(up, None)
        self._try(down, None)

    def pay(self, epsilon: float) -> None:
        """Open the paid axes, and set out along them by a squared distance of ε."""
        import torch

        self.paid = self.network.image(self.frame.paid).for_rows(_USES * len(self.u))
        self.pace = torch.ones_like(self.pace)
        slope = self.paid.slope(self.out_slope) / self.frame.price
        # steepest ascent in the metric: t ∝ slope / price, of squared length Σ price t² = ε
        length = (slope.square() * self.frame.price).sum(dim=1, keepdim=True).sqrt()
        self._try(self.s, self.t + slope * (epsilon**0.5 / length.clamp_min(SMALL)))

    def start_from(self, s: Tensor, t: Tensor) -> None:
        """Try moves that were found before."""
        self._try(s.clamp(self.low, self.high), None if self.paid is None else t)

    def step(self) -> None:
        """Move to the best point of the tangent, part of the way where that was too far, beyond where it was not."""
        import torch

        s, t, pace, before = self.s, None, self.pace, self.value
        rise = torch.zeros_like(before)
        if s.shape[1]:
            slope = self.free.slope(self.slope)
            corner = torch.where(slope > 0, self.high, torch.where(slope < 0, self.low, s))
            rise += (slope * (corner - s)).sum(dim=1)
            s = torch.lerp(s, corner, pace.clamp_max(1.0))
        if self.paid is not None:
            best, uphill = self._best_paid(self.paid)
            rise += (uphill * (best - self.t)).sum(dim=1)
            t = self._within_reach(torch.lerp(self.t, best, pace))
        value = self._try(s, t)
        self._repace(rise.unsqueeze(1), (value - before).unsqueeze(1))

    def _repace(self, rise: Tensor, gained: Tensor) -> None:
        """Fit a parabola to what a row gained, and go next time as far as its top.

        For a linear network the top is at the same multiple of the tangent's best point in every step.
        """
        import torch

        pace = self.pace
        bend = (gained - rise * pace) / pace.square()
        top = torch.where(bend < 0, rise / (-2.0 * bend).clamp_min(SMALL), FASTEST)
        self.pace = torch.minimum(torch.maximum(top, pace / 8.0), pace * 8.0).clamp_max(FASTEST)

    def found(self) -> AscentResult:
        """Return where the search stands."""
        cost = (self.t.square() * self.frame.price).sum(dim=1)
        return AscentResult(
            s=self.s,
            t=self.t,
            reward=self.value + self.multiplier * cost,
            cost=cost,
            outputs=self.outputs,
            evaluations=self.evaluations,
        )

    def _best_paid(self, paid: Image) -> tuple[Tensor, Tensor]:
        """Maximise <slope, t> - λ Σ price t² no longer than `reach`; give also the objective's slope in t."""
        slope = paid.slope(self.slope)
        direction = slope / self.frame.price
        length = (direction.square() * self.frame.price).sum(dim=1, keepdim=True).sqrt()
        # the maximum is at t = slope / (2 λ price), cut to the length `reach`
        longest = self.frame.reach / length.clamp_min(SMALL)
        uphill = slope - self.t * (2.0 * self.multiplier * self.frame.price)
        return direction * longest.clamp_max(0.5 / max(self.multiplier, SMALL)), uphill

    def _within_reach(self, t: Tensor) -> Tensor:
        length = (t.square() @ self.frame.price).sqrt().unsqueeze(1)
        return t * (self.frame.reach / length.clamp_min(SMALL)).clamp_max(1.0)

    def _try(self, s: Tensor, t: Tensor) -> Tensor:
        """Evaluate moves (t None: as they are), and keep those that raise a row's value; gives the values tried."""
        import torch

        u = self.free.move(self.u, s) if s.shape[1] else self.u
        if t is not None and self.paid is not None:
            u = self.paid.move(u, t)
        outputs, saved = self.network.tail(u)
        reward, up = self.reward(outputs)
        value = reward
        if t is not None:
            value = torch.addmv(reward, t.square(), self.frame.price, alpha=-self.multiplier)
        slope = self.network.slope(saved, up)
        better = value > self.value
        mask = better.unsqueeze(1)
        self.value = torch.where(better, value, self.value)
        self.slope = torch.where(mask, slope, self.slope)
        self.outputs = torch.where(mask, outputs, self.outputs)
        self.s = torch.where(mask, s, self.s)
        if t is not None:
            self.t = torch.where(mask, t, self.t)
        self.evaluations += 1
        return value


def worst_case(
    network: Network,
    origin: Origin,
    x: Tensor,
    reward: Reward,
    frame: Frame,
    *,
    multiplier: float,
    epsilon: float,
    free_steps: int,
    steps: int,
    start: tuple[Tensor, Tensor] | None = None,
) -> AscentResult:
    """Search in two stages: along the free axes only, then everywhere (SenSeI Algorithm 1, line 3)."""
    climb = Climb(network, origin, reward, frame, x, multiplier)
    if frame.free.shape[1]:
        climb.set_out()
        for _ in range(free_steps):
            climb.step()
    if epsilon > 0.0 and len(frame.price):
        climb.pay(epsilon)
    if start is not None:
        climb.start_from(*start)
    if climb.paid is not None:
        for _ in range(steps):
            climb.step()
    return climb.found()


def output_directions(outputs: Tensor) -> Tensor:
    """Return a direction to set out in for `Disparity`: of the largest output, away from the others; (n, K)."""
    import torch

    if outputs.shape[1] == 1:
        return torch.ones_like(outputs)
    largest = torch.zeros_like(outputs).scatter_(1, outputs.argmax(dim=1, keepdim=True), 1.0)
    return largest - 1.0 / outputs.shape[1]
