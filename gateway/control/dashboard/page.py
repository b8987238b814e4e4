"""The dashboard's page and what it is made of: files, read once and served with headers that keep the page ours.

No script or style but these files, nothing from elsewhere, no frame around it. They hold no secret, so they need no
login: what they show comes from the API, which asks for one.
"""

from hashlib import sha256
from pathlib import Path

from aiohttp import web

_STATIC = Path(__file__).with_name("static")
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
_PAGE = "page.html"


class Page:
    """All files of the dashboard."""

    def __init__(self) -> None:
        self._files = {file.name: file.read_bytes() for file in _STATIC.iterdir() if file.suffix in _TYPES}

    def routes(self) -> list[web.RouteDef]:
        """Where the files are."""
        return [web.get("/dashboard", self.page), web.get("/dashboard/{file}", self._file)]

    async def page(self, request: web.Request) -> web.Response:
        """The page itself."""
        return self._reply(request, _PAGE)

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in self._files:
            raise web.HTTPNotFound
        return self._reply(request, name)

    def _reply(self, request: web.Request, name: str) -> web.Response:
        body = self._files[name]
        tag = f'"{sha256(body).hexdigest()[:16]}"'
        headers = _HEADERS | {"etag": tag, "vary": "accept"}
        if request.headers.get("if-none-match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, content_type=_TYPES[Path(name).suffix], charset="utf-8", headers=headers)


def wants_page(request: web.Request) -> bool:
    """Whether a browser asks, and not a program: programs don't ask for HTML by name."""
    return "text/html" in request.headers.get("accept", "")
