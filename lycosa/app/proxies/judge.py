"""Open a judge that stores its key and certificate in a folder."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from lycosa.proxies.checking.judge_server import Certificate, Judge, load_or_create_key, run_judge


def open_judge(
    folder: Path, *, tls: bool, host: str, port: int, tls_port: int, public: str
) -> AbstractAsyncContextManager[Judge]:
    """Run a judge until the block ends. Its key and, for TLS, its certificate are in `folder`, and created if missing.

    Raises the errors of `run_judge`, `load_or_create_key` and `Certificate.load_or_create`.
    """
    certificate = Certificate.load_or_create(folder) if tls else None
    key = load_or_create_key(folder)
    return run_judge(certificate, host=host, port=port, tls_port=tls_port, key=key, public=public)
