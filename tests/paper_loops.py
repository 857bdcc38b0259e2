"""Slow, literal transcriptions of the paper's formulas: the oracles of the fast code."""

from __future__ import annotations

import numpy as np


def objective(X, triplets, L, theta, weight, alpha=45.0):
    """Loss and gradients of eqs. (metric_loss) to (RPML), one triplet after the other."""
    M = L @ L.T
    c = 4 * np.tan(np.radians(alpha)) ** 2
    loss, grad_L = 0.0, np.zeros_like(L)
    grad_theta = None if theta is None else np.zeros_like(theta)
    for a, p, n in triplets:
        xa, xp, xn = X[a], X[p], X[n]
        avg = (xa + xp) / 2
        d_ap, d_nm = xa - xp, xn - avg
        z = d_ap @ M @ d_ap - c * (d_nm @ M @ d_nm)
        m = np.log(1 + np.exp(z))
        beta = np.exp(z) / (1 + np.exp(z))
        if weight == "concat":
            cat = np.concatenate([avg, xn])
            w = 1 / (1 + np.exp(-theta @ cat))
        elif weight == "bilinear":
            RR = theta @ theta.T
            s_ap, s_mn = xa @ RR @ xp, avg @ RR @ xn
            w = (1 / (1 + np.exp(-s_ap)) + 1 - 1 / (1 + np.exp(-s_mn))) / 2
        else:
            w = 1.0
        f = w * m
        g = np.exp(f) / (1 + np.exp(f))
        loss += np.log(1 + np.exp(f))
        grad_L += 2 * g * w * beta * (np.outer(d_ap, d_ap) - c * np.outer(d_nm, d_nm)) @ L
        if weight == "concat":
            h = np.exp(-theta @ cat) / (1 + np.exp(-theta @ cat)) ** 2
            grad_theta += g * h * m * cat
        elif weight == "bilinear":
            h_p = np.exp(-s_ap) / (1 + np.exp(-s_ap)) ** 2
            h_n = np.exp(-s_mn) / (1 + np.exp(-s_mn)) ** 2
            D_ap = np.outer(xa, xp) + np.outer(xp, xa)
            D_mn = np.outer(avg, xn) + np.outer(xn, avg)
            grad_theta += 0.5 * (g * h_p * m * D_ap - g * h_n * m * D_mn) @ theta
    return loss, grad_L, grad_theta


def matrix_form(X, triplets, L, r, alpha=45.0):
    """The 'efficient algorithm' of the paper: d x T matrices, eqs. (ftilde_vec) to (grad_L)."""
    c = 4 * np.tan(np.radians(alpha)) ** 2
    a, p, n = triplets.T
    A = ((X[a] + X[p]) / 2).T
    C = np.vstack([A, X[n].T])
    P, Q = (X[a] - X[p]).T, X[n].T - A
    w = 1 / (1 + np.exp(-r @ C))
    z = ((L.T @ P) ** 2).sum(axis=0) - c * ((L.T @ Q) ** 2).sum(axis=0)
    m = np.log(1 + np.exp(z))
    f = w * m
    g = np.exp(f) / (1 + np.exp(f))
    h = np.exp(-r @ C) / (1 + np.exp(-r @ C)) ** 2
    beta = np.exp(z) / (1 + np.exp(z))
    grad_r = ((g * h * m) * C).sum(axis=1)
    k = 2 * g * w * beta
    grad_L = (k * P) @ (P.T @ L) - c * (k * Q) @ (Q.T @ L)
    return np.log(1 + np.exp(f)).sum(), grad_L, grad_r
