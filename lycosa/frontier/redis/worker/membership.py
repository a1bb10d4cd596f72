"""The membership of a worker in a crawl, stored in a file of its state.

WORKER CRAWL                the name of the worker, and the number of the crawl ("" before the worker has joined)
{"jsonl:/items.jsonl": 0}   the positions at which its sinks started
"shop"                      the name of the crawl
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from lycosa.core.errors import ForeignState, StorageError
from lycosa.infra.disk import write_error
from lycosa.infra.durable_files import replace_file


@dataclass(slots=True)
class Membership:
    """`name` is the name of the crawl, `crawl` its number ("" before the worker joins).

    `starts` are the positions of the sinks when the worker first joined, in case the server loses all commits of
    this worker. Call `changed` after each change, to save it.
    """

    worker: str
    crawl: str = ""
    name: str = ""
    starts: dict[str, int] = field(default_factory=dict)
    changed: Callable[[], None] = lambda: None


def membership(file: Path, name: str) -> Membership:
    """Return the stored membership; that of a new worker if the file is missing.

    Raises `ForeignState` if the file belongs to a crawl of another name or is damaged, `StorageError` if it is
    unreadable.
    """
    member = _read(file) if file.exists() else Membership(secrets.token_hex(4))
    if member.crawl and member.name not in {"", name}:
        whose = f"{file.parent} is the state of a worker of the crawl {member.name!r}, not of {name!r}"
        raise ForeignState(f"{whose}: give another --state and -o")
    member.name, member.changed = name, partial(_write, file, member)
    return member


def _read(file: Path) -> Membership:
    try:
        first, starts, name = file.read_bytes().decode().split("\n")
        [(worker, crawl)] = re.findall(r"^(\S+) (\S*)$", first)
        decode = msgspec.json.decode
        return Membership(worker, crawl, decode(name, type=str), decode(starts, type=dict[str, int]))
    except (ValueError, msgspec.MsgspecError):
        raise ForeignState(f"{file} is damaged: to join as a new worker give another --state and -o") from None
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None


def _write(file: Path, member: Membership) -> None:
    starts, name = msgspec.json.encode(member.starts), msgspec.json.encode(member.name)
    try:
        replace_file(file, b"%b %b\n%b\n%b" % (member.worker.encode(), member.crawl.encode(), starts, name), sync=False)
    except OSError as error:
        raise write_error(file, error, "the membership of this worker cannot be written") from error
