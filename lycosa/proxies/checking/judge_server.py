"""A judge: a small server that tells whoever has its key what it has seen of a request, so that proxies can be checked.

    async with judging(Certificate.made(folder), host="203.0.113.1", port=8300, tls_port=8301) as judge:
        judge.address.url           # judge://KEY@203.0.113.1:8300/?tls=8301&pin=..., for whoever is to check

What is said is in `proxies.core.checks.judging`. Strangers get 404 and nothing else, so that it says nothing of anybody
to anybody, and is of no use to make traffic with. Each connection has one request (`infra.web.one_request`): a proxy
that keeps connections shows its own latency.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from urllib.parse import urlsplit

from lycosa.core.errors import StateError, UsageError
from lycosa.infra.durable_files import make_file
from lycosa.infra.web.bind_errors import bind_error_text
from lycosa.infra.web.http_server import REQUEST_MAX_S, HttpServer, ServerRequest, ServerResponse
from lycosa.proxies.core.checks.anonymity import SeenRequest, canonical_ip
from lycosa.proxies.core.checks.judging import (
    KEY,
    LOOK,
    PAGE_FIELDS,
    JudgeAddress,
    encode_answer,
    make_page,
    parse_target,
    pin_of,
)

LOOPBACK = "127.0.0.1"
HEAD_MAX = 16_384
"""Bytes of a request: its line and its fields."""

CONNECTIONS_MAX = 1000
KEY_BYTES = 24
DAYS = 3650
"""How long a certificate holds: who asks knows it by its key."""

OPENSSL_MAX_S = 30.0
CURVE = ("-pkeyopt", "ec_paramgen_curve:prime256v1")
LOOKED = {"content-type": "application/json", "cache-control": "no-store, no-transform"}
STRANGE = ServerResponse(404, b"not found\n")
KEY_FILE, CERTIFICATE_FILE, SECRET_FILE = "key.pem", "certificate.pem", "judge.key"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its key, in two files of PEM, and the pin by which it is known."""

    chain: Path
    key: Path
    pin: str

    @classmethod
    def made(cls, folder: Path) -> Certificate:
        """Return the one in this folder, a new one if there is none. Raises `StateError` without openssl, `UsageError`.

        Of several judges that begin at once all have the key of the first, and any certificate of it will do.
        """
        chain, key = folder / CERTIFICATE_FILE, folder / KEY_FILE
        is_new = not key.exists() and _make(key, _openssl("genpkey", "-algorithm", "EC", *CURVE))
        if is_new or not chain.exists():
            made = _openssl("req", "-x509", "-key", str(key), "-days", str(DAYS), "-subj", "/CN=judge")
            _make(chain, made, anew=is_new)
        return cls.read(chain, key)

    @classmethod
    def read(cls, chain: Path, key: Path) -> Certificate:
        """Return one that somebody else has made. Raises `UsageError`."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"{chain} and {key} are no certificate and its key: {_said(error)}") from None
        public = _openssl("x509", "-in", str(chain), "-pubkey", "-noout")
        return cls(chain, key, pin_of(sha256(b64decode("".join(public.split("-----")[2].split()))).digest()))

    def context(self) -> ssl.SSLContext:
        """Return what a server needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        return context


def key_in(folder: Path) -> str:
    """Return the key that is kept in this folder, a new one if there is none. Raises `UsageError`."""
    path = folder / SECRET_FILE
    if not path.exists():
        _make(path, new_key() + "\n")  # or another judge did
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if not KEY.fullmatch(text):
        raise UsageError(f"{path} holds no key of a judge: write 16 to 128 letters, digits, - and _, or remove it")
    return text


def new_key() -> str:
    """Return a key that nobody can guess."""
    return token_urlsafe(KEY_BYTES)


class Judge:
    """A running judge. `asked` counts the requests of those who have its key, `strangers` all others."""

    def __init__(self, key: str) -> None:
        self.address = JudgeAddress("", 0, key)
        self.asked = self.strangers = 0
        self._key = key

    async def answer(self, asked: ServerRequest) -> ServerResponse:
        """Say what was seen of a request, to those who have the key."""
        wanted = parse_target(_path(asked.target), self._key) if asked.method == "GET" else None
        if wanted is None:
            self.strangers += 1
            return STRANGE
        self.asked += 1
        kind, nonce = wanted
        if kind == LOOK:
            seen = SeenRequest(canonical_ip(asked.address), asked.fields, asked.is_tls)
            return ServerResponse(200, encode_answer(self._key, nonce, seen), LOOKED)
        return ServerResponse(200, make_page(self._key, nonce), PAGE_FIELDS)


@asynccontextmanager
async def judging(
    certificate: Certificate | None = None,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    tls_port: int = 0,
    key: str = "",
    public: str = "",
) -> AsyncIterator[Judge]:
    """Be a judge on the running loop while the block runs, with TLS if there is a certificate; port 0 is a free one.

    `public` is the name or address at which proxies reach it, if that is not `host`. Raises `StateError` where it
    cannot listen.
    """
    judge = Judge(key or new_key())
    requests = HttpServer(judge.answer, CONNECTIONS_MAX)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(requests.stop)
        plain = await stack.enter_async_context(await _listening(requests, host, port, None))
        port = plain.sockets[0].getsockname()[1]
        if certificate is not None:
            secure = await stack.enter_async_context(await _listening(requests, host, tls_port, certificate.context()))
            tls_port = secure.sockets[0].getsockname()[1]
        shown = (public or host).strip("[]")
        judge.address = JudgeAddress(
            f"[{shown}]" if ":" in shown else shown,
            port,
            judge.address.key,
            tls_port if certificate else 0,
            certificate.pin if certificate else "",
        )
        yield judge


async def _listening(requests: HttpServer, host: str, port: int, context: ssl.SSLContext | None) -> asyncio.Server:
    shake_s = None if context is None else REQUEST_MAX_S
    try:
        return await asyncio.start_server(
            requests.on_connect, host.strip("[]"), port, limit=HEAD_MAX, ssl=context, ssl_handshake_timeout=shake_s
        )
    except UnicodeError:
        raise UsageError(f"--bind {host}: no such address") from None
    except OSError as error:
        raise StateError(f"a judge cannot listen on {host} port {port}: {bind_error_text(error)}") from None


def _path(target: str) -> str:
    """Return the path of a target; a proxy may have left the whole URL."""
    if target.startswith("/"):
        return target
    try:
        return urlsplit(target).path
    except ValueError:
        return ""


def _make(path: Path, text: str, *, anew: bool = False) -> bool:
    """Make one of the files of a judge. See `durable_files.make_file`. Raises `UsageError`."""
    try:
        return make_file(path, text.encode("ascii"), replace=anew)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {_said(error)}") from None


def _said(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _openssl(*words: str) -> str:
    """Run the program openssl, which the standard library has no match for. Raises `StateError`, `UsageError`."""
    try:
        done = subprocess.run(  # noqa: S603  words of ours, no shell
            ["openssl", *words],  # noqa: S607  wherever this system has it
            capture_output=True,
            text=True,
            timeout=OPENSSL_MAX_S,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        raise StateError("a certificate needs the program openssl: install it, or use --no-tls") from None
    if done.returncode:
        raise UsageError(f"openssl {words[0]} failed: {(done.stderr.strip() or 'without a word').splitlines()[-1]}")
    return done.stdout
