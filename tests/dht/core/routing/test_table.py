from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.dht.core.endpoints import Contact, pack
from lycosa.dht.core.ids import distance
from lycosa.dht.core.routing.table import FAILURES_MAX, GOOD_S, K, RoutingTable

OWN_ID = bytes(20)
LATER = GOOD_S + 1.0


def contact(number: int, first: int = 0x80, ip: str = "") -> Contact:
    """Return a contact whose id begins with this byte. Each contact is in another network."""
    return Contact(bytes([first, number]) + bytes(18), pack(ip or f"20.{number // 256}.{number % 256}.1", 6881))


def full_table(**options: object) -> RoutingTable:
    """Return a table whose first bucket, of ids from 0x80 on, is full; the own bucket has one contact."""
    table = RoutingTable(OWN_ID, 0.0, **options)
    table.responded(contact(100, first=1), 0.0)
    for number in range(K):
        table.responded(contact(number), float(number) / 10)
    return table


def fail(table: RoutingTable, failing: Contact, now: float, times: int = FAILURES_MAX) -> None:
    for _ in range(times):
        table.failed(failing, now)


def test_a_newcomer_to_a_bucket_of_good_contacts_is_discarded():
    table = full_table()
    assert table.responded(contact(50), 1.0) is None
    assert contact(50) not in table


def test_a_bad_contact_is_replaced_at_once():
    table = full_table()
    fail(table, contact(3), 1.0)
    assert table.responded(contact(50), 1.0) is None
    assert contact(50) in table
    assert contact(3) not in table


def test_a_newcomer_waits_while_the_least_recently_heard_contact_is_pinged_twice():
    table = full_table()
    assert table.responded(contact(50), LATER) == contact(0)
    assert contact(50) not in table
    assert table.failed(contact(0), LATER + 10) == contact(0)
    assert table.failed(contact(0), LATER + 20) is None
    assert contact(0) not in table
    assert contact(50) in table


def test_while_contacts_answer_the_next_questionable_contact_is_pinged_until_all_are_good():
    table = full_table()
    pinged = [table.responded(contact(50), LATER)]
    while pinged[-1] is not None:
        pinged.append(table.responded(pinged[-1], LATER + len(pinged)))
    assert pinged == [*(contact(number) for number in range(K)), None]
    assert contact(50) not in table


def test_several_newcomers_cause_one_ping_at_a_time():
    table = full_table()
    assert table.responded(contact(50), LATER) == contact(0)
    assert table.responded(contact(51), LATER) is None


def test_a_ping_that_was_not_sent_is_requested_again():
    table = full_table()
    table.responded(contact(50), LATER)
    table.unchecked(contact(0))
    assert table.responded(contact(51), LATER) == contact(0)


def test_a_bad_contact_that_answers_is_good_again():
    table = full_table()
    fail(table, contact(3), 1.0)
    assert contact(3) not in table.closest_good(contact(3).id, 20, 1.0)
    table.responded(contact(3), 2.0)
    assert contact(3) in table.closest_good(contact(3).id, 20, 2.0)


def test_a_query_of_a_bad_contact_does_not_make_it_good():
    table = full_table()
    fail(table, contact(3), 1.0)
    assert table.queried(contact(3), 2.0)
    assert contact(3) not in table.closest_good(contact(3).id, 20, 2.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (contact(1), Contact(contact(2).id, pack("20.0.1.1", 9))),
        (contact(1), Contact(contact(1).id, pack("20.9.9.9", 1))),
        (Contact(b"a" * 20, pack("2400::1", 1)), Contact(b"b" * 20, pack("2400::2", 2))),
        (contact(1), contact(2, ip="20.0.1.77")),
        (Contact(b"a" * 20, pack("2400:0:0:1::1", 1)), Contact(b"b" * 20, pack("2400:0:0:2::1", 1))),
    ],
    ids=["address", "id", "/64", "/24", "/48"],
)
def test_one_party_has_one_contact(one: Contact, other: Contact):
    table = RoutingTable(OWN_ID, 0.0)
    table.responded(one, 0.0)
    assert not table.would_take(other, 0.0)
    table.responded(other, 0.0)
    assert list(table.contacts()) == [one]
    fail(table, one, 1.0)
    table.responded(other, 1.0)
    assert list(table.contacts()) == [other]


def test_a_local_network_may_have_several_contacts():
    table = RoutingTable(OWN_ID, 0.0, is_local=lambda endpoint: endpoint[0] == 127)
    for number in range(1, 5):
        table.responded(contact(number, ip=f"127.0.0.{number}"), 0.0)
    assert len(table) == 4
    table.validate()


def test_a_contact_that_answers_with_another_id_is_evicted_at_once():
    table = full_table()
    table.renamed(contact(3).endpoint, b"x" * 20)
    assert contact(3) not in table


def test_a_secure_id_replaces_an_insecure_id_in_a_full_bucket():
    table = full_table(is_secure=lambda each: each.id[1] != 5)
    assert table.would_take(contact(50), 1.0)
    table.responded(contact(50), 1.0)
    assert contact(50) in table
    assert contact(5) not in table


@pytest.mark.parametrize("is_newcomer_secure", [False, True])
def test_a_secure_id_is_not_replaced_by_another_id(is_newcomer_secure: bool):
    table = full_table(is_secure=lambda each: each.id[1] < 50 or is_newcomer_secure)
    assert table.responded(contact(50), 1.0) is None
    assert contact(50) not in table


def test_our_own_id_is_no_contact():
    table = RoutingTable(OWN_ID, 0.0)
    table.responded(Contact(OWN_ID, pack("20.0.0.1", 1)), 0.0)
    assert len(table) == 0


def test_restored_contacts_are_questionable_until_they_answer():
    table = RoutingTable(OWN_ID, 0.0)
    table.restore([contact(1), contact(2)], 0.0)
    assert table.closest_good(OWN_ID, 8, 0.0) == []
    assert table.closest(OWN_ID, 8, 0.0) == [contact(1), contact(2)]
    assert table.questionable(0.0) in {contact(1), contact(2)}
    table.responded(contact(2), 1.0)
    assert table.closest_good(OWN_ID, 8, 1.0) == [contact(2)]


def test_bad_contacts_are_not_saved():
    table = full_table()
    fail(table, contact(3), 1.0)
    assert contact(3) not in table.save()
    assert len(table.save()) == K


def test_the_contacts_stay_when_our_own_id_changes():
    table = full_table()
    before = set(table.contacts())
    table.rebase(b"\xff" * 20, 5.0)
    table.validate()
    assert set(table.contacts()) == before


def test_an_answer_in_compact_form_omits_a_contact_that_turned_questionable_or_bad():
    table = full_table()
    target = contact(0).id
    assert contact(0).endpoint in table.closest_compact(target, 1.0)
    for number in range(1, K):
        table.queried(contact(number), 800.0)
    assert contact(0).endpoint not in table.closest_compact(target, LATER)
    assert contact(1).endpoint in table.closest_compact(target, LATER)
    fail(table, contact(1), LATER)
    assert contact(1).endpoint not in table.closest_compact(target, LATER)


@pytest.mark.parametrize("index", range(3))
def test_target_in_returns_an_id_in_the_range_of_the_bucket(index: int):
    table = RoutingTable(b"\x5a" * 20, 0.0)
    chance = random.Random(index)
    for number in range(200):
        table.responded(contact(number, first=chance.randrange(256)), 0.0)
    targets = [table.target_in(index, chance.randbytes(20)) for _ in range(50)]
    shared = {160 - distance(each, table.own_id).bit_length() for each in targets}
    last = index == len(table.changes()) - 1
    assert min(shared) == index
    assert last or shared == {index}


steps = st.lists(
    st.tuples(
        st.sampled_from(["responded", "queried", "failed", "renamed", "unchecked", "rebase"]),
        st.integers(0, 60),
        st.integers(0, 3),
        st.floats(0, 400),
    ),
    max_size=120,
)


@given(steps=steps, own=st.binary(min_size=20, max_size=20))
def test_whatever_happens_the_indexes_agree_and_the_closest_contacts_are_right(steps: list, own: bytes):
    table = RoutingTable(own, 0.0, is_secure=lambda each: each.id[1] % 2 == 0)
    now = 0.0
    for verb, number, variant, pause in steps:
        now += pause
        node_id = random.Random(number).randbytes(20)
        each = Contact(node_id if variant else own[:19] + node_id[:1], pack(f"20.{number % 7}.{number}.{variant}", 1))
        if verb == "renamed":
            table.renamed(each.endpoint, node_id[::-1])
        elif verb == "rebase":
            table.rebase(bytes([number]) * 20, now)
        elif verb == "unchecked":
            table.unchecked(each)
        else:
            getattr(table, verb)(each, now)
        table.validate()
    target = random.Random(len(steps)).randbytes(20)
    good = [each for each in table.contacts() if each in table.closest_good(each.id, 1, now)]
    nearest = sorted(good, key=lambda each: distance(each.id, target))[:K]
    assert table.closest_good(target, K, now) == nearest
    compact = table.closest_compact(target, now)
    assert {compact[at : at + 26] for at in range(0, len(compact), 26)} == {each.id + each.endpoint for each in nearest}
