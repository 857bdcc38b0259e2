"""Compiled loops of the objective.

The GIL is released, so that callers can split the triplets between threads (`run_chunks`).
"""

import numpy as np

from rpml.runtime.compiled import VECTORIZED, compiled


@compiled(VECTORIZED)
def angular_margins(Y, triplets, c, z):  # type: ignore[no-untyped-def]
    """z_i = |y_a - y_p|^2 - c |y_n - (y_a + y_p)/2|^2, eq. (z_i) with Y = X L."""
    half = Y.dtype.type(0.5)
    for i in range(len(triplets)):
        ya, yp, yn = Y[triplets[i, 0]], Y[triplets[i, 1]], Y[triplets[i, 2]]
        near = Y.dtype.type(0)
        far = Y.dtype.type(0)
        for j in range(Y.shape[1]):
            ap = ya[j] - yp[j]
            nm = yn[j] - half * (ya[j] + yp[j])
            near += ap * ap
            far += nm * nm
        z[i] = near - c * far


@compiled(VECTORIZED)
def angular_pullback(Y, triplets, c, k, G, start, stop):  # type: ignore[no-untyped-def]
    """G += sum_i k_i/2 dz_i/dY: the weighted differences of each triplet, added to its rows.

    Only the columns start..stop, which are unsigned in the loop: a signed index may count from the
    end, and checking for that would prevent vectorization.
    """
    half = Y.dtype.type(0.5)
    first, last = np.uint64(start), np.uint64(stop)
    for i in range(len(triplets)):
        a, p, n = triplets[i, 0], triplets[i, 1], triplets[i, 2]
        ya, yp, yn = Y[a], Y[p], Y[n]
        ga, gp, gn = G[a], G[p], G[n]
        ki = k[i]
        ci = c * ki
        for j in range(first, last):
            ap = ki * (ya[j] - yp[j])
            nm = ci * (yn[j] - half * (ya[j] + yp[j]))
            ga[j] += ap + half * nm
            gp[j] += half * nm - ap
            gn[j] -= nm


@compiled(VECTORIZED)
def concat_logits(P, triplets, out):  # type: ignore[no-untyped-def]
    """s_i = r'[x_avg; x_neg], eq. (wt), with P = X [r_1, r_2]."""
    half = P.dtype.type(0.5)
    for i in range(len(triplets)):
        a, p, n = triplets[i, 0], triplets[i, 1], triplets[i, 2]
        out[0, i] = half * (P[a, 0] + P[p, 0]) + P[n, 1]


@compiled(VECTORIZED)
def concat_pullback(P, triplets, k, G):  # type: ignore[no-untyped-def]
    """G += sum_i k[0, i] ds_i, derivatives by the rows of P."""
    half = P.dtype.type(0.5)
    for i in range(len(triplets)):
        ki = half * k[0, i]
        G[triplets[i, 0], 0] += ki
        G[triplets[i, 1], 0] += ki
        G[triplets[i, 2], 1] += k[0, i]


@compiled(VECTORIZED)
def bilinear_logits(P, triplets, out):  # type: ignore[no-untyped-def]
    """RPMLv1's two similarities, eqs. (w_+) and (w_-), with P = X R.

    out[0] = p_a.p_p and out[1] = -p_avg.p_n.
    """
    half = P.dtype.type(0.5)
    for i in range(len(triplets)):
        pa, pp, pn = P[triplets[i, 0]], P[triplets[i, 1]], P[triplets[i, 2]]
        near = P.dtype.type(0)
        far = P.dtype.type(0)
        for j in range(P.shape[1]):
            near += pa[j] * pp[j]
            far += (pa[j] + pp[j]) * pn[j]
        out[0, i] = near
        out[1, i] = -half * far


@compiled(VECTORIZED)
def bilinear_pullback(P, triplets, k, G):  # type: ignore[no-untyped-def]
    """G += sum_i k[0, i] d(p_a.p_p) - k[1, i] d(p_avg.p_n), derivatives by the rows of P."""
    half = P.dtype.type(0.5)
    for i in range(len(triplets)):
        a, p, n = triplets[i, 0], triplets[i, 1], triplets[i, 2]
        pa, pp, pn = P[a], P[p], P[n]
        ga, gp, gn = G[a], G[p], G[n]
        near = k[0, i]
        far = half * k[1, i]
        for j in range(P.shape[1]):
            avg = pa[j] + pp[j]
            to_a = near * pp[j] - far * pn[j]
            to_p = near * pa[j] - far * pn[j]
            ga[j] += to_a
            gp[j] += to_p
            gn[j] -= far * avg


@compiled(VECTORIZED)
def move_rows(Y, Z, t, scale, out):  # type: ignore[no-untyped-def]
    """out = (Y + t Z) * scale: the rows of X L along the polar curve, with no matrix product."""
    for i in range(len(Y)):
        for j in range(Y.shape[1]):
            out[i, j] = (Y[i, j] + t * Z[i, j]) * scale[j]
