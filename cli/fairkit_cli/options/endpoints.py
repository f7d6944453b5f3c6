"""Where a model answers that is no file, and how it is asked."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from fairkit.errors import ParameterError
from fairkit.sources.servers import TOKEN
from fairkit_cli.options.data import first_known
from fairkit_cli.options.declare import Rare, option
from fairkit_cli.trust import check_host

if TYPE_CHECKING:
    from fairkit_cli.config import Config

PANEL = "Endpoint"

Endpoint = Annotated[
    str | None,
    option(
        "--endpoint",
        "URL",
        "Audit the model behind this server (KServe, Triton, MLServer), as http://host:8000.",
        PANEL,
    ),
]
ModelName = Annotated[str | None, option("--model-name", "NAME", "The model's name on the server.", PANEL)]
ModelVersion = Annotated[
    str | None, Rare("endpoint.model_version", "The model's version on the server. Default: the server chooses.")
]
EndpointTimeout = Annotated[
    float | None, Rare("endpoint.timeout", "Seconds that one answer of the server may take. Default: 60.")
]
EndpointRate = Annotated[
    float | None, Rare("endpoint.rate", "The most requests to the server in a second. Default: no limit.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingOptions:
    """How a server is asked; None: the default."""

    model_name: ModelName = None
    model_version: ModelVersion = None
    endpoint_timeout: EndpointTimeout = None
    endpoint_rate: EndpointRate = None

    def settings(self, url: str, config: Config) -> dict[str, Any]:
        """Return the settings: options win over the configuration file."""
        configured = config.endpoint
        name = self.model_name or configured.get("model_name")
        if not name:
            raise ParameterError("an endpoint serves models by name; say which one with --model-name")
        return {
            "url": url,
            "model": name,
            "version": self.model_version or configured.get("model_version"),
            "timeout": float(first_known(self.endpoint_timeout, configured.get("timeout"), 60.0)),
            "rate": configured.get("rate") if self.endpoint_rate is None else self.endpoint_rate,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions(AskingOptions):
    """A server whose model is audited, and how it is asked."""

    endpoint: Endpoint = None

    @property
    def typed(self) -> bool:
        """Whether any option of an endpoint was typed."""
        return any(getattr(self, field.name) is not None for field in fields(self))

    def chosen(self, config: Config) -> dict[str, Any] | None:
        """Return the settings; None where no server is named."""
        url = self.endpoint or config.endpoint.get("url")
        if self.endpoint is None and url is not None and os.environ.get(TOKEN):
            check_host(urlsplit(url).netloc or url, config.path, f"the token in {TOKEN}")
        if url is None and self.typed:
            raise ParameterError("--model-name and the other options of an endpoint need --endpoint URL")
        return None if url is None else self.settings(url, config)
