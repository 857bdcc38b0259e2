"""The sections of the report, in the order of the page."""

from rpml.pages.report.section import Section
from rpml.pages.report.sections import fit, items, quality

SECTIONS: tuple[Section, ...] = (
    Section("table", "Before and after", quality.show_scores),
    Section("evidence", "Evidence without labels", quality.show_evidence),
    Section("maps", "Maps", items.show_maps, '{% include "maps.html" %}'),
    Section("changed", "What changed most", items.show_changed, '{% include "changed.html" %}'),
    Section("retrieval", "Hits and misses", items.show_retrieval),
    Section("grid", "The embedding at a glance", items.show_grid, '{% include "grid.html" %}'),
    Section("knowledge", "What was discounted", items.show_knowledge),
    Section("checks", "Checks", fit.show_checks),
    Section("training", "Training", fit.show_training),
    Section("clusters", "Pseudo-clusters", fit.show_clusters),
    Section("triplets", "Triplets", fit.show_triplets),
    Section("spectrum", "Spectrum", quality.show_spectrum),
    Section("sizes", "Smaller sizes", quality.show_sizes),
    Section("codes", "Fewer bytes", quality.show_codes),
    Section(
        "settings", "Settings and versions", fit.show_settings, '{% include "settings.html" %}'
    ),
)
