"""Requests to an OCI registry: logins, tokens, redirects, retries, and errors as sentences."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import fairkit_http
from fairkit.errors import MissingExtraError
from fairkit.sources.reach import keeps_secrets
from fairkit.support.escaping import visible
from fairkit_registry.errors import RegistryError
from fairkit_registry.oci import credentials

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx

    from fairkit_registry.oci.address import Address

_CONNECT, _READ = 5.0, 60.0
SECONDS = 120.0
"""The longest that an answer may take, besides the time for a model's bytes."""
SLOWEST = 64 << 10
"""Bytes a second: a model that comes or goes more slowly is given up."""
LARGEST_ANSWER = 4 << 20
"""Bytes of the longest list or manifest."""
_LARGEST_TOKEN, _LARGEST_ERROR = 1 << 20, 64 << 10
_TRIES = 4
_LONGEST_WAIT = 10.0
_REDIRECTS = 5
_OK, _BUSY, _UNAUTHORIZED, _FORBIDDEN, _MISSING, _LIMITED = 200, 500, 401, 403, 404, 429
_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding")
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
        self._challenge: str | None = None
        self._token_server: str | None = None
        self._cutter = fairkit_http.Cutter()
        self._client = httpx.Client(
            timeout=httpx.Timeout(_READ, connect=_CONNECT),
            follow_redirects=False,
            verify=fairkit_http.system_tls(),
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
        size: int = 0,
        stream: bool = False,
        redirects: bool = False,
    ) -> httpx.Response:
        """Send a request, log in where the registry asks for it, and wait where it is busy."""
        direct = url.startswith("/")  # a path of ours, and no address that an answer has named
        url = urllib.parse.urljoin(self.address.base + "/", url)
        limit = SECONDS + size / SLOWEST
        logged_in = False
        for attempt in range(_TRIES):
            response = self._send(method, url, content, headers or {}, limit, stream=stream)
            for _ in range(_REDIRECTS if redirects else 0):
                if not response.has_redirect_location:
                    break
                response.close()
                url, direct = urllib.parse.urljoin(url, response.headers["location"]), False
                response = self._send(method, url, content, headers or {}, limit, stream=stream)
            if response.status_code == _UNAUTHORIZED and not logged_in:
                self._log_in(response, url, direct=direct)
                logged_in = True
            elif (response.status_code != _LIMITED and response.status_code < _BUSY) or attempt == _TRIES - 1:
                return response
            else:
                time.sleep(self._wait(response, attempt))
            response.close()
        raise RegistryError(f"{self.address.host} goes on asking for a login; is it the right one?")

    def _is_own(self, url: str) -> bool:
        """Tell whether an address is the registry's own."""
        return urllib.parse.urlsplit(url)[:2] == urllib.parse.urlsplit(self.address.base)[:2]

    def _send(
        self, method: str, url: str, content: Any, headers: Mapping[str, str], limit: float, *, stream: bool
    ) -> httpx.Response:
        scheme, host = urllib.parse.urlsplit(url)[:2]
        if self.address.encrypted and scheme != "https":
            raise RegistryError(f"{self.address.host} leads to {visible(url)}, which is not encrypted; refused")
        login = {"Authorization": self._authorization} if self._authorization and self._is_own(url) else {}
        body = content() if callable(content) else content
        deadline = time.monotonic() + limit
        with self._named(host), self._cutter.within(limit):
            request = self._client.build_request(
                method, url, content=body, headers={**headers, **login}, extensions={"trace": self._cutter.trace}
            )
            response = self._client.send(request, stream=True)
            return response if stream else self._whole(response, LARGEST_ANSWER, deadline)

    def _whole(self, response: httpx.Response, most: int, deadline: float) -> httpx.Response:
        """Return an answer with its body, which is read as it comes: nothing is unpacked."""
        try:
            body = fairkit_http.collect(response.iter_raw(), most, deadline)
        finally:
            response.close()
        kept = [(key, value) for key, value in response.headers.multi_items() if key not in _OF_THE_BODY]
        return self._httpx.Response(response.status_code, headers=kept, content=body, request=response.request)

    @contextmanager
    def _named(self, host: str) -> Iterator[None]:
        """Turn the library's errors into ours."""
        try:
            yield
        except fairkit_http.LateError:
            raise RegistryError(f"{visible(host)} takes too long to answer; given up") from None
        except fairkit_http.OversizedError:
            raise RegistryError(f"{visible(host)} answers with more than is read; given up") from None
        except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
            raise LostError(f"cannot reach the registry {visible(host)}: {_why(error)}") from None
        except self._httpx.HTTPError as error:
            raise LostError(f"the registry {visible(host)} hung up: {_why(error)}") from None
        except (self._httpx.InvalidURL, ValueError) as error:
            raise RegistryError(f"{visible(host)} leads to an address that is none: {_why(error)}") from None

    def _log_in(self, response: httpx.Response, url: str, *, direct: bool) -> None:
        """Answer a challenge of the registry's own: with name and password, or with a token for just what was asked.

        A challenge that comes after a redirect, or from an address that an answer has named, is never answered: where
        such an address is the registry's own, its last own challenge is answered anew, as a token may have run out.
        """
        if direct and self._is_own(url):
            self._challenge = response.headers.get("www-authenticate", "")
        elif self._challenge is None or not self._is_own(url):
            raise RegistryError(
                f"{self.address.host} leads to {visible(url)[:200]}, which asks for a login; logins are answered to "
                f"{self.address.host} itself only"
            )
        kind, _, rest = self._challenge.partition(" ")
        if not self._looked:
            self._login, self._looked = credentials.find(self.address.host), True
        if self._login is not None and not keeps_secrets(self.address.base):
            raise RegistryError(
                f"the login for {self.address.host} is not sent without encryption: write oci:// in place of oci+http://"
            )
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
        scheme, server = urllib.parse.urlsplit(realm)[:2]
        plain = not self.address.encrypted and (self._login is None or keeps_secrets(realm))
        if scheme not in (("http", "https") if plain else ("https",)):
            raise RegistryError(
                f"{self.address.host} sends logins to {visible(realm)}, which is not encrypted; refused"
            )
        if self._token_server not in (None, server):
            raise RegistryError(
                f"{self.address.host} names {visible(server)} as its token server after "
                f"{visible(str(self._token_server))}; refused"
            )
        self._token_server = server
        scope = {key: parts[key] for key in ("service", "scope") if key in parts}
        login = self._login
        if login is not None and login.identity_token:
            form = {"grant_type": "refresh_token", "refresh_token": login.identity_token, "client_id": "fairkit"}
            sent: dict[str, Any] = {"method": "POST", "data": form | scope}
        else:
            params: dict[str, Any] = scope | {"scope": scope["scope"].split(" ")} if "scope" in scope else scope
            headers = {"Authorization": login.basic} if login else {}
            sent = {"method": "GET", "params": params, "headers": headers}
        deadline = time.monotonic() + SECONDS
        try:
            with self._named(server), self._cutter.within(SECONDS):
                request = self._client.build_request(url=realm, extensions={"trace": self._cutter.trace}, **sent)
                answer = self._whole(self._client.send(request, stream=True), _LARGEST_TOKEN, deadline)
        except LostError as error:
            raise LostError(f"no token from {visible(realm)}: {error}") from None
        if answer.status_code != _OK:
            raise RegistryError(
                self._no_login()
                if login is None
                else f"the login for {self.address.host} was refused by {visible(realm)} ({answer.status_code})"
            )
        try:
            record = answer.json()
            return str(record.get("token") or record["access_token"])
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise RegistryError(f"the token server {visible(realm)} answered with no token") from None

    def _wait(self, response: httpx.Response, attempt: int) -> float:
        """Return the seconds to wait before the next try."""
        pause = fairkit_http.pause_of(response.headers)
        if pause is not None and pause > _LONGEST_WAIT:
            response.close()
            raise RegistryError(
                f"{self.address.host} is busy, and asks to be left alone for {pause:,.0f} s; try again then"
            )
        return 0.5 * 2**attempt if pause is None else pause

    def refuse(self, response: httpx.Response, doing: str) -> RegistryError:
        """Return the error for an answer that is not the one that was hoped for."""
        try:
            errors = self._error_record(response)["errors"]
            details = "; ".join(f"{one.get('code', '')}: {one.get('message', '')}".strip(": ") for one in errors)
        except (RegistryError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            details = ""
        finally:
            response.close()
        words = {
            _UNAUTHORIZED: "the login was refused",
            _FORBIDDEN: "the login does not allow it",
            _MISSING: "there is no such thing",
        }
        said = words.get(response.status_code, f"status {response.status_code}")
        return RegistryError(f"cannot {doing}: {said}" + (f" ({visible(details)[:300]})" if details else ""))

    def _error_record(self, response: httpx.Response) -> Any:
        """Return the JSON of an answer that is an error."""
        if not response.is_stream_consumed:
            with self._named(self.address.host), self._cutter.within(_READ):
                response = self._whole(response, _LARGEST_ERROR, time.monotonic() + _READ)
        return json.loads(response.content[:_LARGEST_ERROR])


def pieces(response: httpx.Response, size: int) -> Iterator[bytes]:
    """Yield the body of an answer that was left to be read, in time for `size` bytes."""
    import httpx

    deadline = time.monotonic() + SECONDS + size / SLOWEST
    try:
        for piece in response.iter_raw():  # as it comes: what has arrived is not lost with the connection
            yield piece
            if time.monotonic() > deadline:
                raise RegistryError(f"{visible(str(response.request.url.host))} sends too slowly; given up")
    except httpx.HTTPError as error:
        raise LostError(f"the registry hung up: {error}") from None
    finally:
        response.close()


def _why(error: Exception) -> str:
    return visible(" ".join(str(error).split())) or type(error).__name__
