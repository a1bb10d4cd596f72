"""What a worker remembers of the crawl that it takes part in, in a file of its state.

WORKER CRAWL                under which name, and which crawl: its number, none before it has joined
{"jsonl:/items.jsonl": 0}   where its sinks started
"shop"                      what the crawl is called
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
    """Under which name, and which crawl it is: "" before it has joined.

    `name` is what that crawl is called. `starts` are the positions of its sinks when it first took part: a server may
    lose that it ever did. `changed` is called when there is something new to remember.
    """

    worker: str
    crawl: str = ""
    name: str = ""
    starts: dict[str, int] = field(default_factory=dict)
    changed: Callable[[], None] = lambda: None


def membership(file: Path, name: str) -> Membership:
    """Return what a file remembers, to take part in the crawl of this name; a new worker where there is no file.

    Raises `ForeignState` when that is of a crawl of another name, or damaged; `StorageError`.
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
        found = Membership(worker, crawl, decode(name, type=str), decode(starts, type=dict[str, int]))
    except (ValueError, msgspec.MsgspecError):
        raise ForeignState(f"{file} is damaged: to take part as a new worker give another --state and -o") from None
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    return found


def _write(file: Path, member: Membership) -> None:
    starts, name = msgspec.json.encode(member.starts), msgspec.json.encode(member.name)
    try:
        replace_file(file, b"%b %b\n%b\n%b" % (member.worker.encode(), member.crawl.encode(), starts, name), sync=False)
    except OSError as error:
        raise write_error(file, error, "what this worker takes part in cannot be written") from error
