"""Assembles the metadata of one infohash from the pieces of several peers, without I/O.

    assembly.add_peer(peer, size_bytes)         a peer offers metadata of this size
    assembly.assign(peer, pieces_max)           the pieces to request from it now
    assembly.receive(peer, piece, data)         returns the info dict when it is complete and has the infohash
    assembly.reject(peer, piece), assembly.remove_peer(peer)

Peers that claim different sizes are kept apart. A wrong hash does not show which piece is wrong. If the pieces came
from several peers, all are discarded, and then one peer at a time delivers all pieces. So the peer that sends wrong
pieces can be banned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field

from lycosa.dht.core.metadata.failures import PeerError, PeerFailure
from lycosa.dht.core.metadata.wire import PIECE_BYTES, pieces_of

Peer = Hashable


class _Candidate:
    """The pieces from all peers that claim the same size. After a wrong hash, only the peer `alone` may deliver."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes, self.count = size_bytes, pieces_of(size_bytes)
        self.pieces: dict[int, bytes] = {}
        self.asked: dict[int, Peer] = {}
        self.missing: list[int] = []
        self.sources: set[Peer] = set()
        self.mistrusted = False
        self.alone: Peer | None = None
        self.discard()

    def discard(self) -> None:
        self.pieces.clear()
        self.sources.clear()
        self.asked.clear()
        self.missing = list(reversed(range(self.count)))  # pieces are taken from the end
        self.alone = None

    def take(self, pieces_max: int, without: set[int]) -> list[int]:
        taken: list[int] = []
        left: list[int] = []
        while self.missing and len(taken) < pieces_max:
            piece = self.missing.pop()
            (left if piece in without else taken).append(piece)
        self.missing.extend(reversed(left))
        return taken


@dataclass(slots=True)
class _Offer:
    """A peer that offers metadata. `rejected`: the pieces that it refused to deliver."""

    candidate: _Candidate
    rejected: set[int] = field(default_factory=set)


class Assembly:
    """`infohash` has 20 bytes as in the DHT (version 1 or 2), or the 32 bytes of version 2."""

    def __init__(self, infohash: bytes) -> None:
        self._infohash = infohash
        self._candidates: dict[int, _Candidate] = {}
        self._offers: dict[Peer, _Offer] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes of the received and requested pieces. The shorter last piece counts as a whole one."""
        each = self._candidates.values()
        return PIECE_BYTES * sum(len(candidate.pieces) + len(candidate.asked) for candidate in each)

    def add_peer(self, peer: Peer, size_bytes: int) -> None:
        candidate = self._candidates.setdefault(size_bytes, _Candidate(size_bytes))
        self._offers[peer] = _Offer(candidate)

    def assign(self, peer: Peer, pieces_max: int) -> list[int]:
        if (offer := self._offers.get(peer)) is None:
            return []
        candidate = offer.candidate
        if candidate.mistrusted and (candidate.alone not in (None, peer) or offer.rejected):
            return []  # another peer delivers all pieces, or this one has rejected some
        chosen = candidate.take(pieces_max, offer.rejected)
        candidate.asked.update(dict.fromkeys(chosen, peer))
        if chosen and candidate.mistrusted:
            candidate.alone = peer
        return chosen

    def receive(self, peer: Peer, piece: int, data: bytes) -> bytes | None:
        """Add a piece. Return the metadata if it is complete and has the infohash.

        After a wrong hash, all pieces are missing again and earlier requests are void. If this peer had sent all
        pieces, raises `PeerError`.
        """
        candidate = self._offers[peer].candidate
        if candidate.asked.get(piece) != peer:
            return None
        del candidate.asked[piece]
        candidate.pieces[piece] = data
        candidate.sources.add(peer)
        if len(candidate.pieces) < candidate.count:
            return None
        metadata = b"".join(candidate.pieces[index] for index in range(candidate.count))
        if has_infohash(metadata, self._infohash):
            return metadata
        culprits = len(candidate.sources)
        candidate.discard()
        candidate.mistrusted = True
        if culprits == 1:
            self.remove_peer(peer)
            raise PeerError(PeerFailure.WRONG_HASH)
        return None

    def reject(self, peer: Peer, piece: int) -> None:
        """Raises `PeerError` if the peer is no longer useful."""
        offer = self._offers[peer]
        candidate = offer.candidate
        if candidate.asked.get(piece) == peer:
            del candidate.asked[piece]
            candidate.missing.append(piece)
        offer.rejected.add(piece)
        # After a wrong hash one peer has to deliver all pieces, and this one has refused one.
        if candidate.mistrusted or len(offer.rejected) == candidate.count:
            raise PeerError(PeerFailure.NO_METADATA, "the peer rejects requests")

    def remove_peer(self, peer: Peer) -> None:
        """The pieces of the peer are kept, unless it was the only one that may deliver."""
        if (offer := self._offers.pop(peer, None)) is None:
            return
        candidate = offer.candidate
        if candidate.mistrusted and candidate.alone == peer:
            candidate.discard()
        for piece in [piece for piece, asked in candidate.asked.items() if asked == peer]:
            del candidate.asked[piece]
            candidate.missing.append(piece)
        self._forget_candidates()

    def _forget_candidates(self) -> None:
        """To free memory, drop the candidates without peers, except the one with the most pieces."""
        offered = {offer.candidate.size_bytes for offer in self._offers.values()}
        left = [candidate for size, candidate in self._candidates.items() if size not in offered]
        best = max(left, key=lambda candidate: len(candidate.pieces), default=None)
        for candidate in left:
            if candidate is not best or not candidate.pieces:
                del self._candidates[candidate.size_bytes]

    def clear(self) -> None:
        self._offers.clear()
        self._candidates.clear()


def has_infohash(metadata: bytes, infohash: bytes) -> bool:
    """Return whether an info dict has this infohash.

    20 bytes are its SHA-1 (version 1), or the beginning of its SHA-256 (version 2, BEP 52). 32 bytes are its SHA-256.
    """
    if hashlib.sha256(metadata).digest()[: len(infohash)] == infohash:
        return True
    return hashlib.sha1(metadata, usedforsecurity=False).digest() == infohash
