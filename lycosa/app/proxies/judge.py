"""A judge that keeps who it is in a folder."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from lycosa.proxies.checking.judge_server import Certificate, Judge, judging, key_in


def judge_in(
    folder: Path, *, tls: bool, host: str, port: int, tls_port: int, public: str
) -> AbstractAsyncContextManager[Judge]:
    """Return a judge with the key and, for TLS, the certificate of a folder, which are made if need be.

    It answers while the block runs. Raises what `judging`, `key_in` and `Certificate.made` do.
    """
    certificate = Certificate.made(folder) if tls else None
    return judging(certificate, host=host, port=port, tls_port=tls_port, key=key_in(folder), public=public)
