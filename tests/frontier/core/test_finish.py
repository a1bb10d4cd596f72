"""Termination detection (C7), round by round; `tests/frontier/sim/test_barrier*.py` show that it is correct."""

from __future__ import annotations

import pytest

from lycosa.frontier.core.finish import PartitionStatus, RoundResult, TerminationDetector

QUIET = {0: PartitionStatus(0, 4), 1: PartitionStatus(0, 2)}


def test_two_quiet_rounds_without_arrivals_end_the_crawl():
    detector = TerminationDetector(2)
    assert detector.round(QUIET) is RoundResult.AGAIN
    assert detector.round(dict(reversed(QUIET.items()))) is RoundResult.FINISHED


def test_after_a_round_with_work_two_quiet_rounds_are_needed_again():
    detector = TerminationDetector(2)
    results = [detector.round(each) for each in (QUIET, QUIET | {1: PartitionStatus(1, 2)}, QUIET, QUIET)]
    assert results == [RoundResult.AGAIN, RoundResult.WORK, RoundResult.AGAIN, RoundResult.FINISHED]


def test_a_quiet_round_with_an_arrival_counts_as_the_first_of_two():
    detector = TerminationDetector(2)
    later = QUIET | {0: PartitionStatus(0, 5)}
    results = [detector.round(each) for each in (QUIET, later, later)]
    assert results == [RoundResult.AGAIN, RoundResult.AGAIN, RoundResult.FINISHED]


def test_a_partition_whose_counter_was_reset_does_not_end_the_crawl():
    detector = TerminationDetector(2)
    detector.round(QUIET)
    assert detector.round(QUIET | {0: PartitionStatus(0, 0)}) is RoundResult.AGAIN


@pytest.mark.parametrize("statuses", [{}, {0: PartitionStatus(0, 4)}, QUIET | {2: PartitionStatus(0, 0)}])
def test_a_round_needs_every_partition_once(statuses):
    with pytest.raises(ValueError, match="one status of each of 2 partitions"):
        TerminationDetector(2).round(statuses)
