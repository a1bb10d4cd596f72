"""Pickled items that were written when the classes of Lycosa were in other modules can still be read."""

from __future__ import annotations

import base64
import pickle
import pickletools
from collections.abc import Callable
from typing import Any

import pytest

import lycosa
from lycosa.frontier.core.model import Extras, RecordKind, UrlRecord
from lycosa.http.core.model import Validators
from lycosa.queues.item_codec import CorruptItem, item_codec

PICKLE = item_codec("pickle")

FIELDS = {"x-y": "z", "content-type": "application/x-www-form-urlencoded"}
RECORD = UrlRecord(
    1, 7, "http://a.example/", "http://a.example", extras=Extras("POST"), validators=Validators("e", "m", 1.0)
)
PAGE: dict[str, Any] = {
    "url": "http://a.example/",
    "final_url": "http://a.example/",
    "status": 200,
    "content_type": "text/html",
    "title": "t",
    "headings": ["h"],
    "text": "x",
    "lang": "en",
    "out_links": 1,
    "fetched_at": "2026-11-22T00:00:00Z",
    "depth": 0,
    "fingerprint": "0" * 16,
}

# [Response(..., request=FormRequest(...)), PageItem(...)], with the module names from before each system had a folder.
OLD_PICKLE = (
    "fCQD%0{{R300018D2x_td1G&LVJ>BEXK8L_E^=jaaBpsNWsC??Wpi+EZgXXnlPQ6HD2xMgVRwuXY<XjEb73xHZ*pZWZEs{{Y?NpKlPQ5teJG3rb#"
    "iQ!j1g#bbZ|N^FJUfacwudDY-KN$j0SUbVRUtKOUR4|Xk}q!WpZ<j6Kr{7Z*yTTV{dY0E@)+8WMy)5j0Z?%VPs`;bCW57PJJkh2VZ7sWo%?~lunE"
    "UUvgo0Lk3|wAYu&)b%tV$1Y&Pwd6Yu|c#H>hX>Dn4XLD!)j0aR{ZE0?2bCW1X0000000000M*si-0000007n1-00000002h-000000000-000000"
    "0000bb*WlX>g1Hl#C2$baZfEc4cyNX>V?528;@GX?kT}VtI6Bb4vk?2Xkv_aByX0iHrwuVRCe7VQh(v32b3>Wo~16Uvo~32XbX*b#rB8Xa;qLVvG"
    "lJWpQ<7b99UoY<XjEb73xJZf9w3WiDoKa&2>r3r25pZBk`%b!BsOlPQ5teJG3yUt?llYj<ICXLC-B2w!MrVPs`;bBq&gd1G&LVJ>5Da%C=ZWpQ<7"
    "b99UeNM&JUWpYhnaFZ#4PJL(ueJG3rcrAI116VCti~)Lvj0|IMZggdCbS-pwaAk}PLvL<$Wo~pWRC#b^j3HrgaBOK~VRUJ4ZZCK(cXxL!W^ZzBEp"
    ">8iWo~0{WMyQAb#sPdj0In9WprVEi~)F*O969e1w#X2Jz|UqV_|G;Vqs%zPK*a*Z*Oa9Wphr93uJF@bYEs^Y;<LEiHrzkZewp`X>MnX1$A_0EjWw"
    "^WpZ+2VPk7fj0I+FVP|ucU5o~8Wprq7WQ+t*Pg7Kk3T|(7Ut(ouZ*pZv0000000000j0SLFa$#+APK*d}a%pdJX>@r@0E`B5Wn*u0WM~152~~1zQ"
    "e|Ura%7VzO94v<XakH8XmoUNIxjC_E@gOOZE$R5Xa-9FO8`dz000000000>080R90gMDoX>MebO8|vZO8|*z0gMJkcyw}MbCW2H1W->?RDDALXa;"
    "?KXa;?Z1$A_0EjV3h26R$r0gMV(VQgt+VRUbDbCZk#WsCuBM?dfY000000EbeEbW&&nXajYIVvGuAWpra`Wn^DrbVmRH00000003wLXai^nU3Fq;"
    "0gMPxVP|DYbY*RmC};y{153z^33O$6bT4RhZETDIbX|-AXklmvi~?nDO96}&GB7eWEio}IGBQ*!Fgh?WIxsL=O8|@zFfcGMFfcGMFfcGMFfcGMbW"
    "&w5"
)

OLD_NAMES = {
    "lycosa.app.crawl": "run_crawl",
    "lycosa.app.live": "Crawl",
    "lycosa.core.curl": "BadCurl",
    "lycosa.core.formdata": "FormFile BadForm",
    "lycosa.core.model": "PageItem Response Timings UrlRecord Kind Extras Validators FrontierStats",
    "lycosa.core.proxies.outcome": "Blame Outcome Rule",
    "lycosa.core.proxies.proxy": "Proxy",
    "lycosa.core.request": "Request HeaderMap",
    "lycosa.engine.failure": "Failure",
    "lycosa.crawl.spiders.link_extractor": "_Names _InTree _InDocument",
    "lycosa.engine.forms": "FormRequest",
    "lycosa.engine.items": "Item Field",
    "lycosa.engine.jsonrequest": "JsonRequest",
    "lycosa.engine.linkextractor": "LinkExtractor Link _Names _InTree _InDocument",
    "lycosa.engine.loader": "ItemLoader",
    "lycosa.engine.media.files": "FilesPipeline",
    "lycosa.engine.media.images": "ImagesPipeline ImageException",
    "lycosa.engine.media.store": "FileException",
    "lycosa.engine.response": "Response",
    "lycosa.engine.spider": "Spider",
    "lycosa.engine.spiders.crawlspider": "CrawlSpider Rule",
    "lycosa.engine.spiders.feeds": "CSVFeedSpider XMLFeedSpider",
    "lycosa.engine.spiders.sitemap": "SitemapSpider",
    "lycosa.engine.stats": "Snapshot Summary",
    "lycosa.engine.statscollector": "StatsCollector",
}


RENAMED = {
    ("lycosa.core.model", "Kind"): "RecordKind",
    ("lycosa.core.model", "Response"): "HttpResponse",
    ("lycosa.core.proxies.outcome", "Rule"): "OutcomeRule",
    **{
        (module, name): renamed
        for module in ("lycosa.crawl.spiders.link_extractor", "lycosa.engine.linkextractor")
        for name, renamed in {
            "_InDocument": "_XPathSearch",
            "_InTree": "_LexborSearch",
            "_Names": "_NameFilter",
        }.items()
    },
}


def test_a_pickle_with_old_module_names_is_read():
    response, page = PICKLE.unpack(base64.b85decode(OLD_PICKLE))
    assert type(response) is lycosa.Response
    assert (response.url, response.status, response.headers["a"], response.body) == (
        "http://a.example/",
        200,
        "b",
        b"x",
    )
    request = response.request
    assert type(request) is lycosa.FormRequest
    assert (request.method, request.body, request.meta, request.headers) == ("POST", b"a=b", {"x": 1}, FIELDS)
    assert request.record == RECORD
    assert type(request.record.kind) is RecordKind
    assert page == lycosa.PageItem(**PAGE)


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in OLD_NAMES.items() for name in names.split()]
)
def test_an_old_name_is_found(module: str, name: str):
    found = PICKLE.unpack(b"c%s\n%s\n." % (module.encode(), name.encode()))
    assert found.__name__ == RENAMED.get((module, name), name)


def test_an_unknown_name_is_looked_up_where_the_pickle_says():
    assert PICKLE.unpack(PICKLE.pack(pickle.PicklingError)) is pickle.PicklingError
    with pytest.raises(CorruptItem, match=r"No module named 'lycosa\.engine'"):
        PICKLE.unpack(b"clycosa.engine.nothing\nThing\n.")


def names_in(packed: bytes) -> set[str]:
    """Return the names of Lycosa in a pickle of protocol 2."""
    named = {arg for code, arg, _ in pickletools.genops(packed) if code.name == "GLOBAL"}
    return {name for name in named if name.startswith("lycosa")}


REQUEST = "lycosa Request"
HEADERS = "lycosa.http.core.request HeaderMap"
RECORDED = {
    "lycosa.frontier.core.model Extras",
    "lycosa.frontier.core.model RecordKind",
    "lycosa.frontier.core.model UrlRecord",
    "lycosa.http.core.model Validators",
}
FETCHED = {"lycosa.core.headers Headers", "lycosa.http.core.model HttpResponse", "lycosa.http.core.model Timings"}
EXTRACTOR = {
    "lycosa LinkExtractor",
    "lycosa.crawl.spiders.link_extractor _LexborSearch",
    "lycosa.crawl.spiders.link_extractor _NameFilter",
}


def leased_request() -> lycosa.Request:
    request = lycosa.Request("http://a.example/", headers={"x-y": "z"})
    request.record = RECORD
    return request


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (leased_request, {REQUEST, HEADERS, *RECORDED}),
        (lambda: lycosa.FormRequest("http://a.example/", formdata={"a": "b"}), {"lycosa FormRequest", HEADERS}),
        (lambda: lycosa.JsonRequest("http://a.example/", data={"a": "b"}), {"lycosa JsonRequest", HEADERS}),
        (lambda: lycosa.Response("http://a.example/"), {"lycosa Response", REQUEST, *FETCHED}),
        (lycosa.Item, {"lycosa Item"}),
        (lycosa.Field, {"lycosa Field"}),
        (lambda: lycosa.PageItem(**PAGE), {"lycosa PageItem"}),
        (lambda: lycosa.FormFile("name", b""), {"lycosa FormFile"}),
        (lambda: lycosa.DropItem("why"), {"lycosa DropItem"}),
        (lambda: lycosa.Summary(True, False, False, lycosa.Snapshot()), {"lycosa Summary", "lycosa Snapshot"}),
        (lambda: lycosa.Rule(lycosa.LinkExtractor()), {"lycosa Rule", *EXTRACTOR}),
    ],
)
def test_names_in_pickles_do_not_change(make: Callable[[], Any], names: set[str]):
    """A name that is moved or renamed anyway needs a line in `MOVED`, and here."""
    packed = pickle.dumps(make(), protocol=2)
    assert names_in(packed) == names
    assert type(PICKLE.unpack(packed)) is type(make())
