"""What the engine needs from the outside, as Protocols. One contract test per port in `tests/contracts/`.

    frontier.py  Frontier FrontierOperations       fetching.py  Resolver Fetcher
    storing.py   Sink KeyStore HttpCacheStore Index SharedCookies   queue.py  Queue QueueLease
    proxies.py  ProxyPool

Times are unix seconds. An adapter turns every error of its driver into one of `core.errors`. Everything is imported
from here: `from lycosa.ports import Frontier`.
"""

from lycosa.ports.fetching import Accept, Fetcher, Into, Resolver
from lycosa.ports.frontier import Frontier, FrontierOperations
from lycosa.ports.proxies import Explained, Lent, ProxyPool, ProxyView, TargetView
from lycosa.ports.queue import Queue, QueueLease, ShutDown
from lycosa.ports.storing import HttpCacheStore, Index, KeyStore, SharedCookies, Sink

__all__ = [
    "Accept",
    "Explained",
    "Fetcher",
    "Frontier",
    "FrontierOperations",
    "HttpCacheStore",
    "Index",
    "Into",
    "KeyStore",
    "Lent",
    "ProxyPool",
    "ProxyView",
    "Queue",
    "QueueLease",
    "Resolver",
    "SharedCookies",
    "ShutDown",
    "Sink",
    "TargetView",
]
