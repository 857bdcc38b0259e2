"""The items whose neighbors changed most."""

from dataclasses import dataclass

from rpml.pages.report.examples import SHOWN, most_changed
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Section
from rpml.pages.report.views import ItemView


@dataclass(frozen=True)
class Pair:
    """The neighbors of one item before and after."""

    query: ItemView
    before: list[ItemView]
    after: list[ItemView]
    remark: str


def content(measurements: Measurements) -> Content:
    """Neighbors before and after of the items that changed most."""
    rows, gallery = measurements.rows, measurements.gallery
    before, after = measurements.spaces[0].neighbors, measurements.embedding.neighbors
    pairs = []
    for i in most_changed(before, after, 6, measurements.rng("changed")):
        query = int(rows[i])
        lists = [rows[s[i, :SHOWN]].tolist() for s in (before, after)]
        same = len(set(lists[0]) & set(lists[1]))
        pairs.append(
            Pair(
                gallery.view(query, "query"),
                gallery.results(query, lists[0]),
                gallery.results(query, lists[1]),
                f"{same} of {len(lists[0])} neighbors retained",
            )
        )
    how = "Items that retained the fewest nearest neighbors: judge which list is better."
    if measurements.labels is not None:
        how += " Green with a tick: same label; red and dashed: another label."
    return {"how": how, "pairs": pairs}


TEMPLATE = """
{% for pair in pairs %}
<div class="pair">
  <div class="pair-query">
    {{ ui.item(pair.query, "named") }}
    <p class="muted">{{ pair.remark }}</p>
  </div>
  <div class="pair-lists">
    {% for title, views in (("Before", pair.before), ("After", pair.after)) %}
    <div><h3>{{ title }}</h3>{{ ui.row(views) }}</div>
    {% endfor %}
  </div>
</div>
{% else %}
<p>There are too few items to compare neighbors.</p>
{% endfor %}
"""
SECTION = Section("changed", "What changed most", content, TEMPLATE)
