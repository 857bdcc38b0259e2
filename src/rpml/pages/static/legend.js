"use strict";
/* Colors, shapes and the clickable legend of a category, shared by the report and the explorer.
   The largest classes have a color and a shape of their own; the others are one gray group. */
(() => {
  const { SHAPES, color, element, pixel } = window.rpml;
  const NAMED = 16; // classes with a color and a shape of their own
  // apart with and without red or green cones (tests/pages/test_figures.py); from those of Okabe and Ito
  const LIGHT = ["#3260a2", "#c79a00", "#039773", "#f160b4", "#7598f9", "#ab4d02", "#41410d", "#1c0e84"];
  const DARK = ["#0b9af5", "#eaac22", "#00cba0", "#ae64aa", "#b1fdfa", "#f34300", "#f2fe1d", "#f0aefc"];
  const PATHS = ["M6 1a5 5 0 1 0 .01 0z", "M1.5 1.5h9v9h-9z", "M6 .5l5.5 10H.5z", "M6 .2l5.8 5.8L6 11.8.2 6z"];

  function shapeOf(rank) { return (rank + Math.floor(rank / LIGHT.length)) % SHAPES.length; }

  /* Entries of a legend: {text, count, color, shape, rest}; rest: 1 if it has no color of its own.
     The last ones are all other classes and the items without a class, if there are any. */
  function entriesOf({ names, counts, codes }, dark) {
    const colors = dark ? DARK : LIGHT;
    const named = names.length <= NAMED + 1 ? names.length : NAMED;
    const entries = names.slice(0, named).map((text, rank) => (
      { text, count: counts[rank], color: colors[rank % colors.length], shape: shapeOf(rank), rest: 0 }));
    if (named < names.length) {
      const count = counts.slice(named).reduce((a, b) => a + b, 0);
      const text = `${(names.length - named).toLocaleString("en")} others`;
      entries.push({ text, count, color: color("--point"), shape: 0, rest: 1 });
    }
    const unlabeled = codes.reduce((sum, code) => sum + (code < 0), 0);
    if (unlabeled) entries.push({ text: "none", count: unlabeled, color: color("--unlabeled"), shape: 0, rest: 1 });
    const places = codes.map((code) => (code < 0 ? entries.length - 1 : Math.min(code, named)));
    return { entries, places };
  }

  function swatch({ color, shape }) {
    const template = document.createElement("template");
    template.innerHTML = `<svg viewBox="0 0 12 12" aria-hidden="true"><path d="${PATHS[shape]}"/></svg>`;
    template.content.querySelector("path").setAttribute("fill", color);
    return template.content.firstChild;
  }

  class Legend {
    /* box: where the legend stands; maps: () -> the maps it colors. */
    constructor(box, maps) {
      this.box = box;
      this.maps = maps;
      this.chosen = new Set();
    }

    /* Color every map by a category ({names, counts, codes}), or plainly by null. */
    show(category, dark) {
      this.chosen.clear();
      this.box.hidden = !category;
      ({ entries: this.entries, places: this.places } = category ? entriesOf(category, dark) : { entries: [], places: null });
      this.box.replaceChildren(...this.entries.map((entry, i) => this.button(entry, i)));
      this.paint();
      this.filter();
    }

    button(entry, i) {
      return element("button", { type: "button", title: entry.text, ariaPressed: "false", onclick: () => this.toggle(i) },
        swatch(entry),
        element("span", { className: "name", textContent: entry.text }),
        element("span", { className: "count", textContent: entry.count.toLocaleString("en") }));
    }

    /* Chosen entries stand out; without any, everything does. */
    toggle(i) {
      if (!this.chosen.delete(i)) this.chosen.add(i);
      if (this.chosen.size === this.entries.length) this.chosen.clear();
      [...this.box.children].forEach((button, k) => { button.ariaPressed = String(this.chosen.has(k)); });
      this.filter();
    }

    paint() {
      const { entries, places } = this;
      const pixels = entries.map((entry) => pixel(entry.color));
      const shapes = places && Uint8Array.from(places, (place) => entries[place].shape);
      const behind = places && Uint8Array.from(places, (place) => entries[place].rest);
      for (const map of this.maps()) {
        const plain = new Uint32Array(map.n).fill(pixel(color("--point")));
        map.setColors(places ? Uint32Array.from(places, (place) => pixels[place]) : plain, pixel(color("--faint")), shapes, behind);
      }
    }

    filter() {
      const mask = this.chosen.size ? Uint8Array.from(this.places, (place) => Number(this.chosen.has(place))) : null;
      for (const map of this.maps()) map.filter("legend", mask);
    }
  }

  window.rpml.Legend = Legend;
})();
