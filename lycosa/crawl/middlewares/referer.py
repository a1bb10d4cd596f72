"""Says with each request that a page yields where it was found: the `Referer` header (`http/core/referrer.py`).

Which policy: `referrer_policy` in the meta of the request, else the page's `Referrer-Policy` header, else the setting.
A request that has the header keeps it. Start requests and plain links have none.
"""

from __future__ import annotations

import logging

from lycosa.core.errors import BadSetting
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results
from lycosa.http.core.referrer import POLICIES, Referrer, policy_of

log = logging.getLogger(__name__)

NAMED_MAX = 20
"""Unknown policies that are told."""


class Referer:
    """`policy` is for pages that name none. Raises `BadSetting`."""

    def __init__(self, policy: str = "scrapy-default") -> None:
        known = policy_of(policy)
        if known is None:
            raise BadSetting(f"the referrer policy is {policy!r}: write one of {', '.join(filter(None, POLICIES))}")
        self._policy = known
        self._unknown: set[str] = set()

    def process_results(self, response: Response, results: Results) -> Results:
        """Give the header to the requests that have none."""
        if not results.requests or not response.raw.status:  # 0: no page, a failure that an errback handled
            return results
        page = self._of_page(response)
        for request in results.requests:
            if request.has_header("Referer"):
                continue
            asked = request.get_meta("referrer_policy")
            found = page if asked is None else Referrer(self._known(str(asked)), response.url)
            value = found.to(request.url)
            if value:
                request.headers["Referer"] = value
        return results

    def _of_page(self, response: Response) -> Referrer:
        headers = response.raw.headers
        if not headers.may_have(b"referrer-policy") or "referrer-policy" not in headers:
            return Referrer(self._policy, response.url)
        return Referrer(self._known(", ".join(headers.getlist("referrer-policy"))), response.url)

    def _known(self, text: str) -> str:
        known = policy_of(text)
        if known is not None:
            return known
        if len(self._unknown) < NAMED_MAX and text not in self._unknown:
            self._unknown.add(text)
            log.warning("the referrer policy %.100r is not known: %s is used", text, self._policy)
        return self._policy
