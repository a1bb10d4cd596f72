"""The keys of one partition in Redis, and the version of their format.

Every key begins with the prefix of its partition (`worker.session.key_of`), whose hash tag puts all of them into one
slot of a cluster. Names that stand once for a host or a few hundred URLs are short, because they cost memory.
Numbers beyond 2^53 (fingerprints) and times are stored as text: a Lua number would lose digits.
"""

from __future__ import annotations

from enum import StrEnum

LAYOUT = 3
"""Raised whenever keys or values change: a crawl that another version began is refused."""


class Key(StrEnum):
    """Keys without the prefix. Those that end in `|` are followed by what their comment says, `@ADDRESS` likewise."""

    # The crawl and its clock.
    META = "m"
    """The one name that never changes: by its `layout` a crawl of another version is recognised.

    hash: `crawl`, its number; `partitions`; `number` of this partition; `layout`; `spider`; `whole`, set once all
    partitions were made; `keep_done`; the policy; the counters `token`, `turn`, `ready`, `line`, `arrived`, `workers`,
    `cookies`; `wanted`, when leases were wanted last; `seen`, the last sign of life of any worker; `real` and `ahead`,
    the clock; `waits`, written when a commit waits for replicas; `floor`, see `refuse_rejoin` in membership.lua."""
    DESCRIPTION = "description"
    """string: what crawl.json says of a state (in the first partition)."""
    MEMORY_PROBE = "memory_probe"
    """Never there: the script tries on it whether a full server refuses writes."""
    SEEDS = "seeds"
    """zset: start URLs by their number (in the first partition)."""
    POSITIONS = "positions"
    """hash: WORKER/SINK -> committed position. The first partition decides, the others know them, too."""
    COOKIES = "cookies"
    """hash: shared cookies, in the first partition: which -> its jar and content."""
    COOKIE_CHANGES = "cookie_changes"
    """zset: shared cookies by the number of their last change."""

    # Counts.
    COUNTS = "counts"
    """hash: STATE|SEGMENT -> how many: queued, leased, delayed, done, dead; uncommitted, the done ones whose commit is
    still to come. `outgoing|` counts records in outboxes."""
    DONE_REASONS = "done_reasons"
    """hash: SEGMENT\\nREASON -> how many."""
    DEAD_REASONS = "dead_reasons"
    """hash: likewise."""

    # Records.
    SEGMENTS = "segments"
    """hash: segment -> its state."""
    SEEN_COUNTS = "seen_counts"
    """hash: count|SEGMENT and sets|SEGMENT: how many fingerprints are known, in how many sets."""
    SEEN = "s|"
    """SEGMENT|N, set: the N-th set of fingerprints of a segment, 64-bit numbers of 8 bytes each (an intset)."""
    QUEUE = "q|"
    """HOST|LANE, list: records of one host, segment and priority, first come, first served; see `stamped`."""
    LANES = "l|"
    """HOST, zset: the lanes in which the host has records, in the order in which they are served."""
    DELAYED = "delayed"
    """zset: records by the time they are due, as STAMP|HOST\\nLANE\\nRECORD."""
    DEAD = "dead|"
    """SEGMENT, zset: dead records, score 0, FINGERPRINT STAMP ROW without spaces (see `lanes`)."""
    DONE = "done|"
    """SEGMENT, zset: done records likewise, in a crawl that keeps them."""

    # Hosts: see hosts.lua.
    HOSTS = "hosts"
    """zset: all hosts, in the order of their names."""
    HOST = "h|"
    """HOST, string: the politeness of a host, packed."""
    HOST_FACTS = "host_facts"
    """hash: host -> its robots.txt, at most 500 KiB, and what it asks for."""
    READY = "ready"
    """zset: hosts and groups that may be contacted now, as TURN|NAME by the rank of their segment. READY@ADDRESS: the
    hosts of one group."""
    WAITING = "waiting"
    """zset: hosts and groups with work by the time of their next turn. WAITING@ADDRESS: the hosts of one group."""
    CLAIMS = "claims"
    """CLAIMS|HOST, zset: claims that wait for the host, CLAIM|WORKER in the order in which they came. CLAIMS@ADDRESS,
    zset: hosts of the group that have claims, by the number of their first claim."""
    GROUP = "group|"
    """ADDRESS, string: the limits that all hosts of one IP address share, packed like a host."""

    # Workers.
    WORKERS = "workers"
    """zset: workers by their last sign of life. The first partition decides which are alive."""
    SERIALS = "serials"
    """hash: worker -> number of its last exchange, NEVER for one that was given up."""
    WORKER_LIMITS = "worker_limits"
    """hash: worker -> the limits that it wants, packed; see limits.lua."""
    STARVED = "starved"
    """zset: workers by the time when they last got fewer leases than they asked for."""
    SHARED_LEASES = "shared_leases"
    """hash: starved worker -> leases that it got while others were starved."""
    LEASES = "leases|"
    """WORKER, hash: token -> lease."""
    CLAIMED = "claimed|"
    """WORKER, hash: claim -> HOST of one that waits, HOST\\nADDRESS of one that was granted."""
    ACKED = "acked|"
    """WORKER, hash: token -> lease with its reason, of records that are done and not committed."""
    ACKED_COUNTS = "acked_counts|"
    """WORKER, hash: how many of these each segment has."""
    ACKED_LINKS = "acked_links|"
    """WORKER, list: links found on these that may be duplicates, as in an outbox: queued with the commit."""
    PREPARED = "prepared|"
    PREPARED_COUNTS = "prepared_counts|"
    PREPARED_LINKS = "prepared_links|"
    """WORKER: the same three for a commit that is prepared here and decided in the first partition."""
    PREPARED_POSITIONS = "prepared_positions|"
    """WORKER, hash: the positions of that commit."""
    PREPARED_COMMITS = "prepared_commits"
    """hash: worker -> number of that commit."""
    COMMITS = "commits"
    """hash: worker -> number of its last commit (in the first partition)."""
    EXPIRED = "expired"
    """hash: workers that were given up -> their last commit, until all partitions know (in the first partition)."""
    REFUSED = "refused"
    """zset: workers that may not join here any more, by their number (in the other partitions)."""
    REPORTS = "reports"
    """hash: worker -> its last report, also of workers that have ended; see telemetry.lua."""
    ENDED = "ended"
    """zset: workers that have ended or were given up, by that time."""
    TOTALS = "totals"
    """hash: name -> sum over all workers there ever were."""

    # Records on their way to other partitions: see outboxes.lua.
    OUTBOX = "outbox|"
    """PARTITION, list: records for another partition, among them the last ones that were delivered there."""
    OUTBOX_LAST = "outbox_last"
    """hash: partition -> number of the last record for it."""
    OUTBOX_DELIVERED = "outbox_delivered"
    """hash: partition -> number of the last record that was delivered."""
    OUTBOX_SERVERS = "outbox_servers"
    """hash: partition -> the servers that numbered its records, in the order of their failovers, each with the last
    number before its own."""
    OUTBOX_RETAINED = "outbox_retained"
    """hash: partition -> what of its outbox need not be kept any more; see `expired_upto`."""
    INBOX_LAST = "inbox_last"
    """hash: PARTITION|SERVER -> number of the last record that was delivered here."""
