"""What a spider's class may leave out (C7)."""

from __future__ import annotations

from lycosa import Spider
from lycosa.crawl.spiders.spider import domains_as_urls


class Plain(Spider):
    name = "plain"

    def parse(self, response):
        pass


def test_each_spider_has_its_own_list_of_start_urls() -> None:
    first, second = Plain(), Plain()
    first.start_urls.append("http://a.example/")
    assert first.start_urls == ["http://a.example/"]
    assert second.start_urls == []


def test_the_value_none_among_the_allowed_domains_does_not_count() -> None:
    class Some(Plain):
        allowed_domains = [None, ".a.example"]

    assert domains_as_urls(Some().allowed_domains) == ["http://a.example/"]
