"""The standard streams of a command. Closed streams are replaced, and failed writes raise `StorageError`."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from lycosa.core.errors import StorageError


class Output(io.FileIO):
    """Standard output. A failed write raises `StorageError`, or `BrokenPipeError` if the reader has exited."""

    def write(self, data: object, /) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except (BrokenPipeError, BlockingIOError):
            raise
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise StorageError(f"standard output cannot be written: {why}") from None


def open_closed_streams() -> None:
    """Open /dev/null for closed standard streams (`>&-`); otherwise sockets and files would get their descriptors.

    A closed standard output is opened read-only, so that writing items fails and the items are not lost silently.
    """
    for fd, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, mode)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  open until the process ends
    if sys.stdout is None or sys.stdout is sys.__stdout__:
        sys.stdout = _wrap_stdout(sys.stdout)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def drop_output() -> None:
    """Discard the buffered output. Otherwise Python would try to write it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def drop_unwritable() -> None:
    """Discard the buffered output if it cannot be written."""
    try:
        sys.stdout.flush()
    except (OSError, StorageError):
        drop_output()


def _wrap_stdout(before: TextIO | None) -> TextIO:
    raw = Output(1, "w", closefd=False)
    if before is None:
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8")
    before.flush()
    if getattr(before, "write_through", False):  # PYTHONUNBUFFERED
        return io.TextIOWrapper(raw, before.encoding, before.errors, write_through=True)
    return io.TextIOWrapper(io.BufferedWriter(raw), before.encoding, before.errors, line_buffering=before.isatty())
