"""Why a peer did not deliver metadata. `PeerError` is the only error of conversations and assemblies."""

from __future__ import annotations

from enum import StrEnum

from lycosa.core.errors import LycosaError


class PeerFailure(StrEnum):
    """What went wrong with one peer."""

    UNREACHABLE = "unreachable"
    CLOSED = "closed"
    TIMEOUT = "timeout"  # of a stage, or of the whole conversation
    PROTOCOL = "protocol"
    OTHER_INFOHASH = "other infohash"  # the peer answered for another torrent
    NO_EXTENSIONS = "no extensions"  # the peer does not speak BEP 10 or BEP 9
    NO_METADATA = "no metadata"  # the peer does not have it, or rejects requests
    TOO_LARGE = "too large"
    FLOOD = "flood"  # more bytes or messages than we requested
    WRONG_HASH = "wrong hash"
    NOT_PUBLIC = "not public"  # a private or reserved address: never contacted
    PAUSED = "paused"  # it failed before: not contacted for a while
    LIMITED = "limited"  # its host has reached the limit of connections per minute
    LOCAL = "local"  # our own system is out of sockets or ports


class PeerError(LycosaError):
    """A peer did not deliver."""

    def __init__(self, reason: PeerFailure, message: str = "") -> None:
        super().__init__(message or reason.value)
        self.reason = reason
