"use strict";
/* Colors, shapes and the clickable legend of a category, shared by the report and the explorer.
   The largest classes have a color and a shape of their own; the others are one gray group. */
(() => {
  const { SHAPES, parse, pixel } = window.rpml;
  const NAMED = 16; // classes with a color and a shape of their own
  // apart with and without red or green cones (tests/pages/test_figures.py); from those of Okabe and Ito
  const LIGHT = ["#3260a2", "#c79a00", "#039773", "#f160b4", "#7598f9", "#ab4d02", "#41410d", "#1c0e84"];
  const DARK = ["#0b9af5", "#eaac22", "#00cba0", "#ae64aa", "#b1fdfa", "#f34300", "#f2fe1d", "#f0aefc"];
  const PATHS = ["M6 1a5 5 0 1 0 .01 0z", "M1.5 1.5h9v9h-9z", "M6 .5l5.5 10H.5z", "M6 .2l5.8 5.8L6 11.8.2 6z"];

  function shapeOf(rank) { return (rank + Math.floor(rank / LIGHT.length)) % SHAPES.length; }

  /* Entries of a legend: {text, count, color, shape, rest, holds(code)}; rest: 1 if it has no color of its own. */
  function entriesOf({ names, counts, codes }, dark) {
    const colors = dark ? DARK : LIGHT;
    const named = names.length <= NAMED + 1 ? names.length : NAMED;
    const entries = names.slice(0, named).map((text, rank) => ({
      text, count: counts[rank], color: colors[rank % colors.length], shape: shapeOf(rank), rest: 0, holds: (code) => code === rank,
    }));
    const style = getComputedStyle(document.documentElement);
    if (named < names.length) {
      const count = counts.slice(named).reduce((a, b) => a + b, 0);
      const text = `${(names.length - named).toLocaleString("en")} others`;
      entries.push({ text, count, color: style.getPropertyValue("--point").trim(), shape: 0, rest: 1, holds: (code) => code >= named });
    }
    const unlabeled = codes.reduce((sum, code) => sum + (code < 0), 0);
    if (unlabeled) {
      entries.push({ text: "none", count: unlabeled, color: style.getPropertyValue("--unlabeled").trim(), shape: 0, rest: 1, holds: (code) => code < 0 });
    }
    return entries;
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
      this.category = category;
      this.chosen.clear();
      this.box.hidden = !category;
      this.box.replaceChildren();
      this.entries = category ? entriesOf(category, dark) : [];
      this.entries.forEach((entry, i) => this.box.append(this.button(entry, i)));
      this.paint();
      this.filter();
    }

    button(entry, i) {
      const button = document.createElement("button");
      const count = document.createElement("span");
      const name = document.createElement("span");
      button.type = "button";
      button.title = entry.text;
      button.setAttribute("aria-pressed", "false");
      name.className = "name";
      name.textContent = entry.text;
      count.className = "count";
      count.textContent = entry.count.toLocaleString("en");
      button.append(swatch(entry), name, count);
      button.addEventListener("click", () => this.toggle(i));
      return button;
    }

    /* Chosen entries stand out; without any, everything does. */
    toggle(i) {
      if (!this.chosen.delete(i)) this.chosen.add(i);
      if (this.chosen.size === this.entries.length) this.chosen.clear();
      [...this.box.children].forEach((button, k) => button.setAttribute("aria-pressed", String(this.chosen.has(k))));
      this.filter();
    }

    entryOf(code) {
      const last = this.entries.length - 1;
      if (code < 0) return last;
      const named = this.entries.findIndex((entry) => entry.holds(code));
      return named < 0 ? last : named;
    }

    paint() {
      for (const map of this.maps()) {
        const colors = new Uint32Array(map.n).fill(pixel("--point"));
        let shapes = null, behind = null;
        if (this.category) {
          const { codes, names } = this.category;
          const places = names.map((_, code) => this.entryOf(code));
          const missing = this.entries.length - 1;
          const pixels = this.entries.map((entry) => parse(entry.color));
          shapes = new Uint8Array(map.n);
          behind = new Uint8Array(map.n); // those without a color of their own
          for (let i = 0; i < map.n; i++) {
            const entry = codes[i] < 0 ? missing : places[codes[i]];
            colors[i] = pixels[entry];
            shapes[i] = this.entries[entry].shape;
            behind[i] = this.entries[entry].rest;
          }
        }
        map.setColors(colors, pixel("--faint"), shapes, behind);
      }
    }

    filter() {
      for (const map of this.maps()) {
        if (!this.chosen.size) { map.filter("legend", null); continue; }
        const places = this.category.names.map((_, code) => this.entryOf(code));
        const missing = this.entries.length - 1;
        const mask = new Uint8Array(map.n);
        for (let i = 0; i < map.n; i++) {
          const code = this.category.codes[i];
          mask[i] = this.chosen.has(code < 0 ? missing : places[code]) ? 1 : 0;
        }
        map.filter("legend", mask);
      }
    }
  }

  window.rpml.Legend = Legend;
})();
