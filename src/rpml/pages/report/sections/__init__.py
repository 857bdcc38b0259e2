"""The sections of the report, in the order of the page: one module and one line each."""

from rpml.pages.report.section import Section
from rpml.pages.report.sections import (
    changed,
    checks,
    clusters,
    codes,
    grid,
    maps,
    retrieval,
    scores,
    settings,
    sizes,
    spectrum,
    training,
    triplets,
)

SECTIONS: tuple[Section, ...] = (
    scores.SECTION,
    maps.SECTION,
    changed.SECTION,
    retrieval.SECTION,
    grid.SECTION,
    checks.SECTION,
    training.SECTION,
    clusters.SECTION,
    triplets.SECTION,
    spectrum.SECTION,
    sizes.SECTION,
    codes.SECTION,
    settings.SECTION,
)
