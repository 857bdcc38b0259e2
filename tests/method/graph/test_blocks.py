"""Rounds of block pairs."""

from __future__ import annotations

import pytest

from rpml.method.graph.heaps import block_pairs, block_size, run_rounds


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_no_block_twice_in_a_round_and_no_pair_lost(count):
    rounds, turn = [], []

    def finished(share):
        rounds.append(list(turn))
        turn.clear()
        assert share == len(rounds) / count

    tasks = [block_pairs(r, count) for r in range(count)]
    run_rounds(lambda a, b: turn.append((a, b)), tasks, progress=finished)
    pairs = [(a, b) for a in range(count) for b in range(a, count)]
    assert sorted(pair for turn in rounds for pair in turn) == pairs
    for turn in rounds:
        used = [block for a, b in turn for block in {a, b}]
        assert len(used) == len(set(used))


def test_blocks_keep_to_the_memory_limit():
    sizes = [block_size(10**6, 256, limit) for limit in (2**20, 2**24, 2**28, 2**32)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] == 736
