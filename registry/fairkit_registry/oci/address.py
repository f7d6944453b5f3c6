"""Where something is in an OCI registry: ``oci://host/team/credit:3``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from fairkit_registry.errors import RegistryError

SCHEMES = ("oci://", "oci+http://")
"""The second one is without encryption: for a registry on this machine, say."""

_REPOSITORY = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_ADDRESS = re.compile(
    r"(?P<host>[A-Za-z0-9.-]+(?::[0-9]{1,5})?|\[[0-9a-fA-F:]+\](?::[0-9]{1,5})?)/"
    rf"(?P<repository>{_REPOSITORY}(?:/{_REPOSITORY})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A manifest in an OCI registry, by tag or digest."""

    host: str  # with the port, where there is one
    repository: str  # such as `team/credit`
    tag: str | None = None  # which; with both the digest counts
    digest: str | None = None  # which; with both the digest counts
    encrypted: bool = True  # whether the registry is reached by https

    @property
    def base(self) -> str:
        """The address of the registry's API."""
        return f"{'https' if self.encrypted else 'http'}://{self.host}"

    @property
    def reference(self) -> str:
        """What names the manifest in the API."""
        return self.digest or self.tag or "latest"

    def at(self, digest: str) -> Address:
        """Return the address of another manifest of the repository."""
        return replace(self, tag=None, digest=digest)

    def __str__(self) -> str:
        scheme = SCHEMES[0] if self.encrypted else SCHEMES[1]
        tag = f":{self.tag}" if self.tag else ""
        return f"{scheme}{self.host}/{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")


def is_address(text: str) -> bool:
    """Tell whether a text is meant as an address in an OCI registry."""
    return text.startswith(SCHEMES)


def parse(text: str) -> Address:
    """Read an address."""
    scheme = next((one for one in SCHEMES if text.startswith(one)), "")
    match = _ADDRESS.fullmatch(text.removeprefix(scheme)) if scheme else None
    if match is None:
        raise RegistryError(
            f"{text!r} is no address in an OCI registry: "
            "it is oci://HOST/REPOSITORY:TAG, or ...@sha256:DIGEST, in lower case"
        )
    return Address(**match.groupdict(), encrypted=scheme == SCHEMES[0])
