"""A sample of the items on a square grid."""

from rpml.pages.layout import grid_side, snap_to_grid
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Section

_PICTURES, _TEXTS = 20, 6  # cells per side


def content(measurements: Measurements) -> Content:
    """Show a sample of the items by their position on the map of the embedding."""
    points, gallery = measurements.maps["rpml"], measurements.gallery
    rows = measurements.rows[measurements.drawn]
    pictures = gallery.items.images is not None
    side = grid_side(len(points), _PICTURES if pictures else _TEXTS)
    chosen = measurements.rng("grid").choice(len(points), side * side, replace=False)
    order = snap_to_grid(points[chosen], side)
    return {
        "how": (
            "A random sample of the items, moved from the map of the embedding to a grid: similar "
            "items should be side by side."
        ),
        "side": side,
        "kind": "pictures" if pictures else "texts",
        "views": [gallery.view(int(rows[chosen[i]])) for i in order],
    }


TEMPLATE = """
<div class="scroller" role="region" aria-label="Grid of items" tabindex="0">
<div class="mosaic {{ kind }} side-{{ side }}">
{% for view in views %}{{ ui.item(view) }}{% endfor %}
</div>
</div>
"""
SECTION = Section("grid", "The embedding at a glance", content, TEMPLATE)
