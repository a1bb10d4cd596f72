"""What clients of the gateway say of the proxies they had, since nobody sees a status inside of a tunnel.

    {"lease": "5f0c-1a", "status": 403}                                      what the site answered
    {"lease": "5f0c-1a", "outcome": "site", "reason": "soft ban", "retry_after": 60}      what the client makes of it
    {"session": "cart7", "site": "shop.example", "status": 200}              the lease of a session

`outcome` is a word of `Blame`: none, nobody, miss, site, proxy.
"""

from __future__ import annotations

import msgspec

from lycosa.core.errors import BadMessage
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome, judge

REPORT_MAX = 4_096
"""Bytes of a report."""

REASON_MAX = 100
TOLD = tuple(blame for blame in Blame if blame is not Blame.UNFIT)
"""What clients may say. That a proxy is unfit takes it from everybody at once: that is for checks."""


class ClientReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As above."""

    lease: str = ""
    session: str = ""
    site: str = ""
    status: int | None = None
    outcome: Blame | None = None
    reason: str = ""
    retry_after: float | None = None

    def judged(self) -> Outcome:
        """Return what it says of the proxy."""
        if self.outcome is not None:
            reason = "".join(each for each in self.reason if each.isprintable())[:REASON_MAX]
            return Outcome(self.outcome, reason or f"reported: {self.outcome}", self.retry_after)
        wait = {} if self.retry_after is None else {"retry-after": f"{self.retry_after:.0f}"}
        return judge(self.status or 0, wait, b"")


def read_report(body: bytes) -> ClientReport:
    """Return a report. Raises `BadMessage`, which says what to write."""
    try:
        report = msgspec.json.decode(body, type=ClientReport)
    except msgspec.DecodeError as wrong:
        raise BadMessage(f"the report cannot be read: {wrong}") from None
    except RecursionError:
        raise BadMessage("the report is nested too deeply") from None
    if not report.lease and not (report.session and report.site):
        raise BadMessage('which lease? Write {"lease": ID}, or {"session": WORD, "site": SITE}')
    is_answer = report.status is not None and 100 <= report.status <= 599
    if report.outcome not in TOLD and not (report.outcome is None and is_answer):
        raise BadMessage('what came? Write "status": 100 to 599, or "outcome": ' + ", ".join(TOLD))
    if report.retry_after is not None and not 0 <= report.retry_after <= 86_400:
        raise BadMessage('"retry_after" is in seconds, 0 to 86400')
    return report
