"""Requests to an OCI registry: logins, tokens, redirects, retries, and errors as sentences."""

from __future__ import annotations

import re
import ssl
import time
import urllib.parse
from typing import TYPE_CHECKING, Any

from fairkit.errors import MissingExtraError
from fairkit.support.escaping import visible
from fairkit_registry.errors import RegistryError
from fairkit_registry.oci import credentials

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from fairkit_registry.oci.address import Address

_CONNECT, _READ = 5.0, 60.0
_TRIES = 4
_LONGEST_WAIT = 10.0
_REDIRECTS = 5
_OK, _BUSY, _UNAUTHORIZED, _FORBIDDEN, _MISSING, _LIMITED = 200, 500, 401, 403, 404, 429
_PART = re.compile(r'([A-Za-z_]+)="([^"]*)"')


class LostError(RegistryError):
    """The connection was not made, or was lost on the way."""


class Transport:
    """One registry's repository: every request carries what the registry asked for, and nothing goes elsewhere."""

    def __init__(self, address: Address) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingExtraError("httpx", "exchange") from None
        self.address = address
        self._httpx = httpx
        self._login: credentials.Login | None = None
        self._looked = False
        self._authorization: str | None = None
        self._client = httpx.Client(
            timeout=httpx.Timeout(_READ, connect=_CONNECT),
            follow_redirects=False,
            verify=ssl.create_default_context(),  # the system's CAs, or those of SSL_CERT_FILE
            headers={"Accept-Encoding": "identity"},  # digests and ranges are over the bytes as they are
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def request(
        self,
        method: str,
        url: str,
        *,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
        redirects: bool = False,
    ) -> httpx.Response:
        """Send a request, log in where the registry asks for it, and wait where it is busy.

        Parameters
        ----------
        method
            ``GET`` and so on.
        url
            A path of the API, or what the registry itself has named.
        content
            Bytes, or a function that begins an iterator of them anew for each try.
        headers
            Besides the login.
        stream
            Leave the answer's body to be read.
        redirects
            Follow the registry to where it keeps content; without the login, if that is another host.

        Returns
        -------
        httpx.Response
            Whatever the status; see `refuse`.

        Raises
        ------
        LostError
            The registry cannot be reached, or hung up.
        RegistryError
            It asks for a login that there is not.
        """
        url = urllib.parse.urljoin(self.address.base + "/", url)
        logged_in = False
        for attempt in range(_TRIES):
            response = self._send(method, url, content, headers or {}, stream=stream)
            for _ in range(_REDIRECTS if redirects else 0):
                if not response.has_redirect_location:
                    break
                response.close()
                url = urllib.parse.urljoin(url, response.headers["location"])
                response = self._send(method, url, content, headers or {}, stream=stream)
            if response.status_code == _UNAUTHORIZED and not logged_in:
                self._log_in(response)
                logged_in = True
            elif (response.status_code != _LIMITED and response.status_code < _BUSY) or attempt == _TRIES - 1:
                return response
            else:
                time.sleep(_wait(response, attempt))
            response.close()
        raise RegistryError(f"{self.address.host} goes on asking for a login; is it the right one?")

    def _send(
        self, method: str, url: str, content: Any, headers: Mapping[str, str], *, stream: bool
    ) -> httpx.Response:
        scheme, host = urllib.parse.urlsplit(url)[:2]
        if self.address.encrypted and scheme != "https":
            raise RegistryError(
                f"{self.address.host} leads to {visible(url)}, which is not encrypted; refused"
            )
        own = host == self.address.host
        login = {"Authorization": self._authorization} if own and self._authorization else {}
        body = content() if callable(content) else content
        try:
            sent = self._client.build_request(method, url, content=body, headers={**headers, **login})
            return self._client.send(sent, stream=stream)
        except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
            raise LostError(f"cannot reach the registry {host}: {_why(error)}") from None
        except self._httpx.HTTPError as error:
            raise LostError(f"the registry {host} hung up: {_why(error)}") from None
        except (self._httpx.InvalidURL, ValueError) as error:
            raise RegistryError(f"{host} leads to an address that is none: {_why(error)}") from None

    def _log_in(self, response: httpx.Response) -> None:
        """Answer a challenge: with name and password, or with a token for just what was asked."""
        challenge = response.headers.get("www-authenticate", "")
        kind, _, rest = challenge.partition(" ")
        if not self._looked:
            self._login, self._looked = credentials.find(self.address.host), True
        if kind.lower() == "basic":
            if self._login is None or self._login.identity_token:
                raise RegistryError(self._no_login())
            self._authorization = self._login.basic
        elif kind.lower() == "bearer":
            self._authorization = f"Bearer {self._token(dict(_PART.findall(rest)))}"
        else:
            raise RegistryError(f"{self.address.host} asks for a login of the unknown kind {visible(kind)!r}")

    def _no_login(self) -> str:
        return (
            f"{self.address.host} asks for a login: run docker login {self.address.host} (or podman, skopeo, oras), "
            "or let DOCKER_CONFIG or REGISTRY_AUTH_FILE name where it is"
        )

    def _token(self, parts: Mapping[str, str]) -> str:
        realm = parts.get("realm", "")
        if urllib.parse.urlsplit(realm).scheme not in (
            ("https",) if self.address.encrypted else ("http", "https")
        ):
            raise RegistryError(
                f"{self.address.host} sends logins to {visible(realm)}, which is not encrypted; refused"
            )
        asked = {key: parts[key] for key in ("service", "scope") if key in parts}
        login = self._login
        try:
            if login is not None and login.identity_token:
                form = {
                    "grant_type": "refresh_token",
                    "refresh_token": login.identity_token,
                    "client_id": "fairkit",
                }
                answer = self._client.post(realm, data=form | asked)
            else:
                headers = {"Authorization": login.basic} if login else {}
                params = asked | {"scope": asked["scope"].split(" ")} if "scope" in asked else asked
                answer = self._client.get(realm, params=params, headers=headers)
        except self._httpx.HTTPError as error:
            raise LostError(f"cannot reach the token server {visible(realm)}: {_why(error)}") from None
        if answer.status_code != _OK:
            raise RegistryError(
                self._no_login()
                if login is None
                else f"the login for {self.address.host} was refused by {visible(realm)} ({answer.status_code})"
            )
        try:
            found = answer.json()
            return str(found.get("token") or found["access_token"])
        except (ValueError, KeyError, AttributeError):
            raise RegistryError(f"the token server {visible(realm)} answered with no token") from None

    def refuse(self, response: httpx.Response, doing: str) -> RegistryError:
        """Return the error for an answer that is not the one that was hoped for."""
        try:
            response.read()
            errors = response.json()["errors"]
            told = "; ".join(f"{one.get('code', '')}: {one.get('message', '')}".strip(": ") for one in errors)
        except (self._httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
            told = ""
        finally:
            response.close()
        words = {
            _UNAUTHORIZED: "the login was refused",
            _FORBIDDEN: "the login does not allow it",
            _MISSING: "there is no such thing",
        }
        said = words.get(response.status_code, f"status {response.status_code}")
        return RegistryError(f"cannot {doing}: {said}" + (f" ({visible(told)[:300]})" if told else ""))


def _why(error: Exception) -> str:
    return visible(" ".join(str(error).split())) or type(error).__name__


def _wait(response: httpx.Response, attempt: int) -> float:
    told = response.headers.get("retry-after", "")
    return min(float(told) if told.isdigit() else 0.5 * 2**attempt, _LONGEST_WAIT)
