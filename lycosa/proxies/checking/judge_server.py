"""A judge: a small server that shows clients how their requests arrived, so that they can check proxies.

    async with run_judge(Certificate.load_or_create(folder), host="203.0.113.1", port=8300, tls_port=8301) as judge:
        judge.address.url           # judge://KEY@203.0.113.1:8300/?tls=8301&pin=..., for the checker

`proxies.core.checks.judging` defines the messages. Clients without the key get only a 404, so they cannot generate
traffic with the server. A connection serves one request: a proxy cannot hide its latency by keeping connections open.
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
from lycosa.infra.web.http_server import REQUEST_MAX_S, HttpServer, ServerRequest, ServerResponse
from lycosa.infra.web.listening import LOOPBACK, Access, open_listener, remote_note
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

ACCESS = Access(True, "", "its key")
HEAD_MAX = 16_384

CONNECTIONS_MAX = 1000
KEY_BYTES = 24
CERTIFICATE_DAYS = 3650
"""Long, because checkers identify the judge by its public key only."""

OPENSSL_TIMEOUT_S = 30.0
CURVE = ("-pkeyopt", "ec_paramgen_curve:prime256v1")
ANSWER_FIELDS = {"content-type": "application/json", "cache-control": "no-store, no-transform"}
NOT_FOUND = ServerResponse(404, b"not found\n")
KEY_FILE, CERTIFICATE_FILE, SECRET_FILE = "key.pem", "certificate.pem", "judge.key"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A TLS context with a certificate, and the pin of its public key."""

    context: ssl.SSLContext
    pin: str

    @classmethod
    def load_or_create(cls, folder: Path) -> Certificate:
        """Load the certificate (PEM) from this folder, or create one. Raises `StateError`, `UsageError`.

        Judges that start at the same time share a private key, but may have different certificates.
        """
        chain, key = folder / CERTIFICATE_FILE, folder / KEY_FILE
        is_new = not key.exists() and _write(key, _openssl("genpkey", "-algorithm", "EC", *CURVE))
        if is_new or not chain.exists():
            days = str(CERTIFICATE_DAYS)
            created = _openssl("req", "-x509", "-key", str(key), "-days", days, "-subj", "/CN=judge")
            _write(chain, created, replace=is_new)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(chain, key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"{chain} and {key} are not a certificate and its key: {_reason(error)}") from None
        public_key = _openssl("x509", "-in", str(chain), "-pubkey", "-noout")
        der = b64decode("".join(public_key.split("-----")[2].split()))
        return cls(context, pin_of(sha256(der).digest()))


def load_or_create_key(folder: Path) -> str:
    """Load the judge's key from this folder, or create one. Raises `UsageError`."""
    path = folder / SECRET_FILE
    if not path.exists():
        _write(path, new_key() + "\n")  # another judge may just have created it: that file is kept
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if not KEY.fullmatch(text):
        raise UsageError(f"{path} has no judge key: write 16 to 128 letters, digits, - and _, or remove the file")
    return text


def new_key() -> str:
    """Return a random judge key."""
    return token_urlsafe(KEY_BYTES)


class Judge:
    """A running judge. `answered` counts the requests with its key, `rejected` all other well-formed requests.

    `note`: who may connect; "" if only this machine can.
    """

    def __init__(self, key: str) -> None:
        self.address = JudgeAddress("", 0, key)
        self.answered = self.rejected = 0
        self.note = ""
        self._key = key

    async def handle(self, request: ServerRequest) -> ServerResponse:
        found = parse_target(_path(request.target), self._key) if request.method == "GET" else None
        if found is None:
            self.rejected += 1
            return NOT_FOUND
        self.answered += 1
        kind, nonce = found
        if kind == LOOK:
            seen = SeenRequest(canonical_ip(request.address), request.fields, request.is_tls)
            return ServerResponse(200, encode_answer(self._key, nonce, seen), ANSWER_FIELDS)
        return ServerResponse(200, make_page(self._key, nonce), PAGE_FIELDS)


@asynccontextmanager
async def run_judge(
    certificate: Certificate | None = None,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    tls_port: int = 0,
    key: str = "",
    public: str = "",
) -> AsyncIterator[Judge]:
    """Run a judge, with TLS if there is a certificate. Port 0: any free port. Raises the errors of `open_listener`.

    `public`: the name or address at which proxies reach the judge, if it differs from `host`.
    """
    judge = Judge(key or new_key())
    server = HttpServer(judge.handle, CONNECTIONS_MAX)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        wanted = [(port, None)] if certificate is None else [(port, None), (tls_port, certificate.context)]
        bound: dict[ssl.SSLContext | None, asyncio.Server] = {}
        # Bind the given ports first: for port 0, the system could choose one of them.
        for number, context in sorted(wanted, key=lambda each: each[0] == 0):
            bound[context] = await stack.enter_async_context(await _listen(server, host, number, context))
        address, port = bound[None].sockets[0].getsockname()[:2]
        judge.note = remote_note(address, ACCESS)
        name = (public or host).strip("[]")
        judge.address = JudgeAddress(
            f"[{name}]" if ":" in name else name,
            port,
            judge.address.key,
            bound[certificate.context].sockets[0].getsockname()[1] if certificate else 0,
            certificate.pin if certificate else "",
        )
        yield judge


async def _listen(server: HttpServer, host: str, port: int, context: ssl.SSLContext | None) -> asyncio.Server:
    handshake_s = None if context is None else REQUEST_MAX_S  # asyncio accepts this only with TLS
    listener = open_listener(host.strip("[]"), port, f"--bind {host}:{port}", ACCESS)
    return await asyncio.start_server(
        server.on_connect, sock=listener, limit=HEAD_MAX, ssl=context, ssl_handshake_timeout=handshake_s
    )


def _path(target: str) -> str:
    """Return the path of a request target, which may be a full URL that a proxy passed on."""
    if target.startswith("/"):
        return target
    try:
        return urlsplit(target).path
    except ValueError:
        return ""


def _write(path: Path, text: str, *, replace: bool = False) -> bool:
    """Write a file. Return False if it exists and `replace` is False. Raises `UsageError`."""
    try:
        return make_file(path, text.encode("ascii"), replace=replace)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _openssl(*arguments: str) -> str:
    """Run openssl: the standard library cannot create certificates. Raises `StateError`, `UsageError`."""
    try:
        done = subprocess.run(  # noqa: S603  our own arguments, no shell
            ["openssl", *arguments],  # noqa: S607  found through PATH
            capture_output=True,
            text=True,
            timeout=OPENSSL_TIMEOUT_S,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        raise StateError("a certificate needs the program openssl: install it, or use --no-tls") from None
    if done.returncode:
        reason = (done.stderr.strip() or "no error message").splitlines()[-1]
        raise UsageError(f"openssl {arguments[0]} failed: {reason}")
    return done.stdout
