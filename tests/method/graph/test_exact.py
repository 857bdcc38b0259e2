"""Rounds of block pairs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rpml.method.graph.exact import block_size, disjoint_rounds


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), unique=True))
def test_no_block_twice_in_a_round_and_no_pair_lost(pairs):
    rounds = disjoint_rounds(pairs)
    assert sorted(pair for turn in rounds for pair in turn) == sorted(pairs)
    for turn in rounds:
        used = [block for a, b in turn for block in {a, b}]
        assert len(used) == len(set(used))


def test_blocks_keep_to_the_memory_limit():
    sizes = [block_size(10**6, 256, limit) for limit in (2**20, 2**24, 2**28, 2**32)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] == 736
