"""What a rank gain is worth: the gain in Recall@1 that other data sets had."""

import numpy as np

from rpml.runtime.intervals import Interval

# rank gain -> gain in Recall@1 over PCA: 10%, 50% and 90% quantile over 32 sets, 32 to 128
# dimensions; between 0.1 and 0.3 more evidence did not mean more gain. Written by
# benchmarks/calibration.py --write
CALIBRATION = {
    0.0: (-0.0, 0.0, 0.0),
    0.025: (-0.0, 0.004, 0.009),
    0.075: (0.001, 0.016, 0.026),
    0.12: (0.001, 0.027, 0.169),
    0.3: (0.001, 0.027, 0.169),
    0.4: (0.058, 0.098, 0.394),
}


def expected_gain(rank_gain: float) -> Interval:
    """Return the gain in Recall@1 over PCA at such a rank gain: median and 80% of other sets."""
    rank_gains = list(CALIBRATION)
    low, middle, high = (
        float(
            np.interp(rank_gain, rank_gains, [quantiles[i] for quantiles in CALIBRATION.values()])
        )
        for i in range(3)
    )
    return Interval(middle, low, high)
