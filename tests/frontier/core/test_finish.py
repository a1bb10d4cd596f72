"""The finish barrier (C7), round by round; that it is right is shown in `tests/frontier/sim/test_barrier*.py`."""

from __future__ import annotations

import pytest

from lycosa.frontier.core.finish import PartitionStatus, RoundResult, TerminationDetector

QUIET = {0: PartitionStatus(0, 4), 1: PartitionStatus(0, 2)}


def test_two_quiet_rounds_in_which_nothing_arrived_are_the_end():
    barrier = TerminationDetector(2)
    assert barrier.round(QUIET) is RoundResult.AGAIN
    assert barrier.round(dict(reversed(QUIET.items()))) is RoundResult.FINISHED


def test_work_between_two_quiet_rounds_begins_them_again():
    barrier = TerminationDetector(2)
    said = [barrier.round(each) for each in (QUIET, QUIET | {1: PartitionStatus(1, 2)}, QUIET, QUIET)]
    assert said == [RoundResult.AGAIN, RoundResult.WORK, RoundResult.AGAIN, RoundResult.FINISHED]


def test_an_arrival_makes_the_second_round_a_first_one():
    barrier = TerminationDetector(2)
    later = QUIET | {0: PartitionStatus(0, 5)}
    said = [barrier.round(each) for each in (QUIET, later, later)]
    assert said == [RoundResult.AGAIN, RoundResult.AGAIN, RoundResult.FINISHED]


def test_a_partition_that_lost_its_memory_is_no_end():
    barrier = TerminationDetector(2)
    barrier.round(QUIET)
    assert barrier.round(QUIET | {0: PartitionStatus(0, 0)}) is RoundResult.AGAIN


@pytest.mark.parametrize("readings", [{}, {0: PartitionStatus(0, 4)}, QUIET | {2: PartitionStatus(0, 0)}])
def test_a_round_is_whole(readings):
    with pytest.raises(ValueError, match="one reading of each of 2 partitions"):
        TerminationDetector(2).round(readings)
