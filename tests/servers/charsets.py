"""Pages with a wrong or missing charset label, and the text that a browser shows for each.

By the WHATWG encoding and HTML standards: a byte order mark wins over the header, the header over the page, labels mean
what WHATWG says they mean, and a label that nobody knows counts as none.
"""

from __future__ import annotations

import codecs
from typing import NamedTuple

PLAIN = "text/html"


class Case(NamedTuple):
    """One page: its Content-Type, its bytes, and the text of its paragraph as a browser shows it."""

    content_type: str
    body: bytes
    shown: str


def _page(text: str, codec: str, meta: str = "") -> bytes:
    return f"<!doctype html><html><head>{meta}<title>t</title></head><body><p>{text}</p></body></html>".encode(codec)


def _meta(label: str) -> str:
    return f'<meta charset="{label}">'


CURLY = "“smart” – 5 €"
JAPANESE = "日本語の文章"
RUSSIAN = "Привет, мир"
CHINESE = "镕基与鎔"
"""The first sign is in GBK and not in GB 2312."""

CHARSETS: dict[str, Case] = {
    "latin1-is-windows-1252": Case("text/html; charset=ISO-8859-1", _page(CURLY, "cp1252"), CURLY),
    "ascii-is-windows-1252": Case("text/html; charset=us-ascii", _page(CURLY, "cp1252"), CURLY),
    "gb2312-is-gbk": Case("text/html; charset=gb2312", _page(CHINESE, "gbk"), CHINESE),
    "shift-jis-of-windows": Case("text/html; charset=shift_jis", _page("①髙﨑", "cp932"), "①髙﨑"),
    "mark-beats-header": Case("text/html; charset=iso-8859-1", codecs.BOM_UTF8 + _page(JAPANESE, "utf-8"), JAPANESE),
    "utf-16-by-mark-alone": Case(PLAIN, codecs.BOM_UTF16_LE + _page(JAPANESE, "utf-16-le"), JAPANESE),
    "header-beats-meta": Case("text/html; charset=windows-1251", _page(RUSSIAN, "cp1251", _meta("utf-8")), RUSSIAN),
    "meta-alone": Case(PLAIN, _page(JAPANESE, "euc_jp", _meta("EUC-JP")), JAPANESE),
    "meta-http-equiv": Case(
        PLAIN,
        _page(RUSSIAN, "koi8-r", '<meta http-equiv="Content-Type" content="text/html; charset=KOI8-R">'),
        RUSSIAN,
    ),
    "meta-says-utf-16-in-ascii": Case(PLAIN, _page(JAPANESE, "utf-8", _meta("utf-16")), JAPANESE),
    "unknown-header-known-meta": Case(
        'text/html; charset="x-klingon"', _page(RUSSIAN, "cp1251", _meta("windows-1251")), RUSSIAN
    ),
    "utf-7-is-unknown": Case("text/html; charset=utf-7", _page("+AMQ-", "utf-8"), "+AMQ-"),
    "python-codec-is-unknown": Case(
        "text/html; charset=rot13", _page("Guvf vf abg frperg", "utf-8"), "Guvf vf abg frperg"
    ),
    "nothing-said-utf-8": Case(PLAIN, _page(JAPANESE, "utf-8"), JAPANESE),
    "nothing-said-windows-1252": Case(PLAIN, _page(CURLY, "cp1252"), CURLY),
    "says-utf-8-is-windows-1252": Case(
        "text/html; charset=utf-8", _page("caf\xe9 ol\xe9", "cp1252"), "caf\ufffd ol\ufffd"
    ),
    "quoted-label-with-blanks": Case('text/html; charset=" UTF-8 "', _page(JAPANESE, "utf-8"), JAPANESE),
}
