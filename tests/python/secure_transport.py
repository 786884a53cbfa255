"""MiniStack as it is behind a server that ends TLS."""

from ministack.app import app as plain


async def app(scope, receive, send):
    if scope["type"] == "http":
        scope = {**scope, "headers": [*scope["headers"], (b"x-forwarded-proto", b"https")]}
    await plain(scope, receive, send)
