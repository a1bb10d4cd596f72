"""The keys of one partition in Redis, and the version of their format.

Every key begins with the prefix of its partition (`worker.session.key_of`), whose hash tag puts all of them into one
slot of a cluster. Keys that exist once per host or per few hundred URLs are short, to save memory.

Numbers beyond 2^53 (fingerprints) and times are stored as text: a Lua number would lose digits.
"""

from __future__ import annotations

from enum import StrEnum

LAYOUT = 4
"""Incremented whenever keys or values change. Lycosa refuses a crawl with another layout."""

CLOSING = "closing"
"""The state of a segment that is being archived: it accepts only links from its own pages."""


DELETED_LAYOUT = 999_999_999
"""The layout of a crawl that is being deleted: every version of Lycosa refuses it."""


class Key(StrEnum):
    """The keys, without their prefix. To a key that ends in `|`, append the suffix that begins its docstring."""

    META = "m"
    """This name never changes: every version must be able to read the `layout` of a crawl.

    hash: `crawl`, the number of the crawl; `partitions`; `number` of this partition; `layout`; `spider`; `whole`, set
    once all partitions are created; `keep_done`; the policy; the counters `token`, `turn`, `ready`, `line`, `arrived`,
    `workers`, `cookies`; `wanted`, when a worker last got fewer leases than it asked for; `seen`, the time of the last
    call of any worker; `real`, when the server's clock was last noted, and `ahead`, by how much the crawl's time was
    ahead of it; `run_at`, when the run began; `item_at`, the time of its last item; `pages_at_item`, its pages until
    then; `expires_at` and `reviving`, see expiry.lua; `waits`, written when a commit waits for replicas; `floor`, see
    `refuse_rejoin` in membership.lua."""
    DESCRIPTION = "description"
    """string: the description of the crawl, like crawl.json in a state folder (in the first partition)."""
    MEMORY_PROBE = "memory_probe"
    """The script appends an empty string to this key, to find out whether a full server refuses writes. That creates no
    key."""
    SEEDS = "seeds"
    """zset: start URLs by their number (in the first partition)."""
    POSITIONS = "positions"
    """hash: WORKER/SINK -> committed position. The first partition decides; the others store copies."""
    COOKIES = "cookies"
    """hash: id of a shared cookie -> its jar and content (in the first partition)."""
    COOKIE_CHANGES = "cookie_changes"
    """zset: ids of shared cookies by the number of their last change (in the first partition)."""

    # Counts.
    COUNTS = "counts"
    """hash: STATE|SEGMENT -> number of records: queued, leased, delayed, done, dead; uncommitted (done, but not
    committed yet). `outgoing|` counts undelivered records in outboxes."""
    DONE_REASONS = "done_reasons"
    """hash: SEGMENT\\nREASON -> number of done records."""
    DEAD_REASONS = "dead_reasons"
    """hash: SEGMENT\\nREASON -> number of dead records."""

    # Records.
    SEGMENTS = "segments"
    """hash: segment -> its state (`SegmentState` or CLOSING)."""
    SEEN_COUNTS = "seen_counts"
    """hash: count|SEGMENT -> number of known fingerprints; sets|SEGMENT -> number of their sets."""
    SEEN = "s|"
    """SEGMENT|N, set: the N-th set of fingerprints of a segment, 64-bit numbers of 8 bytes each (an intset)."""
    QUEUE = "q|"
    """HOST|LANE, list: records of one host, segment and priority, in order of arrival. See `stamped` in records.lua."""
    LANES = "l|"
    """HOST, zset: the lanes in which the host has records, in the order in which they are served."""
    DELAYED = "delayed"
    """zset: STAMP|HOST\\nLANE\\nRECORD by the time at which the record is due."""
    DEAD = "dead|"
    """SEGMENT, zset: dead records, score 0, FINGERPRINT STAMP ROW without spaces (see `lanes`)."""
    DONE = "done|"
    """SEGMENT, zset: done records, like `DEAD`, if the crawl keeps them."""

    # Hosts: see hosts.lua.
    HOSTS = "hosts"
    """zset: all hosts, sorted by name."""
    HOST = "h|"
    """HOST, string: the scheduling state of a host, packed."""
    HOST_FACTS = "host_facts"
    """hash: host -> its robots.txt (at most 500 KiB), with its status, its time and its Crawl-delay."""
    READY = "ready"
    """zset: TURN|NAME of hosts and groups that may be contacted now, by the rank of their first segment.
    READY@ADDRESS: the hosts of one group."""
    WAITING = "waiting"
    """zset: hosts and groups with work, by the time at which they may be contacted. WAITING@ADDRESS: the hosts of one
    group."""
    CLAIMS = "claims"
    """CLAIMS|HOST, zset: CLAIM|WORKER of claims that wait for the host, in order of arrival. CLAIMS@ADDRESS, zset:
    hosts of the group that have claims, by the number of their first claim."""
    GROUP = "group|"
    """ADDRESS, string: the scheduling state that all hosts of one IP address share, packed like a host."""

    # Workers.
    WORKERS = "workers"
    """zset: workers by the time of their last call. The first partition decides which are alive."""
    SERIALS = "serials"
    """hash: worker -> number of its last exchange, or NEVER if it has expired."""
    WORKER_LIMITS = "worker_limits"
    """hash: worker -> the limits that it sent, packed; see limits.lua."""
    STARVED = "starved"
    """zset: workers by the time when they last got fewer leases than they asked for."""
    SHARED_LEASES = "shared_leases"
    """hash: starved worker -> leases that it got while others were starved."""
    RUN_STARTS = "run_starts"
    """hash: worker -> when its run began, which decides into which segments it may push (in the first partition)."""
    LEASES = "leases|"
    """WORKER, hash: token -> lease."""
    CLAIMED = "claimed|"
    """WORKER, hash: claim -> HOST while waiting, HOST\\nADDRESS once granted."""
    ACKED = "acked|"
    """WORKER, hash: token -> lease with its reason, for records that are done but not committed."""
    ACKED_COUNTS = "acked_counts|"
    """WORKER, hash: segment -> number of records in `ACKED`."""
    ACKED_LINKS = "acked_links|"
    """WORKER, list: links with dont_filter from pages in `ACKED`, packed as in an outbox. The commit queues them."""
    PREPARED = "prepared|"
    PREPARED_COUNTS = "prepared_counts|"
    PREPARED_LINKS = "prepared_links|"
    """WORKER: like the three `ACKED` keys, for a commit that is prepared here and decided in the first partition."""
    PREPARED_POSITIONS = "prepared_positions|"
    """WORKER, hash: the positions of the prepared commit."""
    PREPARED_COMMITS = "prepared_commits"
    """hash: worker -> number of its prepared commit."""
    PREPARED_SERVERS = "prepared_servers"
    """hash: worker -> the server on which the commit was prepared."""
    COMMITS = "commits"
    """hash: worker -> number of its last commit (in the first partition)."""
    EXPIRED = "expired"
    """hash: expired worker -> number of its last commit, until all other partitions have removed the worker (in the
    first partition)."""
    REFUSED = "refused"
    """zset: expired workers, which may not join here again, by the number in their id (in the other partitions)."""
    REPORTS = "reports"
    """hash: worker -> its last report, also of workers that have ended; see telemetry.lua."""
    ENDED = "ended"
    """zset: workers that have ended or expired, by the time of their end."""
    TOTALS = "totals"
    """hash: name -> sum over all workers, past and present."""
    RUN_TOTALS = "run_totals"
    """hash: the totals at the beginning of the run. A run begins when a worker joins, and no worker
    with another name is alive."""

    # Records on their way to other partitions: see outboxes.lua.
    OUTBOX = "outbox|"
    """PARTITION, list: records for that partition, including the latest delivered ones."""
    OUTBOX_LAST = "outbox_last"
    """hash: partition -> number of the last record for it."""
    OUTBOX_DELIVERED = "outbox_delivered"
    """hash: partition -> number of the last record that was delivered."""
    OUTBOX_SERVERS = "outbox_servers"
    """hash: partition -> the servers that numbered its records, in the order of the failovers. Each with the
    number of the last record that was delivered before it took over."""
    OUTBOX_RETAINED = "outbox_retained"
    """hash: partition -> which of the records delivered to it may be removed from the outbox; see `expired_upto`."""
    INBOX_LAST = "inbox_last"
    """hash: PARTITION|SERVER -> number of the last record delivered here from that partition and server."""


def shown_worker(worker: str) -> str:
    """NAME#SESSION#NUMBER -> NAME#NUMBER."""
    name, *_, number = worker.split("#") if "#" in worker else (worker, "")
    return f"{name}#{number}"
