"""The journal of a pool: a record of each change, to be replayed with `GlobalPool.replay`.

A record holds what was decided (these proxies were leased), with the random draws and policies used, instead of what
was requested. A replay therefore restores the same pool, even if newer code decides differently. Changes caused by time
alone (leases expire, cool-downs end) happen again during a replay.
"""

from __future__ import annotations

from typing import ClassVar, Union

import msgspec

from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.proxy import Proxy


class JournalRecord(msgspec.Struct, array_like=True):
    """A call to `method`, with the fields as arguments."""

    method: ClassVar[str]


class AddRecord(JournalRecord, tag=1):
    """New proxies, or known ones with changed tags or prices."""

    method = "add"
    now: float
    proxies: list[Proxy]
    unchecked: bool = False


class RemoveRecord(JournalRecord, tag=2):
    """A proxy was removed."""

    method = "remove"
    now: float
    key: str


class AddTargetRecord(JournalRecord, tag=3):
    """A new target."""

    method = "add_target"
    name: str
    policy: TargetPolicy


class ForgetTargetRecord(JournalRecord, tag=4):
    """A target was forgotten."""

    method = "forget_target"
    name: str


class FillRecord(JournalRecord, tag=5):
    """Proxies joined a target, which is now filled for requests with the tags in `kind`."""

    method = "replay_fill"
    now: float
    target: str
    kind: list[tuple[str, str]]
    keys: list[str]


class GrantRecord(JournalRecord, tag=6):
    """New leases, with ascending tokens from `token` on."""

    method = "replay_acquire"
    now: float
    target: str
    token: int
    keys: list[str]
    until: float
    session: str = ""


class RenewRecord(JournalRecord, tag=7):
    """A lease was renewed for `lease_s`."""

    method = "renew"
    now: float
    target: str
    token: int
    lease_s: float


class ReleaseRecord(JournalRecord, tag=8):
    """A lease was released, possibly too late."""

    method = "release"
    now: float
    target: str
    token: int
    outcomes: list[Outcome]
    draw: float


class OutcomesRecord(JournalRecord, tag=9):
    """Outcomes of a proxy that belong to no lease."""

    method = "record"
    now: float
    key: str
    outcomes: list[Outcome]
    draw: float


class BanRecord(JournalRecord, tag=10):
    """A ban by hand, by a check, or by the gateway."""

    method = "ban"
    now: float
    target: str
    key: str
    until: float | None
    reason: str


class UnbanRecord(JournalRecord, tag=11):
    """Bans and cool-downs were lifted."""

    method = "unban"
    now: float
    target: str
    key: str


class ReviveRecord(JournalRecord, tag=12):
    """A check has found a proxy working."""

    method = "revive"
    now: float
    key: str
    exit_ip: str


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Union[tuple(JournalRecord.__subclasses__())]).decode  # noqa: UP007  made at run time
