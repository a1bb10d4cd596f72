"""Tokens: for one address, one infohash, and 5 to 10 minutes."""

from __future__ import annotations

import pytest

from lycosa.dht.core.tokens import SECRET_BYTES, TOKEN_BYTES, TokenIssuer

IP, INFOHASH = b"\1\2\3\4", b"h" * 20


def issuer() -> TokenIssuer:
    return TokenIssuer(b"s" * SECRET_BYTES)


def test_a_token_is_valid_for_the_address_and_infohash_it_was_issued_for():
    tokens = issuer()
    token = tokens.issue(IP, INFOHASH, 1000)
    assert len(token) == TOKEN_BYTES
    assert tokens.is_valid(token, IP, INFOHASH, 1000)
    assert not tokens.is_valid(token, b"\1\2\3\5", INFOHASH, 1000)
    assert not tokens.is_valid(token, IP, b"i" * 20, 1000)
    assert not tokens.is_valid(token[:-1], IP, INFOHASH, 1000)
    assert not tokens.is_valid(b"", IP, INFOHASH, 1000)


@pytest.mark.parametrize("issued_at", [0, 1, 299, 12_345.5])
def test_a_token_lives_for_5_to_10_minutes(issued_at: float):
    tokens = issuer()
    token = tokens.issue(IP, INFOHASH, issued_at)
    assert tokens.is_valid(token, IP, INFOHASH, issued_at + 300)
    assert not tokens.is_valid(token, IP, INFOHASH, issued_at + 600)


def test_the_key_changes_every_5_minutes():
    tokens = issuer()
    assert tokens.issue(IP, INFOHASH, 0) == tokens.issue(IP, INFOHASH, 299)
    assert len({tokens.issue(IP, INFOHASH, 300 * period) for period in range(10)}) == 10


def test_nodes_with_other_secrets_issue_other_tokens():
    assert issuer().issue(IP, INFOHASH, 0) != TokenIssuer(b"t" * SECRET_BYTES).issue(IP, INFOHASH, 0)
