"""Where models come from that are no ONNX file: servers, and whatever a plugin knows how to ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


class ModelSource(ABC):
    """A kind of models that can be opened by what a certificate records about them.

    A plugin's ``fairkit_model_sources`` returns such classes. The models that a source opens have, besides ``bind``:
    ``name``, ``settings`` (what the model itself says about its audit; may be empty), ``external`` (files that its
    digest does not cover; empty), and ``record``, from which `open` makes the model again.

    Attributes
    ----------
    name
        Small letters, digits and hyphens; the key of the record in a certificate's settings.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def open(cls, record: Mapping[str, Any]) -> Any:
        """Open a model.

        Parameters
        ----------
        record
            What a user or a certificate says: for a server ``url``, ``model``, ``version``, and limits of asking.

        Raises
        ------
        ModelError
            It cannot be reached, or a value cannot be used.
        """
