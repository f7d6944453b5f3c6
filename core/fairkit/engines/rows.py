"""Rows to learn from that lie on the workers of a cluster, as a method sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.data.dataset import Dataset


class RowsInParts(Protocol):
    """A dataset whose rows are read where they are, part by part; every row of it is used.

    Functions get one part as a source, the number of its first row, and the dataset without its rows:
    ``for batch in dataset.part(source, start).batches(columns)``.
    """

    @property
    def data(self) -> Dataset:
        """The dataset."""
        ...

    @property
    def engine(self) -> Any:
        """What runs the work: a `fairkit.engines.DaskEngine`, for libraries that need its `client`."""
        ...

    def sizes(self) -> list[int]:
        """Return the rows of every part."""
        ...

    def cut(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Cut what belongs to the rows, shape [n, ...], at the parts' bounds."""
        ...

    def collect(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        """Bring ``function(source, start, dataset, *shared)`` of every part here."""
        ...

    def tasks(self, function: Callable[..., Any], each: Iterable[tuple[Any, ...]], *shared: Any) -> list[Any]:
        """Start ``function(source, start, dataset, *own, *shared)`` on every part, with its `own` of `each`."""
        ...
