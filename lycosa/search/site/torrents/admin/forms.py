"""Reads the forms of visitors and administrators. Their size is limited, and their content is untrusted."""

from __future__ import annotations

import asyncio
import re
import secrets
from base64 import b32decode
from contextlib import suppress
from urllib.parse import parse_qs, unquote

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from lycosa.search.site.torrents.admin.site_store import AdminSession
from lycosa.search.site.torrents.params import infohash_of

BODY_MAX_BYTES = 64 * 1024
FIELDS_MAX = 20
FORM_MAX_S = 30.0
"""Maximum seconds to send a form: slow clients must not block others."""
_INFOHASH = re.compile(
    r"(?<![0-9a-zA-Z])(?:(?:1220)?([0-9a-fA-F]{64})|([0-9a-fA-F]{40})|(?<=btih:)([a-zA-Z2-7]{32}))(?![0-9a-zA-Z])"
)
"""An infohash in hexadecimal digits (after 1220 in magnet links of version 2) or, in magnet links only, in base 32."""


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form. They stay in `request.state`, since the body can be read only once."""
    if not hasattr(request.state, "form"):
        body, fields = b"", dict[str, list[str]]()
        try:
            async with asyncio.timeout(FORM_MAX_S):
                async for part in request.stream():
                    body += part
                    if len(body) > BODY_MAX_BYTES:
                        raise HTTPException(413)
        except TimeoutError:
            raise HTTPException(408) from None
        except ClientDisconnect:
            body = b""
        with suppress(ValueError):  # too many fields
            fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        request.state.form = {name: values[0] for name, values in fields.items()}
    form: dict[str, str] = request.state.form
    return form


async def has_token(request: Request, session: AdminSession) -> bool:
    """Return whether the form has the token of the session."""
    sent = (await form_of(request)).get("token", "")
    return secrets.compare_digest(sent.encode(errors="replace"), session.form_token.encode())


def infohashes_in(text: str) -> list[str]:
    """Return the infohashes in `text`, which may contain magnet links and URLs of pages."""
    parts = _INFOHASH.findall(unquote(text))
    found = (b32decode(base32.upper()).hex() if base32 else (v2 or v1).lower() for v2, v1, base32 in parts)
    return [each for each in dict.fromkeys(found) if infohash_of(each)]
