"""Reports about proxies by clients of the gateway, because the gateway cannot see the status inside a tunnel.

    {"lease": "5f0c-1a", "status": 403}                                      the status of the site
    {"lease": "5f0c-1a", "outcome": "site", "reason": "soft ban", "retry_after": 60}      the client's own verdict
    {"session": "cart7", "site": "shop.example", "status": 200}              for the lease of a session

`outcome` is a value of `Blame`: none, nobody, miss, site or proxy.
"""

from __future__ import annotations

import msgspec

from lycosa.core.errors import BadMessage
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome, judge

REPORT_MAX = 4_096
"""In bytes."""

REASON_MAX = 100
REPORTABLE = tuple(blame for blame in Blame if blame is not Blame.UNFIT)
"""Only checks may report UNFIT, because it makes a proxy dead for all clients."""


class ClientReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A report from a client of the gateway."""

    lease: str = ""
    session: str = ""
    site: str = ""
    status: int | None = None
    outcome: Blame | None = None
    reason: str = ""
    retry_after: float | None = None

    def to_outcome(self) -> Outcome:
        if self.outcome is not None:
            reason = "".join(each for each in self.reason if each.isprintable())[:REASON_MAX]
            return Outcome(self.outcome, reason or f"reported: {self.outcome}", self.retry_after)
        wait = {} if self.retry_after is None else {"retry-after": f"{self.retry_after:.0f}"}
        return judge(self.status or 0, wait, b"")


def read_report(body: bytes) -> ClientReport:
    """Decode a report. Raises `BadMessage`."""
    try:
        report = msgspec.json.decode(body, type=ClientReport)
    except msgspec.DecodeError as error:
        raise BadMessage(f"the report cannot be read: {error}") from None
    except RecursionError:
        raise BadMessage("the report is nested too deeply") from None
    if not report.lease and not (report.session and report.site):
        raise BadMessage('the report names no lease: write {"lease": ID}, or {"session": WORD, "site": SITE}')
    has_status = report.status is not None and 100 <= report.status <= 599
    if report.outcome not in REPORTABLE and not (report.outcome is None and has_status):
        raise BadMessage('the report has no result: write "status": 100 to 599, or "outcome": ' + ", ".join(REPORTABLE))
    if report.retry_after is not None and not 0 <= report.retry_after <= 86_400:
        raise BadMessage('"retry_after" is in seconds, 0 to 86400')
    return report
