"""The files of the pages, under a policy that lets nothing in from elsewhere. They hold no data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from importlib.resources.abc import Traversable

from aiohttp import web

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy of every page."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "LICENSE": "text/plain",
}


def static_files() -> dict[str, tuple[bytes, str]]:
    """Content and type of every file, by its path."""
    found: dict[str, tuple[bytes, str]] = {}
    _gather(files("router.dashboard").joinpath("static"), "/", found)
    return found


def add_pages(app: web.Application) -> None:
    """Serves every file, and `index.html` as `/`; they are read once, now."""
    for path, (body, content_type) in static_files().items():
        app.router.add_get("/" if path == "/index.html" else path, _serve(body, content_type))


def _gather(folder: Traversable, path: str, into: dict[str, tuple[bytes, str]]) -> None:
    for item in sorted(folder.iterdir(), key=lambda of: of.name):
        if item.is_dir():
            _gather(item, f"{path}{item.name}/", into)
        else:
            kind = _TYPES.get(item.name.rsplit(".", 1)[-1])
            if kind is not None:
                into[path + item.name] = item.read_bytes(), kind


def _serve(
    body: bytes, content_type: str
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def serve_file(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=HEADERS)

    return serve_file
