"""A judge that keeps who it is in a folder."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from lycosa.proxies.checking.judge_server import Certificate, Judge, load_or_create_key, run_judge


def judge_in(
    folder: Path, *, tls: bool, host: str, port: int, tls_port: int, public: str
) -> AbstractAsyncContextManager[Judge]:
    """Return a judge with the key and, for TLS, the certificate of a folder, which are made if need be.

    It answers while the block runs. Raises as `run_judge`, `load_or_create_key` and `Certificate.load_or_create`.
    """
    certificate = Certificate.load_or_create(folder) if tls else None
    key = load_or_create_key(folder)
    return run_judge(certificate, host=host, port=port, tls_port=tls_port, key=key, public=public)
