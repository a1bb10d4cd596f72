"""Forms (C1): encoded as browsers do it, the same bytes for the same fields."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesParser
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.html.forms import MULTIPART, PLAIN, BadForm, FormFile, encode_form, encode_query, fields_of, has_files


def parts_of(body: bytes, content_type: str) -> list[Message]:
    message = BytesParser().parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    return message.get_payload()


def test_fields_may_be_a_dict_or_pairs():
    pairs = [("a", "1"), ("b", "2"), ("b", "3"), ("c", None), ("d", None)]
    assert fields_of({"a": "1", "b": ["2", "3"], "c": None, "d": []}) == pairs
    assert fields_of([("a", "1"), ("b", ("2", "3")), ("c", None), ("d", ())]) == pairs
    assert fields_of(iter([("n", 1), ("f", FormFile("x", b""))])) == [("n", 1), ("f", FormFile("x", b""))]


@pytest.mark.parametrize("wrong", [123, "a=1", ("a",), [1], [("a", 1, 2)]])
def test_invalid_formdata_is_refused(wrong):
    with pytest.raises(BadForm, match="a dict or a list of"):
        fields_of(wrong)


def test_characters_that_the_encoding_lacks_become_references():
    assert encode_query([("price", "£ 100"), ("€", "€")], "latin-1") == "price=%A3+100&%26%238364%3B=%26%238364%3B"
    assert encode_query([(b"\xb5 one", b"two*~"), ("n", 7), ("none", None)]) == "%B5+one=two*%7E&n=7"


@given(st.lists(st.tuples(st.text(), st.text())))
def test_encoded_query_can_be_parsed_again(fields):
    assert parse_qsl(encode_query(fields), keep_blank_values=True) == [
        (name.encode("utf-8", "xmlcharrefreplace").decode(), value.encode("utf-8", "xmlcharrefreplace").decode())
        for name, value in fields
    ]


def test_multipart_body_carries_fields_and_files():
    fields = [("a", "1"), ('quo"te\r\n', "ü"), ("up", FormFile("b.txt", b"\0\xff\r\n--", "text/x-b")), ("none", None)]
    assert has_files(fields)
    body, content_type = encode_form(fields, MULTIPART)
    parts = parts_of(body, content_type)
    assert [part.get_payload(decode=True) for part in parts] == [b"1", "ü".encode(), b"\0\xff\r\n--"]
    assert b'name="quo%22te%0D%0A"' in body
    assert parts[2].get_filename() == "b.txt"
    assert parts[2].get_content_type() == "text/x-b"
    assert encode_form(fields, MULTIPART) == (body, content_type)
    assert encode_form(fields[:1], MULTIPART)[1] != content_type


def test_plain_body_has_a_line_for_each_field():
    assert encode_form([("a", "1 2"), ("b", FormFile("f", b"no"))], PLAIN) == (b"a=1 2\r\nb=f\r\n", "text/plain")
