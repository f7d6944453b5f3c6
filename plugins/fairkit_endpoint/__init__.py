"""Models behind an address: scored by the Open Inference Protocol, version 2 (KServe, Triton, MLServer)."""

from __future__ import annotations

from fairkit_endpoint.attest import Attestation, attest
from fairkit_endpoint.client import EndpointSettings
from fairkit_endpoint.model import EndpointModel

__all__ = ["Attestation", "EndpointModel", "EndpointSettings", "attest"]
