"""Versions of rows from a file, for counterfactual logit pairing: a row is found among them by its features."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.errors import DataError
from fairkit_sensei.counterfactuals import GivenCounterfactuals
from fairkit_similarity.versions import read_given

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.mitigators import Table
    from fairkit_onnx.write.encode import Encoder

    Features = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """Rows in groups: each is a version of the others of its group."""

    name: str  # the file
    features: Features  # encoded, shape (p, d), float32
    originals: NDArray[np.int64]  # the group of each, shape (p,)

    @classmethod
    def read(cls, path: str, of: str, table: Table, encoder: Encoder) -> Versions:
        """Read a file whose column `of` names what each row is a version of."""
        given = read_given(path, of, table.features)
        features = encoder.transform(given.columns)
        if not np.isfinite(features).all():
            raise DataError(f"{path}: encoded features hold numbers that are not finite; fill them in")
        return cls(path, features, given.originals())

    def of(self, x: Features) -> GivenCounterfactuals:
        """Return the other versions of rows: those of every group that holds a row of the same features."""
        source, places = self._pairs(x)
        if not len(source):
            raise DataError(
                f"{self.name}: no training row has another version in it; it must hold the rows themselves, with the "
                "same features, beside their other versions, and one value of the column `of` for all versions of a row"
            )
        return GivenCounterfactuals(self.features, source, len(x), places)

    def known(self, x: Features) -> NDArray[np.int64]:
        """Return which rows have another version, in order."""
        return np.unique(self._pairs(x)[0])

    def _pairs(self, x: Features) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows, and the place of another version of each: a row comes as often as it has some."""
        mine, keys = _digests(x), _digests(self.features)
        members: dict[int, list[int]] = {}
        groups: dict[bytes, list[int]] = {}
        for index, (digest, group) in enumerate(zip(keys, self.originals.tolist(), strict=True)):
            members.setdefault(group, []).append(index)
            groups.setdefault(digest, []).append(group)
        source, places = [], []
        for row, digest in enumerate(mine):
            for group in dict.fromkeys(groups.get(digest, ())):
                others = [place for place in members[group] if keys[place] != digest]
                source += [row] * len(others)
                places += others
        return np.array(source, np.int64), np.array(places, np.int64)

    def note(self, found: GivenCounterfactuals, rows: int) -> tuple[str, ...]:
        """Say how many rows have versions, where some have none."""
        if found.paired == rows:
            return ()
        return (
            f"{found.paired:,} of {rows:,} training rows have other versions in {self.name}; the others are paired "
            "with themselves.",
        )


def _digests(x: Features) -> list[bytes]:
    """Return a digest of each row; 0 and -0 are the same."""
    plain = np.ascontiguousarray(x + np.float32(0))
    return [hashlib.blake2b(row, digest_size=16).digest() for row in plain]
