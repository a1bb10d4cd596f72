"""BEP 33: the test vector, unions of filters, and estimates of their numbers of addresses."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from lycosa.dht.core.scrape_filter import ESTIMATE_MAX, ScrapeFilter

VECTOR = bytes.fromhex(
    """
    F6C3F5EA A07FFD91 BDE89F77 7F26FB2B FF37BDB8 FB2BBAA2 FD3DDDE7 BACFFF75 EE7CCBAE FE5EEDB1 FBFAFF67 F6ABFF5E
    43DDBCA3 FD9B9FFD F4FFD3E9 DFF12D1B DF59DB53 DBE9FA5B 7FF3B8FD FCDE1AFB 8BEDD7BE 2F3EE71E BBBFE93B CDEEFE14
    8246C2BC 5DBFF7E7 EFDCF24F D8DC7ADF FD8FFFDF DDFFF7A4 BBEEDF5C B95CE81F C7FCFF1F F4FFFFDF E5F7FDCB B7FD79B3
    FA1FC77B FE07FFF9 05B7B7FF C7FEFEFF E0B8370B B0CD3F5B 7F2BD93F EB4386CF DD6F7FD5 BFAF2E9E BFFFFEEC D67ADBF7
    C67F17EF D5D75EBA 6FFEBA7F FF47A91E B1BFBB53 E8ABFB57 62ABE8FF 237279BF EFBFEEF5 FFC5FEBF DFE5ADFF ADFEE1FB
    737FFFFB FD9F6AEF FEEE76B6 FD8F72EF
    """
)


def filter_of(first: str, count: int) -> ScrapeFilter:
    found = ScrapeFilter()
    for n in range(count):
        found.insert((ip_address(first) + n).packed)
    return found


def test_the_filter_equals_the_test_vector_of_bep_33():
    found = filter_of("192.0.2.0", 256)
    found.unite(bytes(filter_of("2001:DB8::", 0x3E8)))
    assert bytes(found) == VECTOR
    assert found.estimate() == pytest.approx(1224.9308, abs=1e-3)


@pytest.mark.parametrize("count", [0, 1, 10, 500, 3000])
def test_an_estimate_is_near_the_count(count: int):
    assert filter_of("10.0.0.0", count).estimate() == pytest.approx(count, rel=0.06, abs=0.5)


def test_a_full_filter_has_the_largest_estimate():
    assert ScrapeFilter(b"\xff" * 256).estimate() == ESTIMATE_MAX


def test_the_same_address_counts_once():
    found = filter_of("10.0.0.0", 100)
    found.unite(bytes(filter_of("10.0.0.0", 100)))
    assert bytes(found) == bytes(filter_of("10.0.0.0", 100))


def test_a_filter_of_another_size_is_refused():
    with pytest.raises(ValueError, match="256"):
        ScrapeFilter(bytes(255))
