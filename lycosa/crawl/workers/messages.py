"""What the owner of a crawl and the processes that visit its pages say to each other. Pure: bytes in, values out.

A message is its length in four bytes, big endian, and so many bytes of msgpack.

    owner                                           process
    Visit(token, record)  ------------------------>              a lease, and what it needs to be fetched
                          <------------------------  Started     a host hears of a request now
                          <------------------------  Finished, Missed or Returned    what became of it (`Outcome`)
    Settled(token)        ------------------------>              its children are queued: they are known
    Cancel(token)         ------------------------>  Stopped     it is not wanted any more

    Granted or Refused    <----- Claim, Unclaim ---              a turn for an inline fetch (`crawl.fetching.claims`)
    Facts, Pushed         <----- Ask, Learn, Push -              what a host allows; requests queued by hand
    CookieSet, Forget     <-----> CookieSet                      what one process learned is news to all
                          <------------------------  Block, Slow, Keep, Close, Counted, Logged    told on the way
    Close(reason)         ------------------------>  Ready at the beginning, Broken when it cannot go on
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from lycosa.core import errors
from lycosa.crawl.diagnostics.bug_log import Bug
from lycosa.crawl.engine.verdict import CloseCrawl, Deferred, Failed, reason_text
from lycosa.crawl.engine.visit import Completed, Outcome
from lycosa.frontier.core.model import HostFacts, UrlRecord
from lycosa.http.core.model import Validators

MESSAGE_MAX = 256 << 20
"""Bytes of one message. A page whose results are longer is dead."""

LOG_TEXT_MAX = 100_000
"""Characters of a logged message that are handed on."""

LENGTH = struct.Struct(">I")


class Message(msgspec.Struct, array_like=True, tag=True):
    """What is said."""


class Visit(Message):
    """Visit this. `paced`: say when its host hears of the request. `lost` is why its host has no address."""

    token: int
    record: UrlRecord
    address: str = ""
    paced: bool = False
    lost: str = ""


class Settled(Message):
    """The children of this visit are queued."""

    token: int


class Cancel(Message):
    """Give this visit up."""

    token: int


class Stopped(Message):
    """This visit was given up."""

    token: int


class Finished(Message):
    """See `Completed`."""

    token: int
    reason: str
    items: list[list[Any]]
    children: list[UrlRecord]
    page: bool
    bytes: int
    contacted: bool
    validators: Validators | None
    closing: str


class Missed(Message):
    """See `Failed`."""

    token: int
    reason: str
    retry_at: float | None
    block_until: float
    contacted: bool


class Returned(Message):
    """See `Deferred`, and with a reason `CloseCrawl`."""

    token: int
    until: float = 0.0
    closing: str = ""


class Started(Message):
    """A request to the host started so many seconds ago; `again` corrects what was told before."""

    host: str
    ago_s: float
    again: bool = False


class Claim(Message):
    """A turn of the host is wanted, under the lease of this visit, 0 for none."""

    number: int
    host: str
    holder: int = 0


class Unclaim(Message):
    """The turn is over, or not wanted any more."""

    number: int


class Granted(Message):
    """The turn has come. See `Visit`."""

    number: int
    address: str = ""
    paced: bool = False
    lost: str = ""


class Refused(Message):
    """A claim or question failed with this class of `core.errors`."""

    number: int
    kind: str
    text: str


class Ask(Message):
    """Ask what is known of the host."""

    number: int
    host: str


class Facts(Message):
    """That is known of it."""

    number: int
    facts: HostFacts | None


class Learn(Message):
    """This was learned of the host."""

    host: str
    facts: HostFacts


class Forget(Message):
    """Something new is known of the host: ask again."""

    host: str


class Push(Message):
    """Queue these."""

    number: int
    records: list[UrlRecord]


class Pushed(Message):
    """So many were new."""

    number: int
    new: int


class CookieSet(Message):
    """This cookie of a jar is another now, or over."""

    jar: str
    cookie: bytes


class Block(Message):
    """The host rests until then (unix seconds)."""

    host: str
    until: float


class Slow(Message):
    """The host is throttled to this delay."""

    host: str
    delay_s: float


class Keep(Message):
    """Remember this beside the frontier."""

    table: str
    key: str
    value: bytes | None


class Close(Message):
    """The crawl ends, or is to end, for this reason; `at_once` without waiting for any server."""

    reason: str
    at_once: bool = False


class Counted(Message):
    """What was counted since the last time: stats by how they are put together, links not followed, hints; memory.

    Users count under whatever can be a key.
    """

    sums: dict[Any, Any] = {}
    most: dict[Any, Any] = {}
    least: dict[Any, Any] = {}
    last: dict[Any, Any] = {}
    skipped: dict[str, int] = {}
    dropped: int = 0
    known: int = 0
    notes: list[str] = []
    bugs: list[Bug] = []
    memory_bytes: int = 0


class Logged(Message):
    """A line for the log."""

    name: str
    level: int
    text: str
    trace: str = ""


class Ready(Message):
    """Everything is wired: visits may come."""


class Broken(Message):
    """It cannot go on; `kind` is a class of `core.errors`, "" for a fault of ours."""

    kind: str
    text: str


Order = Visit | Settled | Cancel | Granted | Refused | Facts | Forget | Pushed | CookieSet | Close
Report = (
    Finished
    | Missed
    | Returned
    | Stopped
    | Started
    | Claim
    | Unclaim
    | Ask
    | Learn
    | Push
    | CookieSet
    | Block
    | Slow
    | Keep
    | Close
    | Counted
    | Logged
    | Ready
    | Broken
)

_encode = msgspec.msgpack.Encoder(enc_hook=repr).encode
decode_order = msgspec.msgpack.Decoder(Order).decode
decode_report = msgspec.msgpack.Decoder(Report).decode


def encoded(message: Message) -> bytes:
    """Return the message with its length. Raises ValueError when it is longer than MESSAGE_MAX."""
    body = _encode(message)
    if len(body) > MESSAGE_MAX:
        raise ValueError(f"{len(body):,} bytes, more than {MESSAGE_MAX:,}")
    return LENGTH.pack(len(body)) + body


def told(token: int, outcome: Outcome) -> bytes:
    """Return what became of a visit as an encoded message; too much of it is a failure of its own."""
    try:
        return encoded(_told(token, outcome))
    except (TypeError, ValueError, OverflowError) as error:
        text = reason_text(f"its results cannot be handed to the process that writes them: {error}")
        return encoded(Missed(token, text, None, 0.0, contacted=True))


def _told(token: int, outcome: Outcome) -> Message:
    if isinstance(outcome, Completed):
        items = [list(each) for each in outcome.items]
        return Finished(
            token,
            outcome.reason,
            items,
            list(outcome.children),
            outcome.page,
            outcome.bytes,
            outcome.contacted,
            outcome.validators,
            outcome.closing,
        )
    if isinstance(outcome, Failed):
        return Missed(token, outcome.reason, outcome.retry_at, outcome.block_until, outcome.contacted)
    if isinstance(outcome, CloseCrawl):
        return Returned(token, closing=outcome.reason)
    return Returned(token, until=outcome.until)


def outcome_of(said: Finished | Missed | Returned) -> Outcome:
    """Return what became of the visit."""
    if isinstance(said, Finished):
        return Completed(
            said.reason,
            said.items,
            said.children,
            said.page,
            said.bytes,
            said.contacted,
            said.validators,
            said.closing,
        )
    if isinstance(said, Missed):
        return Failed(said.reason, said.retry_at, said.block_until, said.contacted)
    return CloseCrawl(said.closing) if said.closing else Deferred(said.until)


def error_of(kind: str, text: str) -> errors.LycosaError:
    """Return the exception that another process meant."""
    found = getattr(errors, kind, None)
    if not isinstance(found, type) or not issubclass(found, errors.LycosaError):
        found = errors.StateError
    return found(text)
