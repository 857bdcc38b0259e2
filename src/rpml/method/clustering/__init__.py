"""Authority Ascent Shift and the pseudo-labels of a fit."""
