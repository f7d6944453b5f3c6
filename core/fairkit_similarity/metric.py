"""The fair metric: how far apart are two people in what should matter?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from fairkit.errors import DataError
from fairkit.parameters import parameter
from fairkit.support.files import write_atomic
from fairkit.support.lazy_dataclass import dataclass, field
from fairkit_similarity.encode import Columns, Encoder, Floats

SCHEMA = "fairkit.metric/1"

GRID = 2.0**30
"""Coordinates are rounded to multiples of 1 / GRID: rows that the metric cannot tell apart become equal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FairMetric:
    """A squared distance between people: d²(x, x') = ‖z - z'‖² with z = encode(x) · matrix.

    Make one with the learners of `fairkit_similarity.learn`. Zero means that the metric sees no
    difference that should matter; the unit is that of the encoded features (numbers have standard deviation 1
    and two different categories of one column are √2 apart), squared.

    Attributes
    ----------
    encoder
        Raw columns to features.
    matrix
        Shape (features, k): Σ = matrix · matrixᵀ.
    description
        What made it: ``kind`` and that learner's settings. Plain JSON values.
    """

    encoder: Encoder
    matrix: Floats
    description: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def projecting(cls, encoder: Encoder, directions: Floats, description: Mapping[str, Any]) -> Self:
        """Ignore some directions: Σ = I - P, with P the projector on their span.

        Parameters
        ----------
        encoder
            Raw columns to features.
        directions
            Shape (r, features): the rows of A.
        description
            What made them.

        Raises
        ------
        DataError
            Nothing is left: the directions span all features.
        """
        _, size, axes = np.linalg.svd(np.atleast_2d(directions), full_matrices=True)
        rank = int((size > 1e-10 * max(size.max(initial=0.0), 1e-300)).sum())
        complement = axes[rank:].T
        if not complement.shape[1]:
            raise DataError(
                f"the sensitive subspace takes all {len(encoder.features)} encoded feature(s): the fair metric "
                "has no direction left. Give the metric more columns, or fewer sensitive ones"
            )
        return cls(encoder=encoder, matrix=_clean(complement), description=description)

    @classmethod
    def of_sigma(cls, encoder: Encoder, sigma: Floats, description: Mapping[str, Any]) -> Self:
        """Use d² = (x - x')ᵀ Σ (x - x').

        Raises
        ------
        DataError
            Σ has the wrong shape, is not symmetric, not positive semidefinite, or zero.
        """
        size = len(encoder.features)
        sigma = np.asarray(sigma, dtype=np.float64)
        if sigma.shape != (size, size) or not np.isfinite(sigma).all():
            raise DataError(f"sigma has the shape {sigma.shape}; {size} features need ({size}, {size}), all finite")
        largest = float(np.abs(sigma).max(initial=0.0))
        if largest == 0.0:
            raise DataError("sigma is zero: the fair metric has no direction left")
        if not np.allclose(sigma, sigma.T, rtol=0.0, atol=1e-10 * largest):
            raise DataError("sigma is not symmetric")
        value, axes = np.linalg.eigh((sigma + sigma.T) / 2.0)
        if value[0] < -1e-10 * largest * size:
            raise DataError(f"sigma has the eigenvalue {value[0]:.3g}: a squared distance needs none below 0")
        keep = value > 1e-14 * largest
        return cls(encoder=encoder, matrix=_clean(axes[:, keep] * np.sqrt(value[keep])), description=description)

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw columns that it reads."""
        return self.encoder.names

    def transform(self, columns: Columns) -> Floats:
        """Return z for n rows, shape (n, k).

        Raises
        ------
        DataError
            A column is missing or of the wrong kind.
        """
        return self.project(self.encoder.encode(columns))

    def project(self, features: Floats) -> Floats:
        """Return z for rows that are encoded already."""
        z: Floats = features @ self.matrix
        z *= GRID  # in place: each new array of this size costs more time than the arithmetic
        np.rint(z, out=z)
        z /= GRID
        z += 0.0
        return z

    @property
    def sha256(self) -> str:
        """The digest of the encoder, the matrix and the description."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; numbers survive the way there and back to the last bit."""
        return {
            "schema": SCHEMA,
            "description": dict(self.description),
            "encoder": self.encoder.to_dict(),
            "matrix": self.matrix.tolist(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave.

        Raises
        ------
        DataError
            It is not a fair metric, or its matrix does not fit its encoder.
        """
        if not isinstance(record, Mapping) or record.get("schema") != SCHEMA:
            raise DataError(f"not a fair metric: its schema is not {SCHEMA!r}")
        try:
            encoder = Encoder.from_dict(record["encoder"])
            matrix = np.array(record["matrix"], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a fair metric: {type(error).__name__} {error}") from error
        if matrix.ndim != 2 or len(matrix) != len(encoder.features) or not np.isfinite(matrix).all():
            raise DataError(
                f"the fair metric's matrix of shape {matrix.shape} does not fit its {len(encoder.features)} features"
            )
        return cls(encoder=encoder, matrix=matrix, description=dict(record.get("description", {})))

    def save(self, path: str | Path) -> None:
        """Write a JSON file."""
        write_atomic(Path(path), json.dumps(self.to_dict(), indent=1, sort_keys=True) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        DataError
            There is no such file, or it holds no fair metric.
        """
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8-sig")))
        except OSError as error:
            raise DataError(f"the fair metric {str(path)!r} cannot be read: {error.strerror}") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{str(path)!r} is not a fair metric: it is not JSON ({error})") from error


def _clean(matrix: Floats) -> Floats:
    """Make rounding noise zero, so that an ignored feature changes no bit of z."""
    return np.ascontiguousarray(np.where(np.abs(matrix) < 1e-12, 0.0, matrix))


# Axes in which a fair metric is diagonal: some cost nothing to move along, the others cost a squared distance.


FREE = 1e-6
"""Directions of a price below this share of the largest count as free, so that nobody is moved along them for miles."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Geometry:
    """Where a row may be moved, and what that costs: x' = x + s freeᵀ + t paidᵀ, d²(x, x') = Σ_k price_k t_k².

    Moves along `free`, the sensitive directions, cost nothing; they are bounded by the range that the rows have
    there. Moves along `paid` are no longer than `reach`.
    """

    free: Floats
    low: Floats  # the smallest x · free of the rows, shape (r,)
    high: Floats  # the largest
    paid: Floats  # shape (d, m), orthonormal, r + m = d
    price: Floats  # shape (m,), positive: squared distance per squared length
    reach: float  # the root mean squared distance of two rows drawn at random: a row is never moved farther

    @classmethod
    def learn(cls, features: Floats, matrix: Floats) -> Self:
        """Find the axes of d²(x, x') = ‖(x - x') · matrix‖²."""
        features = np.asarray(features, dtype=np.float64)
        matrix = np.asarray(matrix, dtype=np.float64)
        if features.ndim != 2 or not len(features):
            raise DataError(f"features have the shape {features.shape}; give a matrix of at least one row")
        width = features.shape[1]
        if matrix.ndim != 2 or len(matrix) != width:
            raise DataError(
                f"the fair metric is for {len(matrix)} features, but there are {width}: learn the metric on the "
                "features that the network gets"
            )
        for what, values in (("features", features), ("the fair metric's matrix", matrix)):
            if not np.isfinite(values).all():
                raise DataError(f"{what} hold numbers that are not finite; replace or drop them")
        # ‖(x - x') M‖² = Σ_k σ_k² t_k² along the left singular vectors of M
        axes, size, _ = np.linalg.svd(matrix, full_matrices=True)
        rank = int((size**2 > FREE * max(size.max(initial=0.0) ** 2, 1e-300)).sum())
        free = _principal(features, axes[:, rank:])
        along = features @ free
        z = (features - features.mean(axis=0)) @ matrix
        return cls(
            free=free,
            low=along.min(axis=0),
            high=along.max(axis=0),
            paid=np.ascontiguousarray(axes[:, :rank]),
            price=size[:rank] ** 2,
            # E ‖z - z'‖² = 2 tr Cov(z)
            reach=float(np.sqrt(2.0 * (z**2).mean(axis=0).sum())),
        )

    @property
    def width(self) -> int:
        """The number of features d."""
        return len(self.free)


def _principal(features: Floats, basis: Floats) -> Floats:
    """Turn an orthonormal basis to the rows' principal axes in its span, widest first, signs fixed."""
    if not basis.shape[1]:
        return np.ascontiguousarray(basis)
    along = (features - features.mean(axis=0)) @ basis
    _, turn = np.linalg.eigh(along.T @ along)
    turned = basis @ turn[:, ::-1]
    largest = np.abs(turned).argmax(axis=0)
    signs = np.sign(turned[largest, np.arange(turned.shape[1])])
    return np.ascontiguousarray(turned * np.where(signs == 0.0, 1.0, signs))


# The parameters of a fair metric that ignores a sensitive subspace, the same in every method that learns one.


def strength_parameter(default: float = 0.1) -> Any:
    """Declare `strength`, a float: how much the regressions behind the subspace are held back.

    Weak penalties find directions that tell the sensitive columns better, strong ones directions that another sample of
    the rows gives again: an auditor needs the second, a method that trains the first.
    """
    return parameter(
        default,
        help="l2 penalty of the regressions that find the directions of a subspace, against their mean loss.",
        above=0,
    )


def directions_parameter() -> Any:
    """Declare `directions`, a tuple of names or None: whose predictors belong to the subspace."""
    return parameter(
        None, help="Sensitive columns whose predictors a subspace ignores, too; default: all; empty: none."
    )
