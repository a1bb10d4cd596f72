from __future__ import annotations

import json
import re
from html import unescape
from urllib.parse import quote

import pytest

from lycosa.search.site.torrents.views import piece_size
from tests.search.site.torrents.sample_torrents import HASHES


def search(site, query: str, **more: object) -> str:
    extra = "".join(f"&{name}={quote(str(value))}" for name, value in more.items())
    return site.get(f"/search?q={quote(query)}{extra}").text


def names(page: str) -> list[str]:
    return [
        unescape(re.sub("<[^>]+>", "", found)) for found in re.findall(r'<h2 dir="auto"><a [^>]+>(.*?)</a></h2>', page)
    ]


def test_home_shows_the_number_of_torrents_their_types_and_the_newest_torrents(site):
    page = site.get("/").text
    assert "50 torrents" in page
    assert '<a href="/search?type=video">Video <span class="weight">3</span></a>' in page
    assert names(page)[0] == "Common album 44"
    assert len(names(page)) == 10


def test_a_mistyped_query_is_answered_with_a_spelling_that_finds_more(site):
    page = search(site, "graet shwo 1080p -flac", type="video")
    assert names(page) == []
    page = search(site, "graet show 1080p", type="video")
    assert '<a href="/search?q=great+show+1080p&amp;type=video">great show 1080p</a>' in page
    assert "Did you mean" not in search(site, "great show 1080p")
    for path in ("/api/search", "/search.json"):
        assert json.loads(site.get(f"{path}?q=comon").text)["suggestion"] == "common"


def test_results_show_marked_names_and_facts(site):
    page = search(site, "show 1080p")
    assert names(page) == ["Great.Show.S01E01.1080p.x264"]
    assert "1 result " in page
    assert "Great.<b>Show</b>.S01E01.<b>1080p</b>.x264" in page
    assert re.search(r'<a href="/torrent/[0-9a-f]{40}\?q=show\+1080p" rel="nofollow">|q=show%201080p', page)
    assert "1.0 GB" in page
    assert "12 seeding" in page
    assert "English" in page
    assert f'href="magnet:?xt=urn:btih:{HASHES[0]}&amp;dn=Great.Show.S01E01.1080p.x264"' in page
    assert 'value="show 1080p"' in page, "the query stays in the search box"


def test_a_file_that_matches_is_shown_if_the_name_does_not(site):
    page = search(site, "needle")
    assert '<li dir="auto"><b>needle</b>.pdf</li>' in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "<img" not in page


@pytest.mark.parametrize(
    ("query", "more", "found"),
    [
        ("show s01e02", {}, ["Great.Show.S01E02.2160p.HEVC"]),
        ("great show 4k h265", {}, ["Great.Show.S01E02.2160p.HEVC"]),
        ("英雄", {}, ["英雄传 全集"]),
        ("", {"lang": "zh"}, ["英雄传 全集"]),
        ("", {"type": "video", "sort": "date", "order": "asc"}, ["Great.Show.S01E01.1080p.x264"]),
        ("", {"seeders": ">10"}, ["Great.Show.S01E01.1080p.x264"]),
        ("type:text", {}, ["=cmd()|'x'!A0 control"]),
        ("", {"date": "2026-11-05", "type": "video"}, ["英雄传 全集"]),
    ],
)
def test_words_filters_and_order_find_torrents(site, query, more, found):
    assert [name.replace("\x01", "") for name in names(search(site, query, **more))][: len(found)] == found


def test_types_and_languages_are_counted_and_linked(site):
    page = search(site, "great OR common OR 英雄")
    facets = page.partition('<nav class="facets" aria-label="Type">')[2].partition("</nav>")[0]
    assert re.sub("<[^>]+>", " ", facets).split() == ["Type", "Audio", "45", "Video", "3"]
    of_all = search(site, "").partition('<nav class="facets" aria-label="Type">')[2].partition("</nav>")[0]
    assert re.sub("<[^>]+>", " ", of_all).split()[:2] == ["Type", "(about)"], "the numbers may be minutes old"
    chosen = search(site, "great OR common OR 英雄", type="video")
    assert '<a href="/search?q=great+OR+common+OR+%E8%8B%B1%E9%9B%84" class="chosen" aria-current="true">' in chosen


def test_results_are_paged(site):
    page = search(site, "common")
    assert ("45 results" in page, len(names(page))) == (True, 20)
    assert '<a class="turn" rel="next" href="/search?q=common&amp;page=2">' in page
    assert len(names(search(site, "common", page=3))) == 5
    assert "There is no page 4" in search(site, "common", page=4)


def test_the_error_in_a_query_is_explained(site):
    for query, message in (("-show", "only excludes"), ("*", "has no word")):
        answer = site.get(f"/search?q={quote(query)}")
        assert (answer.status, message in answer.text) == (400, True)
    answer = site.get("/search?size=big")
    assert (answer.status, "Size &#39;big&#39; is not a valid filter: write size:" in answer.text) == (400, True)


def test_an_invalid_filter_is_searched_as_words_and_explained(site):
    message = "Age &#39;old&#39; is not a valid filter: write age:&lt;7, in days."
    assert message in search(site, "common age:old")
    assert message not in search(site, "common age:<7")
    [told] = json.loads(site.get("/search.json?q=age:old").text)["mistakes"]
    assert told == "age 'old' is not a valid filter: write age:<7, in days"


def test_a_torrent_is_shown_with_its_files(site):
    page = site.get(f"/torrent/{HASHES[1]}?q=show+srt").text
    assert '<h1 dir="auto">Great.<b>Show</b>.S01E02.2160p.HEVC</h1>' in page
    assert '<span class="folder">subs</span> <span class="weight">1 file</span>' in page
    assert '<span class="file" dir="auto">en.<b>srt</b></span> <span class="weight">500 MB</span>' in page
    assert "not counted yet" in page
    assert f"<code>{HASHES[1]}</code>" in page
    assert "Found for <q>show srt</q>" in page
    other = site.get(f"/torrent/{HASHES[1]}?q=type:video").text
    assert "Found for" not in other
    assert "Back to the results" in other, "a query without words marks nothing"
    assert names(page) == ["Great.Show.S01E01.1080p.x264"], "other releases of this title"


def test_hostile_names_are_shown_as_text(site):
    page = site.get(f"/torrent/{HASHES[3]}").text
    assert "<img" not in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(2)&lt;" in page


def test_unknown_torrents_are_404_and_other_forms_of_an_infohash_redirect(site):
    for infohash in ("0" * 40, "zz", "0" * 41, HASHES[0][:-1] + "g"):
        assert site.get(f"/torrent/{infohash}").status == 404
    answer = site.get(f"/torrent/{HASHES[0].upper()}")
    assert (answer.status, answer.headers["location"]) == (301, f"/torrent/{HASHES[0]}")


def test_browsing_leads_to_searches(site):
    page = site.get("/browse").text
    assert '<a href="/search?type=audio">Audio</a>' in page
    assert '<a href="/search?lang=zh">Chinese</a>' in page
    assert '<span class="weight">0</span>' not in page, "days without a torrent are not listed"


@pytest.mark.parametrize(
    ("size_bytes", "shown"), [(65_536, "64 KiB"), (4 * 1024**2, "4 MiB"), (1_536 * 1024, "1,536 KiB"), (100, "100 B")]
)
def test_sizes_of_pieces_are_powers_of_two(size_bytes, shown):
    assert piece_size(size_bytes) == shown


def test_statistics_have_charts(site):
    page = site.get("/statistics").text
    assert page.count("<rect") > 30
    assert re.search(r'<th scope="row">100 MB to 1 GB</th>.*?<td class="number">50</td>', page, re.DOTALL)


def test_the_form_of_filters_keeps_the_ascending_order(site):
    hidden = '<input type="hidden" name="order" value="asc">'
    assert hidden in site.get("/search?q=common&sort=size&order=asc").text
    assert hidden not in site.get("/search?q=common&sort=size").text


def test_the_form_of_filters_shows_what_is_chosen_in_the_language_of_the_visitor(site):
    for _ in range(2):
        page = site.get("/search?q=common&type=audio&size=3GB").text
        assert '<option value="audio" selected>Audio</option>' in page
        assert '<option value="video">Video</option>' in page
        assert '<option value="3GB" selected>3GB</option>' in page
        page = site.request("GET", "/search?q=common&type=video", Accept_Language="zh").text
        assert '<option value="video" selected>视频</option>' in page
        assert '<option value="audio">音频</option>' in page


def test_folders_and_other_spellings_are_marked(site):
    page = site.get(f"/torrent/{HASHES[1]}?q=show+x265+subs").text
    assert all(text in page for text in ("Great.<b>Show</b>.S01E02.2160p.<b>HEVC</b>", "<b>subs</b></span>"))
    assert "Found for" in page
    assert '<li dir="auto"><b>subs</b>/en.srt</li>' in site.get("/search?q=show+subs").text
