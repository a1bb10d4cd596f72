"""The two Redis scripts of the frontier: one for workers, one for operations from outside the crawl.

Redis scripts cannot share code, so both are assembled from files, most of them common.
"""

from __future__ import annotations

from lycosa.frontier.core.claims import YIELD_S
from lycosa.frontier.core.fair_queue import FAIR_TURN, SHORT_S
from lycosa.frontier.core.model import RecordKind, SegmentState
from lycosa.frontier.core.scheduler import CLAIMS_IN_ROW_MAX, TRANSFER_S
from lycosa.frontier.redis.lanes import FINGERPRINT_CHARS, RANK_CHARS, SEGMENT_START, STAMP_CHARS
from lycosa.frontier.redis.layout import CLOSING, DELETED_LAYOUT, LAYOUT, Key
from lycosa.infra.redis.scripts import Constant, LuaScript

SILENT_S = 2.0
"""A worker that sends nothing for more than this many seconds has expired."""

CONSTANTS: dict[str, Constant] = {
    "KEYS_BY_NAME": {key.name.lower(): key.value for key in Key},
    "LAYOUT": str(LAYOUT),
    "DELETED_LAYOUT": str(DELETED_LAYOUT),
    **{kind.name: str(kind.value) for kind in RecordKind},
    "OPEN": str(SegmentState.OPEN),
    "CLOSING": CLOSING,
    "ARCHIVED": str(SegmentState.ARCHIVED),
    "DROPPED": str(SegmentState.DROPPED),
    "RANK_CHARS": RANK_CHARS,
    "SEGMENT_START": SEGMENT_START,
    "FINGERPRINT_CHARS": FINGERPRINT_CHARS,
    "STAMP_CHARS": STAMP_CHARS,
    "FAIR_TURN": FAIR_TURN,
    "SHORT_S": SHORT_S,
    "TRANSFER_S": TRANSFER_S,
    "CLAIMS_IN_ROW_MAX": CLAIMS_IN_ROW_MAX,
    "YIELD_S": YIELD_S,
    "SILENT_S": SILENT_S,
}

PACKAGE = "lycosa.frontier.redis"
SHARED = ("base", "limits", "telemetry", "hosts", "claims", "records", "leases")

WORKER_SCRIPT = LuaScript(
    PACKAGE, (*SHARED, "verbs", "membership", "outboxes", "exchange"), CONSTANTS, blocks=("membership", "outboxes")
)
OPERATIONS_SCRIPT = LuaScript(
    PACKAGE,
    (*SHARED, "listing", "watching", "expiry", "checking"),
    CONSTANTS,
    blocks=("watching", "expiry", "checking"),
)


def keys_of(prefix: str) -> tuple[str, str]:
    """Return the KEYS of a call for a partition: one key that never exists, and one that does.

    While a cluster moves a partition, its keys are on two servers. Redis checks only the keys that a call names. If a
    call named only the existing key, Redis would run the script on the server that has it, without the other keys. The
    key that never exists makes Redis answer TRYAGAIN until the whole partition has moved.
    """
    return (prefix, prefix + Key.META)
