"""Every constant of the whitening in one table, each section with what chose its values.

Ours, not the paper's. Commands without an argument are run as `python benchmarks/NAME --data
FOLDER`; "trials" had no committed command; docs/decisions has what they showed.
"""

import numpy as np

DEFAULT_COMPONENTS = 128  # or fewer if the rows vary in fewer directions

# Scatter within neighborhoods: trials (docs/decisions/whitening.md, "Other neighborhoods")
NEIGHBORS = 3
SCATTER_ROWS = 20_000  # a sample of the rows is enough for a q x q matrix
LEADING_AXES = 512  # principal axes looked at
KAPPA = 0.9  # largest eigenvalue of the correlation, so that the scatter stays positive definite
# both sides of three halvings by two of four quarters each: every two axes are once on one side
SIDES = ((0, 1), (2, 3), (0, 2), (1, 3), (0, 3), (1, 2))
FINAL_ROWS = 6000  # make the scatter that is used; 3,000 cost CUB 1.1 points of Recall@1 at 64
PRIOR_ROWS = 3000  # are enough for a scatter that only pairs or labels may use
FINAL_REPEATS = 3  # every two axes are then measured together

# Blending: trials; pairs of one class, correct pairs, or pairs across values
PRIOR_PAIRS = 300  # that weigh as much as the scatter which the rows give without them

# How it is used: benchmarks/whitening_rules.py, leaving one source of data out at a time
SHRINKAGES = (1 / 16, 1 / 8)  # of axes that are turned, strongest whitening first
NEAR_BEST = 0.9  # of the best rank gain, which the strongest whitening must have to be taken
RIDGE = 1 / 128  # of axes that are rescaled, as a part of the scatter's trace
MILD = 1 / 16  # ridge of the mild rescaling by which the scatter is judged
SUPPORT = 0.001  # rank gain of mild rescaling, per direction of the spectrum, that is needed
LEAST_SUPPORT = 0.025  # and at least, however few directions there are
TURN = 0.15  # rank gain of turned axes from which on they are turned, at 64 dimensions
TURN_SIZES = (32, 128)  # between which it grows with the square root of the dimension

# The evidence: trials, except for the rows and queries, which are a matter of time (fits.py)
JUDGED_NEIGHBORS = 3  # by one half of the axes, which the other half ranks
NEIGHBOR_SHRINKAGE = 1.0  # by which those are found that judge turned axes
JUDGED_ROWS = 3000  # rows looked at: half make the scatter of the evidence, half test it
JUDGED_QUERIES = 500
JUDGED_REPEATS = 2
MIN_ROWS, MIN_AXES = 100, 8  # with less there is nothing to estimate: plain PCA

# Groups: benchmarks/results_groups.py
GROUP_SHRINKAGES = tuple(2.0**-k for k in range(9, 0, -2))
GROUP_NEIGHBOR_SHRINKAGES = (1 / 16, 1 / 4, 1.0, 4.0, np.inf)  # of what groups are judged by
GROUP_PLATEAU = 0.98  # shrinkages within 2% of the best count as equally good
GROUP_MARGIN = 0.95  # of the neighbors' agreement, which groups must reach
GROUP_QUERIES = 1500
MIN_GROUPS = 20  # with fewer their scatter says nothing
TIMES_CHANCE = 5  # how much more often than by chance a row must find its group
STRANGER = 0.95  # quantile of the similarity to another group

# Pairs: benchmarks/pairs.py
MIN_PAIRS = 50  # with fewer nothing can be estimated
MIN_PAIR_RATE = 0.01  # below it pairs are random
PAIR_QUANTILES = np.arange(1, 6) / 10  # of the similarity of random rows: what is far apart
PAIR_RATE_SHRINKAGE = 0.25  # of the whitening in which pairs are compared with random rows
RANDOM_PAIRS = 20_000
PAIR_QUERIES = 1000
PAIR_CLEAR = 2  # standard errors by which held-out pairs must rank each other better
PAIR_SHRINKAGES = (1.0, 1 / 4, 1 / 16, 1 / 64)  # chosen by pairs of rows that made no scatter
PAIR_NEAR_BEST = 0.8  # of the best rank gain over PCA, which the strongest whitening must have
PAIR_MANY = 500  # pairs from which on that holds; with fewer it is the best one

# Nuisance and queries: benchmarks/knowledge.py
REMOVAL = 8.0  # times the variance a value explains that a direction loses
CHECKED_ROWS = 2000  # whose nearest rows show how often a value is shared
CROSS_PRIOR_ROWS = 2000  # as PRIOR_ROWS: more rows make pairs that outweigh the prior
CROSS_HUB = 5  # nearest rows of a value whose mean similarity is subtracted
CROSS_START = 0.3  # share of shrinkage in the space where pairs are found again
CROSS_SHARES = (0.1, 0.2, 0.4, 0.6, 0.8)  # of shrinkage, strongest whitening first
QUERY_SHARES = (0.2, 0.4, 0.6, 0.7, 0.8)  # the same, of queries
QUERY_PAIRS = 3  # nearest documents and queries of each other: a query has several documents
FEW_QUERIES = 200  # below which the axes are halved in two ways, so that they judge more
CROSS_NEAR_BEST = 0.7  # of the best rank gain, which the strongest whitening must have
CROSS_MANY = 2000  # pairs from which on that holds; with fewer it is the best one
CROSS_VALUE_ROWS = 5  # rows a value must have to take part
MAX_CROSS_VALUES, MAX_CROSS_ROWS = 64, 4000  # that are compared; directions come from all values
CROSS_EXCESS = 0.05  # by which neighbors must share the value beyond chance (Cohen's kappa)
CROSS_HANDICAP = 0.04  # rank gain that a map judged by half of the rows is worth more with all
CROSS_AGREES = 0.5  # log rank by which mutual neighbors across values must be above chance
CROSS_CLEAR = 2  # standard errors by which the gain must differ from none
CROSS_TRAINS = 0.5  # the same of the gain by training: +0.53 of Recall@1, less a source +0.52
CROSS_NEAR = 30  # nearest rows of its own value that may be an anchor's negative
CROSS_ALPHA = 35.0  # degrees, of triplets across values; 30 gains less at 16 dimensions, 45 at 64
CROSS_TRIPLETS = 30_000  # 40,000 gain as much
CROSS_JUDGED_ROWS, CROSS_AXES = 2000, 4  # as JUDGED_ROWS; axes per dimension that judge
JUDGED_CROSS = 2000  # pairs per view that judge the whitening
JUDGED_TRIPLETS, JUDGED_ITERATIONS = 20_000, 15  # of trainings that are only judged
JUDGED_DECREASE = 3e-4  # relative decrease of the loss to stop at: 1e-4 decides alike
JUDGED_PAIRS = 6000  # of a view, by which they are judged

# Labels: trials, mostly on Omniglot; benchmarks/labels.py has what they give
MIN_LABELED_PAIRS, MIN_CLASSES = 20, 4  # with fewer the scatter within classes says nothing
LABEL_SHRINKAGES = (1 / 64, 1 / 16, 1 / 4, 1.0)
LABEL_KAPPA = 0.95  # as KAPPA
LABEL_FOLDS = 5  # of labeled rows, each judged by what the others give
LABEL_CHUNK = 20  # rows of one class that judge labels, before other classes are asked

# Rounding and memory: by the arithmetic of float32 and float64, not by a benchmark
SIGNIFICANT = 1e-10  # part of the largest variance, per axis, that is no rounding error of sums
ROUNDING = 2  # units in the last place that a row of unit norm may be off
BLOCK_ROWS, BLOCK_AXES = 4096, 128
EMBED_ROWS = 1024  # at a time and thread: they stay in the cache between the steps
