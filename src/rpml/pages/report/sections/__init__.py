"""The sections of the report, in the order of the page."""

from rpml.pages.report.section import Section
from rpml.pages.report.sections import fit, items, quality

SECTIONS: tuple[Section, ...] = (
    *(quality.SCORES, quality.EVIDENCE),
    *(items.MAPS, items.CHANGED, items.RETRIEVAL, items.GRID, items.KNOWLEDGE),
    *(fit.CHECKS, fit.TRAINING, fit.CLUSTERS, fit.TRIPLETS),
    *(quality.SPECTRUM, quality.SIZES, quality.CODES),
    fit.SETTINGS,
)
