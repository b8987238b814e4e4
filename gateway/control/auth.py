"""Who may do what at the admin port: a middleware before everything it answers.

Three guards. A login where one is wanted: always, unless the port is bound to loopback and nobody is named. The name
that a browser asked for, where there is no login: a page from elsewhere may have its own name lead to our address (DNS
rebinding), and would be let in like somebody on this machine. And the origin of whoever would change something: a page
of somebody else's may send requests, too.
"""

import binascii
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gateway.control.adminconfig import AdminConfig, CredentialConfig
from gateway.control.api.reply import ApiError, error_response
from gateway.tenants.keys import digest

log = structlog.get_logger("steplane.admin")

_ALWAYS_OPEN = frozenset(("/healthz", "/readyz", "/"))
_PAGE = "/dashboard/"
_READS = frozenset(("GET", "HEAD", "OPTIONS"))
_READ_BY_POST = frozenset(("/api/v1/explain",))
_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
_FETCHED_BY_PAGE = "empty"
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks. `name`: as the configuration calls him, "" where nobody need say who he is."""

    name: str
    may_operate: bool


ANYBODY = Visitor("", may_operate=True)
VISITOR = web.RequestKey("visitor", Visitor)
"""Of a request that was let in by a login."""


def guard(admin: Callable[[], AdminConfig]) -> Middleware:
    """The middleware. `admin`: what is in force, asked at each request."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            visitor = _check(request, admin())
        except ApiError as error:
            response = error_response(error)
            if error.status == 401:
                response.headers.extend([("www-authenticate", scheme) for scheme in _schemes(request, admin())])
            return response
        request[VISITOR] = visitor
        return await handler(request)

    return guarded


def _check(request: web.Request, admin: AdminConfig) -> Visitor:
    """Who asks. Raises ApiError for who may not do what he asks for."""
    path, auth = request.path, admin.auth
    if not auth.is_given and admin.listen.is_loopback:
        # Health says nothing that a page could use, and what checks it (HAProxy) may name no host at all.
        if path not in _ALWAYS_OPEN:
            _check_host(request, admin)
        _check_origin(request)
        return ANYBODY
    _check_origin(request)
    if path in _ALWAYS_OPEN or path.startswith(_PAGE) or (path == "/metrics" and auth.metrics == "open"):
        return ANYBODY
    if not auth.is_given:
        message = (
            f"others than this machine can reach {admin.listen}, so it wants to know who asks: put "
            "`auth: {tokens: [{name, digest, role}]}` below `admin` (`steplane key new` makes one)"
        )
        raise ApiError(403, "no_login", message)
    visitor = _visitor(request.headers.get("authorization", ""), admin)
    if visitor is None:
        raise ApiError(401, "not_logged_in", "show a token of `admin.auth`: authorization: Bearer …")
    if not visitor.may_operate and not is_reading(request):
        raise ApiError(403, "read_only", f"{visitor.name!r} may only read; `role: operate` may change things")
    return visitor


def is_reading(request: web.Request) -> bool:
    """Whether a request changes nothing."""
    return request.method in _READS or request.path in _READ_BY_POST


def _check_host(request: web.Request, admin: AdminConfig) -> None:
    try:
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        name = ""
    if name in _LOCAL_NAMES or name == admin.listen.host or name in admin.hosts:
        return
    message = (
        f"asked for as {name[:80]!r}, which is no name of this machine's loopback; "
        "add the name to `admin.hosts` if it is meant to lead here"
    )
    raise ApiError(403, "foreign_host", message)


def _check_origin(request: web.Request) -> None:
    origin = request.headers.get("origin")
    if origin is None or is_reading(request):
        return
    # By host alone: in front of us may be what ends TLS.
    if urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise ApiError(403, "foreign_origin", "pages from elsewhere may not do this")


def _visitor(header: str, admin: AdminConfig) -> Visitor | None:
    scheme, _, shown = header.partition(" ")
    shown = shown.strip()
    if len(shown) > _LONGEST:
        return None
    match scheme.lower():
        case "bearer":
            return _found(admin.auth.tokens, shown, None)
        case "basic":
            try:
                user, colon, password = b64decode(shown, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                return None
            return _found(admin.auth.basic, password, user) if colon else None
    return None


def _found(credentials: list[CredentialConfig], shown: str, user: str | None) -> Visitor | None:
    # What is compared are digests of long random texts: how long that takes tells nothing about them.
    wanted = digest(shown.encode())
    for each in credentials:
        if each.digest == wanted and user in (None, each.name):
            return Visitor(each.name, each.role == "operate")
    return None


def _schemes(request: web.Request, admin: AdminConfig) -> list[str]:
    """What may be shown. Not `Basic` to our own page, which has a form of its own instead of the browser's."""
    schemes = ['Bearer realm="steplane"'] if admin.auth.tokens else []
    if admin.auth.basic and request.headers.get("sec-fetch-dest") != _FETCHED_BY_PAGE:
        schemes.append('Basic realm="steplane", charset="UTF-8"')
    return schemes
