"""The two scripts of the frontier on Redis: one for workers, one for operations from outside.

Redis shares no code between scripts, so each is put together from files, of which they share most.
"""

from __future__ import annotations

from lycosa.frontier.core.claims import YIELD_S
from lycosa.frontier.core.fair_queue import FAIR_TURN, SHORT_S
from lycosa.frontier.core.model import RecordKind, SegmentState
from lycosa.frontier.core.scheduler import CLAIMS_IN_ROW_MAX, TRANSFER_S
from lycosa.frontier.redis.lanes import FINGERPRINT_CHARS, RANK_CHARS, SEGMENT_START, STAMP_CHARS
from lycosa.frontier.redis.layout import LAYOUT, Key
from lycosa.infra.redis.scripts import Constant, LuaScript

SILENT_S = 2.0
"""A worker without a sign of life for longer is dead."""

CONSTANTS: dict[str, Constant] = {
    "KEYS_BY_NAME": {key.name.lower(): key.value for key in Key},
    "LAYOUT": str(LAYOUT),
    **{kind.name: str(kind.value) for kind in RecordKind},
    "OPEN": str(SegmentState.OPEN),
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
"""What the scripts share with the in-process frontier and with the Python here."""

PACKAGE = "lycosa.frontier.redis"
SHARED = ("base", "limits", "telemetry", "hosts", "claims", "records", "leases")

WORKER_SCRIPT = LuaScript(
    PACKAGE, (*SHARED, "verbs", "membership", "outboxes", "exchange"), CONSTANTS, blocks=("membership", "outboxes")
)
OPERATIONS_SCRIPT = LuaScript(
    PACKAGE, (*SHARED, "listing", "watching", "checking"), CONSTANTS, blocks=("watching", "checking")
)


def keys_of(prefix: str) -> tuple[str, str]:
    """Return the KEYS of a call for the partition of this prefix: one key that exists, and one that never does.

    While a cluster moves a partition to another server, some of its keys are here and some there. Redis looks for the
    keys that a call names, and for no others: with a single one it would run the script on the few keys at either end.
    With these two it answers TRYAGAIN until all have moved.
    """
    return (prefix, prefix + Key.META)
