"""HTTPS: certificates are verified by default, faults are named, HTTP/2 is used if offered."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lycosa.core.errors import PrivateAddress, TlsFailed
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from tests.conftest import need
from tests.servers.misbehaving import Server, serving
from tests.servers.nginx import serve
from tests.servers.ports import closed_port

NAMES = {"good": "IP:127.0.0.1", "other": "DNS:example.com", "expired": "IP:127.0.0.1", "self-signed": "IP:127.0.0.1"}


class Certificates(NamedTuple):
    folder: Path

    def context(self, name: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    need("openssl", shutil.which("openssl") is not None)
    folder = tmp_path_factory.mktemp("certificates")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=30)

    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Tests")
    for name, san in NAMES.items():
        (folder / f"{name}.ext").write_text(f"subjectAltName={san}\n")
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signer = ["-signkey", f"{name}.key"] if name == "self-signed" else ["-CA", "ca.pem", "-CAkey", "ca.key"]
        days = "-1" if name == "expired" else "2"
        more = ["-extfile", f"{name}.ext", "-days", days, "-set_serial", str(len(name))]
        openssl("x509", "-req", "-in", f"{name}.csr", *signer, "-out", f"{name}.pem", *more)
    return Certificates(folder)


@pytest.fixture
def trusted(certificates, monkeypatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.folder / "ca.pem"))


async def fetch(url: str, *, address: str = "", **settings: Any) -> HttpResponse:
    fetcher = CurlFetcher(FetchSettings(timeout_s=20.0, **settings))
    try:
        return await fetcher.fetch(Request(url), address=address)
    finally:
        await fetcher.close()


def fetched(context: ssl.SSLContext, **settings: Any) -> HttpResponse:
    async def main() -> HttpResponse:
        async with serving(tls=context) as server:
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the server's side of a failed handshake
            return await fetch(server.url("/good"), **settings)

    return asyncio.run(main())


def test_trusted_certificate_is_accepted(certificates, trusted):
    response = fetched(certificates.context("good"))
    assert response.status == 200
    assert 0 < response.timings.connect_s < response.timings.tls_s < response.timings.first_byte_s


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("other", "certificate is for another host"),
        ("expired", "certificate expired"),
        ("self-signed", "certificate self-signed"),
    ],
)
def test_untrusted_certificate_is_refused_with_its_reason(certificates, trusted, name, reason):
    with pytest.raises(TlsFailed) as caught:
        fetched(certificates.context(name))
    assert (str(caught.value), caught.value.retry) == (reason, False)
    assert fetched(certificates.context(name), insecure=True).status == 200


def test_address_changes_neither_the_sni_name_nor_the_checked_one(certificates, trusted):
    context, names = certificates.context("other"), []
    context.sni_callback = lambda _socket, name, _context: names.append(name)

    async def main() -> None:
        async with serving(tls=context) as server:
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the server's side of a failed handshake
            right = server.url("/good").replace("127.0.0.1", "example.com")
            response = await fetch(right, address="127.0.0.1")
            assert (response.status, response.ip) == (200, "127.0.0.1")
            with pytest.raises(TlsFailed, match=r"^certificate is for another host$"):
                await fetch(right.replace("example.com", "example.org"), address="127.0.0.1")

    asyncio.run(main())
    assert names == ["example.com", "example.org"]


def test_unknown_authority_is_refused_unless_insecure(certificates):
    with pytest.raises(TlsFailed, match=r"^certificate not trusted$"):
        fetched(certificates.context("good"))


def test_server_without_tls():
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(TlsFailed, match=r"^TLS handshake failed$"):
                await fetch(f"https://127.0.0.1:{port}/")

    asyncio.run(main())


def test_https_through_a_tunnel(certificates, trusted):
    async def main() -> tuple[HttpResponse, Server]:
        async with serving() as proxy, serving(tls=certificates.context("good")) as server:
            return await fetch(server.url("/good"), proxy=proxy.url()), proxy

    response, proxy = asyncio.run(main())
    assert (response.status, response.headers.get("proxy-agent")) == (200, "")
    assert b"All is well." in response.body
    assert [hit.method for hit in proxy.hits] == ["CONNECT"]


@pytest.mark.nginx
def test_http_2_is_used_if_offered(certificates, trusted, tmp_path):
    (tmp_path / "index.html").write_text("<p>two")
    port = closed_port()
    files = f"ssl_certificate {certificates.folder}/good.pem; ssl_certificate_key {certificates.folder}/good.key;"
    with serve(tmp_path, extra=f"listen 127.0.0.1:{port} ssl http2; {files}"):
        response = asyncio.run(fetch(f"https://127.0.0.1:{port}/"))
    assert (response.http_version, response.status, response.body) == ("2", 200, b"<p>two")
    assert response.headers.get("content-type") == "text/html"


@pytest.mark.nginx
def test_kept_http_2_connection_to_a_private_address_is_not_reused(certificates, trusted, tmp_path):
    (tmp_path / "index.html").write_text("<p>two")
    port = closed_port()
    files = f"ssl_certificate {certificates.folder}/good.pem; ssl_certificate_key {certificates.folder}/good.key;"

    async def main() -> list[HttpResponse | BaseException]:
        fetcher, request = CurlFetcher(FetchSettings(timeout_s=20.0)), Request(f"https://127.0.0.1:{port}/")
        try:
            await fetcher.fetch(request)
            transfers = (fetcher.fetch(request, public_only=guarded) for guarded in (False, True) * 10)
            return await asyncio.gather(*transfers, return_exceptions=True)
        finally:
            await fetcher.close()

    with serve(tmp_path, extra=f"listen 127.0.0.1:{port} ssl http2; {files}") as site:
        results = asyncio.run(main())
        assert [type(result) for result in results] == [HttpResponse, PrivateAddress] * 10
        assert {result.http_version for result in results[::2]} == {"2"}  # type: ignore[union-attr]
        assert len(site.requests()) == 11
