"""Models behind an address: scored by the Open Inference Protocol, version 2 (KServe, Triton, MLServer)."""

from __future__ import annotations

from fairkit.endpoints.attest import Attestation, attest
from fairkit.endpoints.client import EndpointSettings
from fairkit.endpoints.model import EndpointModel

__all__ = ["Attestation", "EndpointModel", "EndpointSettings", "attest"]
