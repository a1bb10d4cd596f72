"""The encoding of a page is the one a browser would choose (C8: wrong charset)."""

from __future__ import annotations

import codecs
import re
import time

import pytest
import webencodings
from hypothesis import given
from hypothesis import strategies as st

from lycosa.html import charset
from lycosa.html.charset import PRESCAN_MAX, SAMPLE_MAX, detect_encoding

LATIN = "Grüße".encode("latin-1")


@pytest.mark.parametrize(
    ("body", "content_type", "encoding"),
    [
        (b"\xef\xbb\xbfa", "text/html; charset=latin1", "utf-8"),
        (b"\xff\xfea\0", "text/html; charset=utf-8", "utf-16-le"),
        (b"\xfe\xff\0a", "", "utf-16-be"),
        (b"<meta charset=utf-8>", "text/html;charset=KOI8-R", "koi8-r"),
        (LATIN, 'text/html; boundary=x; Charset = "utf-8" ', "utf-8"),
        (b"<meta charset=koi8-r>", "text/html; charset=nonsense", "koi8-r"),
        (b"<meta charset=koi8-r>", "text/html; charset=", "koi8-r"),
        (b"<meta charset=koi8-r>", "text/html; nocharset=utf-8", "koi8-r"),
        (b"a", "text/html; charset=utf-16", "utf-16-le"),
        (b"<meta charset=koi8-r>" + LATIN, "", "koi8-r"),
        (LATIN, "text/html", "windows-1252"),
        ("Grüße".encode(), "", "utf-8"),
        (b"", "", "utf-8"),
    ],
)
def test_bom_wins_over_header_over_page_over_bytes(body: bytes, content_type: str, encoding: str) -> None:
    assert detect_encoding(body, content_type) == encoding


@pytest.mark.parametrize(
    ("label", "encoding"),
    [
        ("latin1", "windows-1252"),
        ("ISO-8859-1", "windows-1252"),
        (" us-ascii\t", "windows-1252"),
        ("gb2312", "gb18030"),
        ("Shift_JIS", "cp932"),
        ("euc-kr", "cp949"),
        ("big5", "big5hkscs"),
        ("iso-8859-9", "cp1254"),
        ("iso-8859-8-i", "iso8859-8"),
        ("x-user-defined", "windows-1252"),
        ("hz-gb-2312", "ascii"),
        ("utf8", "utf-8"),
        ("utf-7", "utf-8"),
        ("rot13", "utf-8"),
        ("base64", "utf-8"),
        ("\u0130so", "utf-8"),
    ],
)
def test_labels_are_those_of_whatwg(label: str, encoding: str) -> None:
    assert detect_encoding(b"a", f'text/html; charset="{label}"') == encoding


def test_every_label_maps_to_a_python_codec() -> None:
    assert len(webencodings.LABELS) == 228
    for encoding in map(charset.codec_of, webencodings.LABELS):
        assert b"<a>".decode(encoding, "replace").startswith("<" if "16" not in encoding else "")
        assert codecs.lookup(encoding)._is_text_encoding


@pytest.mark.parametrize(
    "head",
    [
        "<meta charset=koi8-r>",
        "<META CHARSET='KOI8-R' />",
        '<meta/charset = "koi8-r"/>',
        "<meta name=x charset=koi8-r charset=utf-8>",
        "<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>",
        "<meta content='text/html;charset = \"koi8-r\" x' http-equiv=content-type>",
        "<meta content=\"charset='koi8-r'\" http-equiv=content-type>",
        "<meta http-equiv=content-type content='charset=utf-8' charset=koi8-r>",
        "<!-- <meta charset=utf-8> --><meta charset=koi8-r>",
        "<!--><meta charset=koi8-r>",
        "<!doctype html><?php ?></><html lang=x><metal charset=utf-8></p a=b><meta charset=koi8-r>",
        "<p title='<meta charset=utf-8>'><meta charset=koi8-r>",
        "<meta charset=nonsense><meta charset=koi8-r>",
        "<meta charset><meta charset=koi8-r>",
        "<meta content='charset=utf-8'><meta charset=koi8-r>",
        "<meta http-equiv=content-type content='text/html'><meta charset=koi8-r>",
        "<< <1 <meta charset=koi8-r>",
        "<?xml version='1.0' encoding='koi8-r'?><p>",
        '<?xml encoding = "koi8-r"?>',
        "<?xml encoding='utf-8'?><meta charset=koi8-r>",
    ],
)
def test_encoding_declared_in_the_page(head: str) -> None:
    assert detect_encoding(head.encode(), "text/html") == "koi8-r"


@pytest.mark.parametrize(
    "head",
    [
        "<!-- <meta charset=koi8-r>",
        "<!-- <meta charset=koi8-r> --",
        "<meta charset=koi8-r",
        "<meta charset='koi8-r>",
        "<meta charset=\"koi8-r>'<p>",
        "<! <meta charset=koi8-r",
        "<metacharset=koi8-r>",
        "charset=koi8-r",
        "<meta content='charset=koi8-r'>",
        "<meta http-equiv=content-type content='charset=\"koi8-r'>",
        " <?xml encoding='koi8-r'?>",
        "<?xml encoding='nonsense'?>",
        " " * (PRESCAN_MAX - 20) + "<meta charset=koi8-r>",
    ],
)
def test_text_that_does_not_declare_an_encoding(head: str) -> None:
    assert detect_encoding(head.encode(), "") == "utf-8"


COMMENT = "<!--" + "x" * 2_000 + "-->"
LATE = "<p>" + "text " * 2_000


@pytest.mark.parametrize(
    ("page", "encoding"),
    [
        (f"<head>{COMMENT}<meta charset=koi8-r>", "koi8-r"),
        (f"<head>{LATE}<meta charset=koi8-r>", "koi8-r"),
        (f'<head>{LATE}<META HTTP-EQUIV="Content-Type" CONTENT="text/html; CHARSET=KOI8-R">', "koi8-r"),
        (f"<head>{LATE}<meta charset=nonsense><meta charset=koi8-r>", "koi8-r"),
        (f"<head>{LATE}<meta charset=utf-16>", "utf-8"),
        (f"<head>{LATE}<meta charSet=koi8-r>", "koi8-r"),
        (f"<head>{'x' * 4_070}<meta charset=koi8-r>", "koi8-r"),
        ("<style><!-- </style><meta charset=koi8-r>", "koi8-r"),
        (f"<head>{LATE}<!-- <meta charset=koi8-r> -->", "windows-1252"),
        (f"<head>{LATE}<script>'<meta charset=koi8-r>'</script>", "windows-1252"),
        (f"<head>{LATE}<textarea><meta charset=koi8-r></textarea>", "windows-1252"),
    ],
)
def test_late_declaration_counts_as_in_browsers_that_then_parse_the_page_again(page: str, encoding: str) -> None:
    assert detect_encoding(page.encode() + LATIN, "text/html") == encoding


def test_declared_utf_16_is_ignored_in_a_page_readable_as_ascii() -> None:
    assert detect_encoding(b"<meta charset=utf-16be>" + LATIN, "") == "utf-8"
    assert detect_encoding(b"<meta charset=x-user-defined>", "") == "windows-1252"


def test_character_cut_by_the_end_of_the_sample_is_no_error() -> None:
    assert detect_encoding(b"a" + "ü".encode() * SAMPLE_MAX, "") == "utf-8"
    assert detect_encoding(b"a" * SAMPLE_MAX + LATIN, "") == "utf-8"
    assert detect_encoding("ü".encode()[:1], "") == "windows-1252"


@pytest.mark.parametrize(
    "piece", [b"<", b"<!--", b"<a ", b"<meta ", b"<meta a='", b"<meta = ", b"<?xml ", b"charset", b"="]
)
def test_hostile_heads_are_read_in_linear_time(piece: bytes) -> None:
    started = time.process_time()
    for _ in range(20):
        detect_encoding(b"charset" + piece * PRESCAN_MAX, "text/html;" + "charset " * 10_000)
    assert time.process_time() - started < 5.0


HEADS = st.lists(
    st.sampled_from(
        [
            b"<meta ",
            b"charset",
            b"=",
            b"'",
            b'"',
            b"utf-16",
            b" ",
            b">",
            b"<!--",
            b"-->",
            b"<?xml encoding",
            b"/",
            b"\xff",
        ]
    )
)


@given(st.binary() | HEADS.map(b"".join), st.text() | st.text().map("text/html; charset=".__add__))
def test_any_bytes_have_a_codec(body: bytes, content_type: str) -> None:
    encoding = detect_encoding(body, content_type)
    assert isinstance(body.decode(encoding, "replace"), str)


PIECES = [
    *(
        "<!DOCTYPE html>",
        "<?xml version='1.0'?>",
        "<html lang=en>",
        "<head>",
        "<title>",
        "</title>",
        "<link rel=x href='a>b'/>",
    ),
    *(
        "<meta",
        "<meta name=a content='b'>",
        "<meta name=charset>",
        "<META xcharset=1>",
        "<base/href=x>",
        "<title-x>",
        "<!-->",
        "<!--",
    ),
    *(
        "-->",
        ">",
        "/>",
        " ",
        "\v",
        "\n",
        '"',
        "'",
        "5' <b",
        "=",
        " charset=",
        "charset='koi8-r'",
        ' charset="utf-16"',
        " charset=l2",
    ),
    *(
        ' http-equiv="Content-Type"',
        " http-equiv=refresh",
        ' content="text/html; charset=sjis"',
        " content=charset=big5",
    ),
]


@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_fast_pattern_agrees_with_the_full_prescan(pieces: list[str]) -> None:
    head = "".join(pieces).encode()
    found = charset._from_page(head)
    usual, charset._USUAL = charset._USUAL, re.compile(rb"\Zx")
    try:
        assert found == charset._from_page(head)
    finally:
        charset._USUAL = usual


@pytest.mark.parametrize(
    "head",
    [
        '<!doctype html>\n<html lang="en"><head><meta charset="koi8-r">',
        "<html><title>Bob's 5\" disks</title><meta name='a' content=\"b\"><meta charset=koi8-r />",
        '<?xml version="1.0"?><link rel="x"/><meta http-equiv="Content-Type" content="text/html; charset=koi8-r">',
    ],
)
def test_usual_beginnings_match_the_fast_pattern(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charset, "_prescan", lambda head: pytest.fail("the slow way"))
    assert detect_encoding(head.encode(), "") == "koi8-r"
