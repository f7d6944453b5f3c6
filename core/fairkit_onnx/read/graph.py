"""What is read like an ONNX file: the file itself, or a model that a server runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

    from fairkit_onnx.read.feeds import GraphInput


class Graph(Protocol):
    """Inputs, outputs, and what runs one into the other."""

    name: str  # what messages call it
    sha256: str  # a digest that draws follow from
    settings: dict[str, Any]  # the audit settings in its metadata; empty where it has none
    folder: Path | None  # where the file lies

    @property
    def content(self) -> bytes | None:
        """The file's bytes; None where there is none."""
        ...

    @property
    def proto(self) -> onnx.ModelProto:
        """The graph's nodes and metadata; empty where they cannot be seen."""
        ...

    @property
    def remark(self) -> str | None:
        """A sentence for the report about how it is run; None for the usual way."""
        ...

    @property
    def batch(self) -> int | None:
        """The number of rows that it takes at once; None where it is free."""
        ...

    @property
    def inputs(self) -> list[GraphInput]:
        """Its inputs."""
        ...

    @property
    def outputs(self) -> list[tuple[str, str]]:
        """Its outputs: names and onnxruntime's types."""
        ...

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run it on arrays, each with the rows along the first axis."""
        ...

    def run_in_parts(
        self,
        feeds: Mapping[str, NDArray[Any]],
        outputs: Sequence[str],
        sizes: Sequence[int],
        variant: tuple[int, bool] | None = None,
    ) -> dict[str, Any]:
        """Run it on batches of these sizes; a file also with so many threads, optimised or not."""
        ...
