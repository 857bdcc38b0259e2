"use strict";
/* The linked maps of the report. */
(() => {
  const { Scatter, Legend, element, unpack } = window.rpml;
  const data = JSON.parse(document.getElementById("map-data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const card = document.getElementById("card");
  const colorBy = document.getElementById("color-by");
  const maps = [];
  let selected = -1;

  const textOf = (i) => (data.texts ? data.texts[i] : data.ids[i]);

  function decode(text) {
    return unpack(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  }

  function source(i) {
    return data.thumbs?.[i] ? `data:image/webp;base64,${data.thumbs[i]}` : "";
  }

  const images = new Map();
  function thumb(i) {
    if (!images.has(i)) {
      const image = source(i) ? element("img", { src: source(i) }) : null;
      if (image) image.onload = () => maps.forEach((map) => map.draw());
      images.set(i, image);
    }
    const image = images.get(i);
    return image && image.complete && image.naturalWidth ? image : null;
  }

  function category(name, i) {
    const { names, codes } = data.categories[name];
    return codes[i] < 0 ? null : names[codes[i]];
  }

  function picture(i) {
    const src = source(i);
    if (!src) return element("span", { className: "text" }, element("span", { textContent: textOf(i) }));
    return element("img", { src, alt: textOf(i), title: textOf(i) });
  }

  function frame(query, i) {
    if (!data.categories.label) return "";
    const wanted = category("label", query), label = category("label", i);
    if (wanted === null || label === null) return "";
    return wanted === label ? "right" : "wrong";
  }

  function list(key, query) {
    const row = element("div", { className: "row" });
    for (const i of data.neighbors[key][query]) {
      const tone = frame(query, i);
      const follow = () => { select(i); card.querySelector(".name").focus(); };
      const marks = tone ? [
        element("span", { className: "mark", ariaHidden: "true", textContent: tone === "right" ? "✓" : "✗" }),
        element("span", { className: "unseen", textContent: tone === "right" ? "same label" : "another label" })] : [];
      row.append(element("button", { type: "button", className: `item ${tone}`, onclick: follow }, picture(i), ...marks));
    }
    return element("div", {}, element("h3", { textContent: data.titles[key] }), row);
  }

  function show(i) {
    if (i < 0) {
      card.replaceChildren(element("p", { className: "muted", textContent: "No item selected: point at one, or find one by its id." }));
      return;
    }
    const id = data.texts ? [`id ${data.ids[i]}`] : [];
    const facts = Object.keys(data.categories).map((name) => (category(name, i) === null ? `no ${name}` : `${name} ${category(name, i)}`));
    const side = element("div", { className: "item" }, picture(i));
    const body = element("div", {},
      element("p", { className: "name", tabIndex: -1, textContent: textOf(i) }),
      element("p", { className: "muted", textContent: [...id, ...facts].join(", ") }));
    if (data.neighbors) {
      body.append(element("div", { className: "lists" }, ...Object.keys(data.neighbors).map((key) => list(key, i))));
    }
    card.replaceChildren(data.thumbs ? element("div", { className: "card-grid" }, side, body) : body);
  }

  function hover(i) {
    for (const map of maps) map.mark({ hover: i });
    show(i >= 0 ? i : selected);
  }

  function select(i) {
    selected = i;
    for (const map of maps) {
      map.mark({ selected: i, hover: -1 });
      if (i >= 0) map.reveal(i);
    }
    show(i);
  }

  const legend = new Legend(document.getElementById("legend"), () => maps);
  function color() { legend.show(data.categories[colorBy.value] || null, dark.matches); }

  /* Every id that contains the text is ringed; one at a time is selected. */
  const matches = { rows: [], at: 0 };
  const nextButton = document.getElementById("find-next");

  function find(text) {
    const wanted = text.trim().toLowerCase();
    const says = (i) => data.ids[i].toLowerCase().includes(wanted) || textOf(i).toLowerCase().includes(wanted);
    matches.rows = wanted ? data.ids.flatMap((_, i) => (says(i) ? [i] : [])) : [];
    matches.at = Math.max(0, matches.rows.findIndex((i) => data.ids[i].toLowerCase() === wanted));
    for (const map of maps) map.mark({ rings: [{ rows: matches.rows, color: window.rpml.color("--accent") }] });
    showMatch(wanted);
  }

  function showMatch(wanted) {
    const count = matches.rows.length, status = document.getElementById("find-status");
    nextButton.hidden = count < 2;
    if (!wanted) status.textContent = "";
    else if (!count) status.textContent = "No item on the maps contains this.";
    else status.textContent = count === 1 ? "1 match" : `${(matches.at + 1).toLocaleString("en")} of ${count.toLocaleString("en")} matches`;
    select(count ? matches.rows[matches.at] : -1);
  }

  function nextMatch() {
    if (!matches.rows.length) return;
    matches.at = (matches.at + 1) % matches.rows.length;
    showMatch(true);
  }

  /* Folded settings are printed too. */
  function unfold(printing) {
    for (const details of document.querySelectorAll("main details")) {
      if (printing) { details.dataset.open = details.open; details.open = true; } else if (details.dataset.open === "false") details.open = false;
    }
  }

  function start() {
    for (const figure of document.querySelectorAll(".map")) {
      const { x, y } = decode(data.maps[figure.dataset.map]);
      const map = new Scatter(figure.querySelector("canvas"), x, y, {
        onHover: hover, onPick: select, wheel: "focused", thumb: data.thumbs ? thumb : null,
      });
      const acts = { in: () => map.zoomIn(1.6), out: () => map.zoomIn(1 / 1.6), reset: () => map.reset() };
      for (const button of figure.querySelectorAll("[data-act]")) button.onclick = acts[button.dataset.act];
      maps.push(map);
    }
    for (const name of [...Object.keys(data.categories), "nothing"]) {
      const few = data.categories[name];
      const text = few ? `${name} (${few.names.length.toLocaleString("en")})` : name;
      colorBy.append(element("option", { value: name, textContent: text }));
    }
    colorBy.addEventListener("change", color);
    dark.addEventListener("change", color);
    const box = document.getElementById("find");
    box.addEventListener("input", () => find(box.value));
    box.addEventListener("keydown", (event) => { if (event.key === "Enter") nextMatch(); });
    nextButton.addEventListener("click", nextMatch);
    matchMedia("print").addEventListener("change", (event) => unfold(event.matches));
    if (matchMedia("(max-width: 43.99rem)").matches) {
      document.querySelector(".contents-fold").open = false;
    }
    color();
    window.rpmlMaps = maps;
  }

  start();
})();
