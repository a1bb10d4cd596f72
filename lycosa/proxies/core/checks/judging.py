"""The protocol of a judge server and its clients. No proxy between them can forge an answer.

    GET /look/NONCE/TAG   {"signature": ..., "seen": "{nonce, address, tls, fields}"}   the request as the judge saw it
    GET /page/NONCE/TAG   an HTML page that both sides derive from the key and nonce    to check that it is unchanged

Judge and client share a key. TAG proves that the client has the key; the judge answers no other clients. The signature
(HMAC, RFC 2104) proves that the judge wrote the answer. A new random nonce for each request prevents replays.

The address of a judge is judge://KEY@HOST:PORT/?tls=PORT&pin=PIN. The pin is the SHA-256 of the public key of its
certificate, in base64url: no certificate authority is trusted.
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
from lycosa.proxies.core.checks.anonymity import SeenRequest

LOOK, PAGE = "look", "page"
NONCE = re.compile(r"[0-9a-f]{32}")
KEY = re.compile(r"[A-Za-z0-9_-]{16,128}")
TAG_DIGITS = 32
PIN_BYTES = 32

PAGE_TYPE = "text/html; charset=utf-8"
PAGE_FIELDS = {"content-type": PAGE_TYPE, "cache-control": "no-store, no-transform"}
"""no-transform: RFC 9111 §5.2.2.6."""

ANSWER_MAX = 64_000
"""In bytes."""

FIELDS_MAX = 100
VALUE_MAX = 2_000
"""Maximum number of headers in an answer, and of characters of each value."""

WRITE = "write judge://KEY@HOST:PORT/?tls=PORT&pin=PIN, as `lycosa proxies judge` prints it"


@dataclass(frozen=True, slots=True)
class JudgeAddress:
    """The address of a judge. Without a TLS port, proxies that replace certificates are not detected."""

    host: str
    port: int
    key: str = field(repr=False)
    tls_port: int = 0
    pin: str = ""

    @property
    def name(self) -> str:
        """Without the key."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Secret, because it contains the key."""
        tls = f"?tls={self.tls_port}&pin={self.pin}" if self.tls_port else ""
        return f"judge://{self.key}@{self.name}/{tls}"

    @property
    def curl_pin(self) -> str:
        return f"sha256//{b64encode(_digest(self.pin)).decode()}" if self.pin else ""

    def ask(self, kind: str, nonce: str, *, tls: bool = False) -> str:
        place = f"https://{self.host}:{self.tls_port}" if tls else f"http://{self.host}:{self.port}"
        return f"{place}/{kind}/{nonce}/{tag(self.key, kind, nonce)}"


class _Seen(msgspec.Struct):
    nonce: str
    address: str
    tls: bool
    fields: list[tuple[str, str]]


class _SignedAnswer(msgspec.Struct):
    signature: str
    seen: str


def parse_judge_address(text: str) -> JudgeAddress:
    """Parse an address. Raises `BadProxy`; its message does not contain the key."""
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname or "", parts.port or 0
    except ValueError:
        raise BadProxy(f"not the address of a judge: {WRITE}") from None
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    tls, pin = options.get("tls", "0"), options.get("pin", "")
    if parts.scheme != "judge" or not host or not port or not KEY.fullmatch(parts.username or ""):
        raise BadProxy(f"not the address of a judge: {WRITE}")
    is_port = tls.isascii() and tls.isdigit() and int(tls) < 1 << 16
    if not is_port or (int(tls) > 0) is not bool(pin) or bool(pin) is not bool(_digest(pin)):
        raise BadProxy(f"the address of the judge at {host}:{port} needs both tls and pin, or neither: {WRITE}")
    return JudgeAddress(f"[{host}]" if ":" in host else host, port, parts.username or "", int(tls), pin)


def pin_of(digest: bytes) -> str:
    """Return the pin for the SHA-256 of a public key."""
    return urlsafe_b64encode(digest).decode().rstrip("=")


def tag(key: str, kind: str, nonce: str) -> str:
    """Return the proof that the client has the key."""
    return _hmac(key, f"ask {kind} {nonce}")[:TAG_DIGITS]


def parse_target(target: str, key: str) -> tuple[str, str] | None:
    """Return the kind and the nonce of a request target; None if its tag is invalid."""
    parts = target.split("/")
    if len(parts) != 4 or parts[0] or parts[1] not in {LOOK, PAGE} or not NONCE.fullmatch(parts[2]):
        return None
    _, kind, nonce, shown = parts
    return (kind, nonce) if hmac.compare_digest(shown.encode(), tag(key, kind, nonce).encode()) else None


def encode_answer(key: str, nonce: str, seen: SeenRequest) -> bytes:
    """Return the signed answer to a LOOK request."""
    fields = [(name, value[:VALUE_MAX]) for name, value in seen.fields[:FIELDS_MAX]]
    text = msgspec.json.encode(_Seen(nonce, seen.address, seen.is_tls, fields)).decode()
    return msgspec.json.encode(_SignedAnswer(_hmac(key, f"answer {text}"), text))


def decode_answer(body: bytes, key: str, nonce: str) -> SeenRequest | None:
    """Return the request as the judge saw it; None for an invalid signature or another nonce."""
    try:
        answer = msgspec.json.decode(body[:ANSWER_MAX], type=_SignedAnswer)
        if not hmac.compare_digest(_hmac(key, f"answer {answer.seen}").encode(), answer.signature.encode()):
            return None
        found = msgspec.json.decode(answer.seen.encode(), type=_Seen)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return SeenRequest(found.address, tuple(found.fields), found.tls) if found.nonce == nonce else None


def make_page(key: str, nonce: str) -> bytes:
    """Return the page for a nonce: a form, a script and text, which proxies often alter."""
    words = shake_256(f"{key} page {nonce}".encode()).hexdigest(512)
    return (
        f"<!doctype html><html><head><title>{words[:24]}</title><script>var page = '{words[24:64]}'</script></head>"
        f"<body><h1>{words[64:96]}</h1><form method=post><input name=password type=password></form><p>"
        f"{' '.join(_chunks(words[96:]))}</p></body></html>\n"
    ).encode()


def _chunks(text: str) -> Iterable[str]:
    return (text[at : at + 16] for at in range(0, len(text), 16))


def _hmac(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def _digest(pin: str) -> bytes:
    """Return the digest; b"" if the pin is invalid."""
    try:
        digest = urlsafe_b64decode(pin.encode() + b"=" * (-len(pin) % 4))
    except (NotBase64, UnicodeEncodeError, ValueError):
        return b""
    return digest if len(digest) == PIN_BYTES else b""
