"""Node ids that fit the IP address of their node, and how a node learns its own address (BEP 42).

The first 21 bits of a secure id are a hash of the masked IP address and of three bits of the id's last byte. The mask
limits how many different beginnings somebody with many addresses can have."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_network

from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.ids import ID_BYTES

MASKS = {4: bytes.fromhex("030f3fff"), 16: bytes.fromhex("0103070f1f3f7fff")}
"""The hashed bits of addresses of 4 and 16 bytes. Of an IPv6 address only the first half is used."""

EXEMPT = [
    (network.max_prefixlen // 8, int(network.network_address), int(network.netmask))
    for network in map(
        ip_network,
        (
            *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8"),
            *("::1/128", "fe80::/10", "fc00::/7"),  # BEP 42 has no list for IPv6: these are libtorrent's
        ),
    )
]

VOTES_MAX = 64
"""Maximum number of networks whose latest vote is kept."""
VOTES_MIN = 5
"""Fewer votes for an address could come from one attacker."""


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ 0x82F63B78 * (value & 1)  # noqa: PLW2901
        table.append(value)
    return tuple(table)


_CRC32C = _crc32c_table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes. Check value: 0xE3069283 for b"123456789"."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC32C[crc & 0xFF ^ byte]
    return crc ^ 0xFFFF_FFFF


def secure_id(ip: bytes, random: bytes) -> bytes:
    """Return a node id for a packed IP address, completed from 20 random bytes."""
    prefix = _prefix(ip, random[-1])
    return (prefix | int.from_bytes(random) & (1 << 139) - 1).to_bytes(ID_BYTES)


def is_secure(node_id: bytes, ip: bytes) -> bool:
    """Return whether this id fits this packed IP address. On a local network every id does."""
    return (int.from_bytes(node_id) ^ _prefix(ip, node_id[-1])) >> 139 == 0 or is_exempt(ip)


def is_exempt(ip: bytes) -> bool:
    """Return whether the address is on a local network."""
    number = int.from_bytes(ip)
    return any(len(ip) == size and number & mask == start for size, start, mask in EXEMPT)


def _prefix(ip: bytes, last_byte: int) -> int:
    """Return the first 21 bits of an id, shifted to their place in the 160 bits."""
    masked = bytearray(map(int.__and__, ip, MASKS[len(ip)]))
    masked[0] |= (last_byte & 7) << 5
    return crc32c(bytes(masked)) >> 11 << 139


class ExternalAddressVotes:
    """Determines our IP address from the answers of other nodes (`ip`).

    Only the latest vote of a network (a /24 or /48) counts, so that one subscriber cannot outvote the others. More than
    half of the votes decide.
    """

    def __init__(self, address: bytes = b"") -> None:
        self.address = address
        """Our packed IP address; b"" while it is unknown."""
        self._votes: RecentDict[bytes, bytes] = RecentDict(VOTES_MAX)

    def vote(self, own_endpoint: bytes, voter: bytes) -> bool:
        """Return whether our address has changed. `voter` is a node's endpoint."""
        ip = own_endpoint[:4] if len(own_endpoint) in {4, 6} else own_endpoint[:16]
        if len(ip) != len(voter) - 2 or is_exempt(ip):
            return False  # a neighbour behind the same router sees our private address
        self._votes[_network_of(voter)] = ip
        if ip == self.address:
            return False
        winner, votes = Counter(self._votes.values()).most_common(1)[0]
        if winner == self.address or votes < VOTES_MIN or 2 * votes <= len(self._votes):
            return False
        self.address = winner
        return True


def _network_of(voter: bytes) -> bytes:
    ip = voter[:-2]
    if is_exempt(ip):
        return ip
    return ip[:3] if len(ip) == 4 else ip[:6]
