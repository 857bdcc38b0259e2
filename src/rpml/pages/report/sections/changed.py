"""The items whose neighbors changed most."""

from dataclasses import dataclass

from rpml.pages.report.examples import SHOWN, most_changed
from rpml.pages.report.gallery import ItemView
from rpml.pages.report.mapdata import map_titles
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Section


@dataclass(frozen=True)
class Pair:
    """The neighbors of one item, by space."""

    query: ItemView
    lists: dict[str, list[ItemView]]
    remark: str


def content(measurements: Measurements) -> Content:
    """Show the items whose neighbors changed most, or on which two models differ most."""
    rows, gallery, two = measurements.rows, measurements.gallery, measurements.source.second
    titles = map_titles(measurements)
    spaces = {s.key: s.neighbors for s in measurements.spaces if s.key in titles}
    *_, before, after = spaces.values()
    pairs = []
    for i in most_changed(before, after, 6, measurements.rng("changed")):
        query = int(rows[i])
        lists = {titles[key]: rows[near[i, :SHOWN]].tolist() for key, near in spaces.items()}
        *_, one, other = lists.values()
        same = len(set(one) & set(other))
        remark = f"{same} of {len(one)} neighbors {'in common' if two else 'retained'}"
        views = {title: gallery.results(query, indices) for title, indices in lists.items()}
        pairs.append(Pair(gallery.view(query, "query"), views, remark))
    how = "Items that retained the fewest nearest neighbors: judge which list is better."
    if two:
        how = "Items with the fewest nearest neighbors in common: judge which list is better."
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
    {% for title, views in pair.lists.items() %}
    <div><h3>{{ title }}</h3>{{ ui.row(views) }}</div>
    {% endfor %}
  </div>
</div>
{% else %}
<p>There are too few items to compare neighbors.</p>
{% endfor %}
"""
SECTION = Section("changed", "What changed most", content, TEMPLATE)
