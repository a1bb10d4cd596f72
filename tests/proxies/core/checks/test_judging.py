"""The protocol of judges: no proxy can forge an answer."""

from __future__ import annotations

import json
import random

import pytest

from lycosa.core.errors import BadProxy
from lycosa.proxies.core.checks.anonymity import SeenRequest
from lycosa.proxies.core.checks.judging import (
    FIELDS_MAX,
    JudgeAddress,
    decode_answer,
    encode_answer,
    make_page,
    parse_judge_address,
    parse_target,
    pin_of,
)

KEY, NONCE, OTHER = "k" * 32, "0123456789abcdef" * 2, "f" * 32
PIN = pin_of(bytes(range(32)))
SEEN = SeenRequest("203.0.113.9", (("host", "judge"), ("via", "1.1 ünïcode")), is_tls=True)


def test_addresses_survive_a_round_trip() -> None:
    for address in (
        JudgeAddress("203.0.113.1", 8300, KEY, 8301, PIN),
        JudgeAddress("[2001:db8::1]", 80, KEY),
        JudgeAddress("judge.example", 8300, KEY, 8301, PIN),
    ):
        assert parse_judge_address(address.url) == address
        assert KEY not in repr(address) + address.name


def test_the_pin_is_converted_to_the_format_of_libcurl() -> None:
    curl = JudgeAddress("a", 1, KEY, 2, PIN).curl_pin
    assert curl == "sha256//AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    assert JudgeAddress("a", 1, KEY).curl_pin == ""


@pytest.mark.parametrize(
    "text",
    [
        "http://judge.example:8300/",
        f"judge://{KEY}@judge.example/",
        "judge://judge.example:8300/",
        "judge://short@judge.example:8300/",
        f"judge://{KEY}@judge.example:8300/?tls=8301",
        f"judge://{KEY}@judge.example:8300/?pin={PIN}",
        f"judge://{KEY}@judge.example:8300/?pin=abc",
        f"judge://{KEY}@judge.example:8300/?tls=8301&pin=abc",
        f"judge://{KEY}@judge.example:8300/?tls=99999&pin={PIN}",
        f"judge://{KEY}@judge.example:port/",
        f"judge://{KEY}@[::1:8300/",
        "",
    ],
)
def test_the_error_for_an_invalid_address_hides_the_key(text: str) -> None:
    with pytest.raises(BadProxy, match="write judge://") as caught:
        parse_judge_address(text)
    assert KEY not in str(caught.value)


def test_a_judge_serves_only_clients_with_the_key() -> None:
    url = JudgeAddress("judge.example", 8300, KEY).ask("look", NONCE)
    assert url.startswith("http://judge.example:8300/look/")
    target = url.removeprefix("http://judge.example:8300")
    assert parse_target(target, KEY) == ("look", NONCE)
    assert parse_target(target, "x" * 32) is None
    for wrong in (target.replace("look", "page"), target.replace("0123", "3210"), target[:-1], target + "/", "/", ""):
        assert parse_target(wrong, KEY) is None, wrong
    assert parse_target(target[:-1] + "é", KEY) is None


def test_changed_answers_are_rejected() -> None:
    body = encode_answer(KEY, NONCE, SEEN)
    assert decode_answer(body, KEY, NONCE) == SEEN
    assert decode_answer(body, KEY, OTHER) is None, "an answer for another nonce"
    assert decode_answer(body, "x" * 32, NONCE) is None, "an answer of another judge"
    assert decode_answer(body.replace(b"203.0.113.9", b"198.51.100.7"), KEY, NONCE) is None
    assert decode_answer(body + b"<script>", KEY, NONCE) is None
    answer = json.loads(body)
    answer["signature"] = "é" * 64
    assert decode_answer(json.dumps(answer).encode(), KEY, NONCE) is None


def test_random_answers_are_rejected_without_an_error() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    body = encode_answer(KEY, NONCE, SEEN)
    for _ in range(2000):
        broken = bytearray(body)
        broken[rng.randrange(len(body))] = rng.randrange(256)
        found = decode_answer(bytes(broken[: rng.randint(0, 2 * len(body))]), KEY, NONCE)
        assert found in (None, SEEN), seed
    for forged in (b"", b"[" * 100_000, b"null", b'{"signature": "", "seen": ""}', b"\xff" * 9):
        assert decode_answer(forged, KEY, NONCE) is None


def test_the_length_of_an_answer_is_limited() -> None:
    seen = SeenRequest("1.2.3.4", tuple((f"x-{number}", "v" * 100_000) for number in range(1000)))
    found = decode_answer(encode_answer(KEY, NONCE, SeenRequest("1.2.3.4", seen.fields[:20])), KEY, NONCE)
    assert found is not None
    assert len(found.fields[0][1]) < 100_000
    assert len(json.loads(json.loads(encode_answer(KEY, NONCE, seen))["seen"])["fields"]) == FIELDS_MAX


def test_a_page_depends_on_nonce_and_key() -> None:
    assert make_page(KEY, NONCE) == make_page(KEY, NONCE)
    assert len({make_page(KEY, NONCE), make_page(KEY, OTHER), make_page("x" * 32, NONCE)}) == 3
    assert make_page(KEY, NONCE).startswith(b"<!doctype html>")
    assert b"</body>" in make_page(KEY, NONCE)
