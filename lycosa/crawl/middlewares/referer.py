"""Sets the `Referer` header of the requests found on a page, by a referrer policy (`http/core/referrer.py`).

The policy is `referrer_policy` in the meta of the request, else the page's `Referrer-Policy` header, else the setting.
A request that has a `Referer` header keeps it. Start requests and plain links get no `Referer`.
"""

from __future__ import annotations

import logging

from lycosa.core.errors import BadSetting
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results
from lycosa.http.core.referrer import POLICIES, Referrer, policy_of

log = logging.getLogger(__name__)

WARNINGS_MAX = 20


class Referer:
    """Adds the header. `policy` is the default for pages without a policy. Raises `BadSetting`."""

    def __init__(self, policy: str = "scrapy-default") -> None:
        known = policy_of(policy)
        if known is None:
            raise BadSetting(f"the referrer policy is {policy!r}: write one of {', '.join(filter(None, POLICIES))}")
        self._policy = known
        self._unknown: set[str] = set()

    def process_results(self, response: Response, results: Results) -> Results:
        if not results.requests or not response.raw.status:  # status 0: an errback handled a failure without a page
            return results
        page = self._of_page(response)
        for request in results.requests:
            if request.has_header("Referer"):
                continue
            policy = request.get_meta("referrer_policy")
            referrer = page if policy is None else Referrer(self._policy_or_default(str(policy)), response.url)
            value = referrer.to(request.url)
            if value:
                request.headers["Referer"] = value
        return results

    def _of_page(self, response: Response) -> Referrer:
        headers = response.raw.headers
        if not headers.may_have(b"referrer-policy") or "referrer-policy" not in headers:
            return Referrer(self._policy, response.url)
        return Referrer(self._policy_or_default(", ".join(headers.getlist("referrer-policy"))), response.url)

    def _policy_or_default(self, text: str) -> str:
        known = policy_of(text)
        if known is not None:
            return known
        if len(self._unknown) < WARNINGS_MAX and text not in self._unknown:
            self._unknown.add(text)
            log.warning("unknown referrer policy %.100r: using %s", text, self._policy)
        return self._policy
