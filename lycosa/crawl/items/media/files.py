"""FilesPipeline: downloads the files in `file_urls` of items, and writes the results into `files`.

ITEM_PIPELINES = {"lycosa.FilesPipeline": 1}
FILES_STORE = "files"
"""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from lycosa.core.public import public
from lycosa.core.url import canonicalize
from lycosa.crawl.items.media.pipeline import MediaInfo, MediaPipeline
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request

EXTENSIONS = mimetypes.MimeTypes().types_map[True]
"""Extensions that file names may have: Python's built-in table, without those of the operating system."""


@public
class FilesPipeline(MediaPipeline):
    """Stores files unchanged as `full/<SHA-1 of the URL><extension of the URL>`. An unknown extension is left out."""

    STORE = "FILES"
    URLS_FIELD = "file_urls"
    RESULT_FIELD = "files"

    def file_path(
        self, request: Request, response: Response | None = None, info: MediaInfo | None = None, *, item: Any = None
    ) -> str:
        return f"full/{url_digest(request.url)}{_extension(request.url)}"


def url_digest(url: str) -> str:
    """Return the SHA-1 of the canonical URL. Raises `BadUrl`."""
    return hashlib.sha1(canonicalize(url).encode(), usedforsecurity=False).hexdigest()


def _extension(url: str) -> str:
    for end in (url, urlsplit(url).path):
        extension = PurePosixPath(end).suffix.lower()
        if extension in EXTENSIONS:
            return extension
    return ""
