from __future__ import annotations

import random
from itertools import pairwise

from lycosa.dht.core.endpoints import Contact, pack
from lycosa.dht.core.routing.maintenance import (
    JOIN_AGAIN_MAX_S,
    JOIN_AGAIN_MIN_S,
    OFFLINE_PING_SPACING_S,
    PING_SPACING_S,
    REFRESH_S,
    VERIFICATIONS_MAX,
    VERIFY_AGAIN_S,
    Chore,
    Maintenance,
    PingChore,
    SearchChore,
)
from lycosa.dht.core.routing.table import GOOD_S, RoutingTable

OWN_ID = bytes(20)


def contact(number: int) -> Contact:
    return Contact(random.Random(number).randbytes(20), pack(f"20.{number // 256}.{number % 256}.1", 1))


def table_of(count: int, now: float = 0.0) -> RoutingTable:
    table = RoutingTable(OWN_ID, now)
    for number in range(count):
        table.responded(contact(number), now)
    return table


def joined(table: RoutingTable, now: float = 0.0) -> Maintenance:
    """Return the maintenance of a node that has joined."""
    maintenance = Maintenance(random.Random(1).randbytes)
    maintenance.start(now)
    do(maintenance, table, now)
    maintenance.joined(table, now)
    return maintenance


def do(maintenance: Maintenance, table: RoutingTable, now: float, **options: bool) -> list[Chore]:
    return maintenance.chores(table, now, **{"reachable": True, "online": True} | options)


def run(maintenance: Maintenance, table: RoutingTable, until: float, **options: bool) -> list[tuple[float, Chore]]:
    """Return the chores with their times, until a time."""
    done = []
    while maintenance.next_timer <= until:
        now = maintenance.next_timer
        done += [(now, chore) for chore in do(maintenance, table, now, **options)]
        assert maintenance.next_timer > now
    return done


def test_a_node_joins_by_a_search_for_its_own_id():
    maintenance = Maintenance(random.Random(1).randbytes)
    maintenance.start(5.0)
    assert maintenance.next_timer == 5.0
    assert do(maintenance, table_of(0), 5.0) == [SearchChore(OWN_ID, join=True)]


def test_a_node_without_contacts_joins_again_at_growing_intervals():
    table, maintenance = table_of(0), joined(table_of(0))
    joins = []
    now = 0.0
    while now < 4000:
        now = maintenance.next_timer
        if SearchChore(OWN_ID, join=True) in do(maintenance, table, now):
            joins.append(now)
            maintenance.joined(table, now)
    pauses = [later - sooner for sooner, later in pairwise(joins)]
    assert joins[0] == JOIN_AGAIN_MIN_S
    assert pauses[0] == 2 * JOIN_AGAIN_MIN_S
    assert max(pauses) == JOIN_AGAIN_MAX_S


def test_a_contact_that_only_queried_us_is_pinged_once():
    table = table_of(9)
    maintenance = joined(table)
    for _ in range(3):
        maintenance.consider(contact(50), table, 1.0)
    assert [chore for _, chore in run(maintenance, table, 60.0)] == [PingChore(contact(50))]
    maintenance.consider(contact(50), table, 61.0)
    assert run(maintenance, table, 100.0) == []
    maintenance.consider(contact(50), table, VERIFY_AGAIN_S + 2.0)
    assert PingChore(contact(50)) in [chore for _, chore in run(maintenance, table, VERIFY_AGAIN_S + 10.0)]


def test_a_flood_of_unknown_nodes_is_verified_slowly_and_forgotten():
    table = table_of(9)
    maintenance = joined(table)
    for number in range(100, 1000):
        maintenance.consider(contact(number), table, 1.0)
    pings = run(maintenance, table, 500.0)
    assert len(pings) <= VERIFICATIONS_MAX
    assert all(later - sooner >= 0.5 for (sooner, _), (later, _) in pairwise(pings))


def test_a_contact_that_the_table_would_not_take_is_not_verified():
    table = table_of(9)
    maintenance = joined(table)
    maintenance.consider(contact(3), table, 1.0)
    assert run(maintenance, table, 60.0) == []


def test_questionable_contacts_are_pinged_one_after_the_other():
    table = table_of(9)
    maintenance = joined(table)
    pings = [(when, chore) for when, chore in run(maintenance, table, GOOD_S + 30) if isinstance(chore, PingChore)]
    assert pings[0][0] == GOOD_S
    assert [round(later - sooner, 6) for (sooner, _), (later, _) in pairwise(pings)] == [PING_SPACING_S] * (
        len(pings) - 1
    )


def test_pings_are_rare_while_no_datagram_arrives():
    table = table_of(9)
    maintenance = joined(table)
    done = run(maintenance, table, GOOD_S + 300, online=False)
    pings = [when for when, chore in done if isinstance(chore, PingChore)]
    assert len(pings) <= 1 + 300 / OFFLINE_PING_SPACING_S


def searches(done: list[tuple[float, Chore]]) -> list[float]:
    return [when for when, chore in done if isinstance(chore, SearchChore) and not chore.join]


def keep_fresh(table: RoutingTable, until: float) -> None:
    for each in list(table.contacts()):
        table.responded(each, until)


def test_a_reachable_node_refreshes_only_unchanged_buckets():
    table = table_of(60)
    maintenance = joined(table)
    keep_fresh(table, REFRESH_S - 10)
    assert searches(run(maintenance, table, REFRESH_S)) == []
    assert searches(run(maintenance, table, 2 * REFRESH_S - 11)) == []
    assert len(searches(run(maintenance, table, 2 * REFRESH_S + 100))) == len(table.changes())


def test_an_unreachable_node_refreshes_all_buckets():
    table = table_of(60)
    maintenance = joined(table)
    run(maintenance, table, REFRESH_S + 100, reachable=False)
    keep_fresh(table, 2 * REFRESH_S - 10)
    done = searches(run(maintenance, table, 2 * REFRESH_S + 200, reachable=False))
    assert len(done) == len(table.changes())


def test_a_node_with_another_id_joins_again():
    table = table_of(20)
    maintenance = joined(table)
    maintenance.moved(5.0)
    assert SearchChore(OWN_ID, join=True) in do(maintenance, table, 5.0)
