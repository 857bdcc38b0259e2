"""The linked maps before and after."""

from rpml.pages.layout import layout_note
from rpml.pages.report.mapdata import map_titles
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Section


def content(measurements: Measurements) -> Content:
    """Return the titles and notes of the maps; the points are passed as data."""
    notes = []
    if len(measurements.drawn) < measurements.n_rows:
        notes.append(
            f"The maps show {len(measurements.drawn):,} of {measurements.n_rows:,} items, chosen "
            "at random."
        )
    notes.append(layout_note(len(measurements.drawn)))
    return {
        "how": (
            "Items with similar vectors are close together. Point at an item or tap it, and it is "
            "marked in every map. Distances between distant groups mean little."
        ),
        "maps": map_titles(measurements),
        "notes": " ".join(note for note in notes if note),
    }


TEMPLATE = """
<div class="controls">
  <label>Color by <select id="color-by"></select></label>
  <label>Find
    <input id="find" type="search" placeholder="an id or a text" autocomplete="off"
      spellcheck="false">
  </label>
  <span id="find-status" class="muted" role="status"></span>
  <button type="button" id="find-next" hidden>Next match</button>
</div>
<div class="maps">
  {% for key, title in maps.items() %}
  <figure class="map" data-map="{{ key }}">
    <figcaption>
      <span id="map-{{ key }}">{{ title }}</span>
      <span class="map-buttons">
        <button type="button" data-act="in" aria-label="Zoom in, {{ title }}">+</button>
        <button type="button" data-act="out" aria-label="Zoom out, {{ title }}">−</button>
        <button type="button" data-act="reset" aria-label="Show all, {{ title }}">⤢</button>
      </span>
    </figcaption>
    <div class="map-box">
      <canvas tabindex="0" role="application" aria-labelledby="map-{{ key }}"
        aria-describedby="map-keys"></canvas>
    </div>
  </figure>
  {% endfor %}
</div>
<div id="legend" class="legend" role="group" aria-label="Legend" hidden></div>
<p class="note" id="map-keys">
  Drag to move; click the map, then scroll to zoom (or pinch). Keyboard: arrow keys go from item to
  item, Shift with arrows moves the map, + and − zoom, 0 shows all, Enter selects an item.
</p>
{% if notes %}<p class="note" id="map-notes">{{ notes }}</p>{% endif %}
<div id="card" class="card" role="status" aria-live="polite">
  <p class="muted">No item selected: point at one, or find one by its id.</p>
</div>
<noscript>
  <p class="note">The maps need JavaScript; everything else on this page works without it.</p>
</noscript>
"""
SECTION = Section("maps", "Maps", content, TEMPLATE)
