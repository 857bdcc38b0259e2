"""Compiled loops of the neighbor search."""

import numpy as np

from rpml.runtime.compiled import compiled

# Scores that are compared at a time: a count of those above a bar is vectorized, unlike a maximum.
# Unsigned, like the column counters: a signed index may count from the end, and checking for that
# would prevent vectorization.
_LANES = np.uint64(32)


@compiled()
def push(vals, idx, value, index):  # type: ignore[no-untyped-def]
    """Replace the worst entry of a heap by (value, index).

    The root is the worst entry: the smallest value and, among equal values, the largest index.
    """
    k = vals.shape[0]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= k:
            break
        right = child + 1
        if right < k and (
            vals[right] < vals[child] or (vals[right] == vals[child] and idx[right] > idx[child])
        ):
            child = right
        if vals[child] > value or (vals[child] == value and idx[child] < index):
            break
        vals[at] = vals[child]
        idx[at] = idx[child]
        at = child
    vals[at] = value
    idx[at] = index


@compiled()
def push_rows(scores, half, rows, cols, vals, idx, start, stop):  # type: ignore[no-untyped-def]
    """Push scores[r, c] - half[c] to the heap vals[r], idx[r], for r in start..stop.

    `rows` and `cols` are the indices of the block's rows and columns in the data, `half` the half
    squared norms of the columns. A row is never pushed to its own heap.
    """
    width = np.uint64(scores.shape[1])
    for r in range(start, stop):
        me = rows[r]
        bar = vals[r, 0]
        line = scores[r]
        c0 = np.uint64(0)
        while c0 < width:
            c1 = min(c0 + _LANES, width)
            above = np.int32(0)
            for c in range(c0, c1):
                above += np.int32(line[c] - half[c] >= bar)
            if above:
                for c in range(c0, c1):
                    value = line[c] - half[c]
                    better = value > bar or (value == bar and cols[c] < idx[r, 0])
                    if better and cols[c] != me:
                        push(vals[r], idx[r], value, cols[c])
                        bar = vals[r, 0]
            c0 = c1


@compiled()
def push_columns(scores, half, rows, vals, idx, start, stop):  # type: ignore[no-untyped-def]
    """Push scores[r, c] - half[r] to the heap vals[c], idx[c], for c in start..stop.

    Since distances are symmetric, one product serves the rows and the columns of a block.
    """
    bars = vals[:, 0].copy()
    last = np.uint64(stop)
    for r in range(scores.shape[0]):
        shift = half[r]
        line = scores[r]
        c0 = np.uint64(start)
        while c0 < last:
            c1 = min(c0 + _LANES, last)
            above = np.int32(0)
            for c in range(c0, c1):
                above += np.int32(line[c] - shift >= bars[c])
            if above:
                for c in range(c0, c1):
                    value = line[c] - shift
                    if value > bars[c] or (value == bars[c] and rows[r] < idx[c, 0]):
                        push(vals[c], idx[c], value, rows[r])
                        bars[c] = vals[c, 0]
            c0 = c1


@compiled()
def push_sums(first, second, left, right, both):  # type: ignore[no-untyped-def]
    """Push the scaled scores first + second to the heaps of their rows and, if `both`, columns.

    `left` and `right` hold, of the rows and of the columns: scales, indices and heaps. A score is
    multiplied by the scale of the other side; the own scale would not change the order in a heap.
    """
    row_scale, rows, vals, idx = left
    column_scale, columns, column_vals, column_idx = right
    bars = column_vals[:, 0].copy()
    if not both:
        bars[:] = np.inf
    width = np.uint64(first.shape[1])
    for r in range(len(first)):
        scale, bar = row_scale[r], vals[r, 0]
        one, two = first[r], second[r]
        c0 = np.uint64(0)
        while c0 < width:
            c1 = min(c0 + _LANES, width)
            above = np.int32(0)
            for c in range(c0, c1):
                score = one[c] + two[c]
                above += np.int32((score * column_scale[c] > bar) | (score * scale > bars[c]))
            if above:
                for c in range(c0, c1):
                    score = one[c] + two[c]
                    mine, theirs = score * column_scale[c], score * scale
                    if mine > bar and columns[c] != rows[r]:
                        push(vals[r], idx[r], mine, columns[c])
                        bar = vals[r, 0]
                    if theirs > bars[c]:
                        push(column_vals[c], column_idx[c], theirs, rows[r])
                        bars[c] = column_vals[c, 0]
            c0 = c1


@compiled()
def sort_heaps(vals, idx, start, stop):  # type: ignore[no-untyped-def]
    """Sort each heap into a list, best first (equal values by ascending index)."""
    for r in range(start, stop):
        for size in range(vals.shape[1] - 1, 0, -1):
            value, index = vals[r, 0], idx[r, 0]
            push(vals[r, :size], idx[r, :size], vals[r, size], idx[r, size])
            vals[r, size] = value
            idx[r, size] = index
