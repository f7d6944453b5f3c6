"""Models behind an address: scored by the Open Inference Protocol, version 2 (KServe, Triton, MLServer)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fairkit
from fairkit.errors import ParameterError
from fairkit.models.scorer import ModelSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairkit_endpoint.model import EndpointModel


class Endpoint(ModelSource):
    """Models that a server scores: ``url``, ``model``, ``version``, ``timeout`` and ``rate``."""

    name = "endpoint"

    @classmethod
    def open(cls, record: Mapping[str, Any]) -> EndpointModel:
        """Open a model on a server; see `fairkit_endpoint.client.EndpointSettings`."""
        from fairkit_endpoint.client import EndpointSettings
        from fairkit_endpoint.model import EndpointModel

        try:
            settings = EndpointSettings(**record)
        except TypeError as error:
            raise ParameterError(f"a model on a server is named by `url` and `model`: {error}") from None
        return EndpointModel(settings)


@fairkit.hookimpl
def fairkit_model_sources() -> list[type[ModelSource]]:
    """Return the source of models behind servers."""
    return [Endpoint]
