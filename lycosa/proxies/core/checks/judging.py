"""What a judge and those who ask it say to each other, so that no proxy in between can make anything up.

    GET /look/NONCE/TAG   {"signature": ..., "seen": "{nonce, address, tls, fields}"}   what it has seen of this request
    GET /page/NONCE/TAG   a page of HTML that both can make from the nonce              whether it arrives as it left

Both know a key. TAG shows that who asks does, so the judge works for nobody else; the signature (HMAC, RFC 2104) shows
that the judge has written what was seen, for this nonce and no earlier one. A nonce is drawn anew for each request.

Its address is one text that holds all of this: judge://KEY@HOST:PORT/?tls=PORT&pin=PIN. The pin is the SHA-256 of the
public key of its certificate, in base64url: it has to be the judge's own, whoever has signed it.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import shake_256
from urllib.parse import parse_qs, urlsplit

import msgspec

from lycosa.core.errors import BadProxy
from lycosa.proxies.core.checks.anonymity import Seen

LOOK, PAGE = "look", "page"
NONCE = re.compile(r"[0-9a-f]{32}")
KEY = re.compile(r"[A-Za-z0-9_-]{16,128}")
TAG_DIGITS = 32
PIN_BYTES = 32

PAGE_TYPE = "text/html; charset=utf-8"
PAGE_FIELDS = {"content-type": PAGE_TYPE, "cache-control": "no-store, no-transform"}
"""What the judge says of its page, by lower-case name. (no-transform: RFC 9111 §5.2.2.6)"""

ANSWER_MAX = 64_000
"""Bytes of an answer of a judge."""

FIELDS_MAX = 100
VALUE_MAX = 2_000
"""Fields that a judge tells of, and characters of each."""

WRITE = "write judge://KEY@HOST:PORT/?tls=PORT&pin=PIN, as `lycosa proxies judge` prints it"


@dataclass(frozen=True, slots=True)
class JudgeAddress:
    """Where a judge is. Without a port for TLS it cannot tell who changes certificates."""

    host: str
    port: int
    key: str = field(repr=False)
    tls_port: int = 0
    pin: str = ""

    @property
    def name(self) -> str:
        """What everybody may see of it."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """All of it, with the key: a secret."""
        tls = f"?tls={self.tls_port}&pin={self.pin}" if self.tls_port else ""
        return f"judge://{self.key}@{self.name}/{tls}"

    @property
    def curl_pin(self) -> str:
        """The pin as libcurl wants it."""
        return f"sha256//{b64encode(_pinned(self.pin)).decode()}" if self.pin else ""

    def ask(self, kind: str, nonce: str, *, tls: bool = False) -> str:
        """Return the URL to ask."""
        place = f"https://{self.host}:{self.tls_port}" if tls else f"http://{self.host}:{self.port}"
        return f"{place}/{kind}/{nonce}/{tag(self.key, kind, nonce)}"


class _Told(msgspec.Struct):
    """What a judge says it has seen."""

    nonce: str
    address: str
    tls: bool
    fields: list[tuple[str, str]]


class _Answer(msgspec.Struct):
    signature: str
    seen: str


def read_address(text: str) -> JudgeAddress:
    """Return the address. Raises `BadProxy`, which repeats no key."""
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname or "", parts.port or 0
    except ValueError:
        raise BadProxy(f"not the address of a judge: {WRITE}") from None
    asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    tls, pin = asked.get("tls", "0"), asked.get("pin", "")
    if parts.scheme != "judge" or not host or not port or not KEY.fullmatch(parts.username or ""):
        raise BadProxy(f"not the address of a judge: {WRITE}")
    if not (tls.isascii() and tls.isdigit() and int(tls) < 1 << 16) or (int(tls) > 0) is not bool(_pinned(pin)):
        raise BadProxy(f"the address of the judge at {host}:{port} needs tls and pin, or neither: {WRITE}")
    return JudgeAddress(f"[{host}]" if ":" in host else host, port, parts.username or "", int(tls), pin)


def pin_of(digest: bytes) -> str:
    """Return the pin for the SHA-256 of a public key."""
    return urlsafe_b64encode(digest).decode().rstrip("=")


def tag(key: str, kind: str, nonce: str) -> str:
    """Return what shows the judge that somebody with the key asks."""
    return _hmac(key, f"ask {kind} {nonce}")[:TAG_DIGITS]


def asked_for(target: str, key: str) -> tuple[str, str] | None:
    """Return kind and nonce of the target of a request, None for anybody's who does not have the key."""
    parts = target.split("/")
    if len(parts) != 4 or parts[0] or parts[1] not in {LOOK, PAGE} or not NONCE.fullmatch(parts[2]):
        return None
    _, kind, nonce, shown = parts
    return (kind, nonce) if hmac.compare_digest(shown.encode(), tag(key, kind, nonce).encode()) else None


def answer(key: str, nonce: str, seen: Seen) -> bytes:
    """Return the answer to a look."""
    fields = [(name, value[:VALUE_MAX]) for name, value in seen.fields[:FIELDS_MAX]]
    told = msgspec.json.encode(_Told(nonce, seen.address, seen.is_tls, fields)).decode()
    return msgspec.json.encode(_Answer(_hmac(key, f"answer {told}"), told))


def read_answer(body: bytes, key: str, nonce: str) -> Seen | None:
    """Return what the judge has seen, None when somebody else wrote this, or for another nonce."""
    try:
        got = msgspec.json.decode(body[:ANSWER_MAX], type=_Answer)
        if not hmac.compare_digest(_hmac(key, f"answer {got.seen}").encode(), got.signature.encode()):
            return None
        told = msgspec.json.decode(got.seen.encode(), type=_Told)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return Seen(told.address, tuple(told.fields), told.tls) if told.nonce == nonce else None


def page(key: str, nonce: str) -> bytes:
    """Return the page of a nonce: the kind that is worth altering, with a form, a script and a place for more."""
    words = shake_256(f"{key} page {nonce}".encode()).hexdigest(512)
    return (
        f"<!doctype html><html><head><title>{words[:24]}</title><script>var page = '{words[24:64]}'</script></head>"
        f"<body><h1>{words[64:96]}</h1><form method=post><input name=password type=password></form><p>"
        f"{' '.join(_parts(words[96:]))}</p></body></html>\n"
    ).encode()


def _parts(text: str) -> Iterable[str]:
    return (text[at : at + 16] for at in range(0, len(text), 16))


def _hmac(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def _pinned(pin: str) -> bytes:
    """Return the digest, nothing for what is no pin."""
    try:
        digest = urlsafe_b64decode(pin.encode() + b"=" * (-len(pin) % 4))
    except (NotBase64, UnicodeEncodeError, ValueError):
        return b""
    return digest if len(digest) == PIN_BYTES else b""
