"""Detect the character encoding of a page as browsers do (WHATWG Encoding and HTML standards).

Byte order mark > charset of the HTTP header > XML declaration or meta element in the first 1024 bytes > UTF-8 if the
bytes are valid UTF-8 > windows-1252. Labels are WHATWG's and no others: `latin1` means windows-1252, `gb2312` means
gbk, and a page cannot select one of Python's own codecs (`rot13`, `utf-7`). The result is always a codec that Python
knows. The `replacement` encodings (hz, ISO-2022-CN and -KR), which browsers refuse to decode, become `ascii`.

Never raises.
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache

PRESCAN_MAX = 1024
"""Bytes in which a page may declare its encoding."""

SAMPLE_MAX = 65_536
"""Bytes that are decoded to check whether a page is UTF-8."""

CONTENT_TYPE_MAX = 1_000
"""Characters of a Content-Type header that are searched."""

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le"))

_BOMS_BEGIN = {mark[:1] for mark, _ in _BOMS}

# Python's codec: WHATWG's labels for it.
_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "iso8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e "
    "iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7 "
    "iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8 "
    "iso_8859-8:1988 visual csiso88598i iso-8859-8-i logical",
    "iso8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac-roman": "csmacintosh mac macintosh x-mac-roman",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "windows-1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
    "iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252 x-user-defined",
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 "
    "windows-1254 x-cp1254",
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk gb18030",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 "
    "windows-949",
    "ascii": "csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr replacement",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}

_HTTP_CHARSET = re.compile(r";\s*charset\s*=\s*(?:\"([^\"]*)\"?|([^\s;\"]+))", re.IGNORECASE)
_META_CHARSET = re.compile(
    rb"charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:\"([^\"]*)\"|'([^']*)'|([^\t\n\f\r ;\"'][^\t\n\f\r ;]*))"
)
_XML_ENCODING = re.compile(
    rb"<\?xml[^>]*?encoding[\x00-\x20]*=[\x00-\x20]*(?:\"([^\"\x00-\x20>]+)\"|'([^'\x00-\x20>]+)')"
)
_META = re.compile(rb"<meta[\t\n\f\r /]", re.IGNORECASE)
_TAG = re.compile(rb"</?[a-zA-Z][^\t\n\f\r >]*")
_NAME = rb"[\w:.-]+"
_ATTRIBUTES = rb"(?:\s+%s(?:=(?:\"[^\"]*\"|'[^']*'|[^\s\"'>=<`]+))?)*+\s*+"
_USUAL = re.compile(
    rb"""
    [^<]*+
    (?: < (?: !doctype\s[^>]*+ | \?xml\s[^>]*+ | /?(?:html|head|title|link|base) %(any)s /? | meta(?=\s) %(others)s /? )
        > [^<]*+
    )*+
    <meta \s+
    (?: charset= (?: \"([\w:.-]+)\" | '([\w:.-]+)' | ([\w:.-]+)(?=[\s>]) )
    |   http-equiv= (?: \"content-type\" | content-type ) \s+ content=\" [\w/+.-]+ ; \x20? charset=([\w:.-]+) \"
    )
    \s* /?>
    """
    % {b"any": _ATTRIBUTES % _NAME, b"others": _ATTRIBUTES % (rb"(?!charset|http-equiv)" + _NAME)},
    re.IGNORECASE | re.VERBOSE,
)
"""Matches the beginning of most pages: the same result as `_prescan`, ten times as fast."""

_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*([^\t\n\f\r />][^\t\n\f\r />=]*)"
    rb"(?:[\t\n\f\r ]*=[\t\n\f\r ]*(?:\"([^\"]*)\"|'([^']*)'|(?=[\"'])()|([^\t\n\f\r >\"'][^\t\n\f\r >]*)|))?"
)


def detect_encoding(body: bytes, content_type: str) -> str:
    """Return the name of the Python codec for this page. `content_type` is the HTTP header, "" without one."""
    if body[:1] in _BOMS_BEGIN:
        for mark, codec in _BOMS:
            if body.startswith(mark):
                return codec
    return _from_header(content_type) or _from_page(body[:PRESCAN_MAX]) or _from_bytes(body)


def codec_of(label: str) -> str:
    """Return the Python codec of a WHATWG label, "" for an unknown label."""
    return _CODECS.get(label.strip("\t\n\f\r ").lower(), "")


@lru_cache(256)
def _from_header(content_type: str) -> str:
    charset = _HTTP_CHARSET.search(content_type[:CONTENT_TYPE_MAX])
    return codec_of(charset[1] or charset[2] or "") if charset else ""


def _from_page(head: bytes) -> str:
    """Return the codec that a page declares. A declared UTF-16 is UTF-8, since the declaration was readable as
    ASCII."""
    usual = None if b"\v" in head else _USUAL.match(head)  # \v is white space for `re`, but not for HTML
    codec = codec_of((usual[1] or usual[2] or usual[3] or usual[4]).decode("latin-1")) if usual else ""
    if not codec:
        lower = head.lower()
        if b"charset" not in lower and b"encoding" not in lower:
            return ""
        codec = _prescan(head)
    if not codec and (declared := _XML_ENCODING.match(head)):
        codec = codec_of((declared[1] or declared[2]).decode("latin-1"))
    return "utf-8" if codec.startswith("utf-16") else codec


def _prescan(head: bytes) -> str:
    """Implement WHATWG's "prescan a byte stream to determine its encoding", one `<` at a time."""
    at = head.find(b"<")
    while at >= 0:
        if head.startswith(b"<!--", at):
            end = head.find(b"-->", at + 2)
            if end < 0:
                return ""
            at = end
        elif tag := _META.match(head, at) or _TAG.match(head, at):
            attributes, at = _attributes(head, tag.end() - (tag.re is _META))
            if tag.re is _META and (codec := _from_meta(attributes)):
                return codec
        elif head[at + 1 : at + 2] in (b"!", b"/", b"?"):
            at = head.find(b">", at)
            if at < 0:
                return ""
        at = head.find(b"<", at + 1)
    return ""


def _attributes(head: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    """Return the attributes of a tag (of repeated ones the first) and their end; no attributes if the tag has no
    end."""
    attributes: dict[bytes, bytes] = {}
    while found := _ATTRIBUTE.match(head, at):
        if found[4] is not None:  # an unclosed quote
            return {}, len(head)
        attributes.setdefault(found[1].lower(), found[2] or found[3] or found[5] or b"")
        at = found.end()
    return (attributes, at) if b">" in head[at:] else ({}, len(head))


def _from_meta(attributes: dict[bytes, bytes]) -> str:
    if b"charset" in attributes:
        return codec_of(attributes[b"charset"].decode("latin-1"))
    if attributes.get(b"http-equiv", b"").lower() == b"content-type":
        charset = _META_CHARSET.search(attributes.get(b"content", b"").lower())
        if charset:
            return codec_of((charset[1] or charset[2] or charset[3] or b"").decode("latin-1"))
    return ""


def _from_bytes(body: bytes) -> str:
    try:
        codecs.utf_8_decode(body[:SAMPLE_MAX], "strict", len(body) <= SAMPLE_MAX)
    except UnicodeDecodeError:
        return "windows-1252"
    return "utf-8"
