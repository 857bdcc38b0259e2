"use strict";
/* The linked maps of the report. */
(() => {
  const { Scatter, palette, pixel, css, unpack } = window.rpml;
  const data = JSON.parse(document.getElementById("map-data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const card = document.getElementById("card");
  const colourBy = document.getElementById("colour-by");
  const LEGEND = 10; // categories that a legend can name
  const n = data.ids.length;
  const maps = [];
  const titles = { raw: "Before", rpml: "After" };
  let pinned = -1;

  function decode(text) {
    return unpack(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  }

  function element(name, properties = {}, ...children) {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  }

  function source(i) {
    const code = data.thumbs ? data.thumbs[i] : "";
    return code ? `data:image/${code[0] === "p" ? "png" : "webp"};base64,${code.slice(1)}` : "";
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
    return names[codes[i]];
  }

  function picture(i) {
    const src = source(i);
    if (!src) return element("span", { className: "text", textContent: data.ids[i] });
    const image = element("img", { src, alt: data.ids[i], title: data.ids[i] });
    image.onload = () => image.classList.toggle("tiny", Math.max(image.naturalWidth, image.naturalHeight) < 40);
    return image;
  }

  function frame(query, i) {
    if (!data.categories.label) return "";
    return category("label", query) === category("label", i) ? "right" : "wrong";
  }

  function list(key, query) {
    const row = element("div", { className: "row" });
    for (const i of data.neighbors[key][query]) {
      const tone = frame(query, i);
      const button = element("button", { type: "button", className: `item ${tone}` }, picture(i));
      if (tone) {
        button.append(element("span", { className: "mark", ariaHidden: "true", textContent: tone === "right" ? "✓" : "✗" }));
        button.append(element("span", { className: "unseen", textContent: tone === "right" ? "same label" : "other label" }));
      }
      button.addEventListener("click", () => pin(i));
      row.append(button);
    }
    return element("div", {}, element("h3", { textContent: titles[key] }), row);
  }

  function show(i) {
    if (i < 0) {
      card.replaceChildren(element("p", { className: "muted", textContent: "No item chosen yet: point at one, or find one by its id." }));
      return;
    }
    const facts = Object.keys(data.categories).map((name) => `${name} ${category(name, i)}`);
    const side = element("div", { className: "item" }, picture(i));
    const body = element("div", {},
      element("p", { className: "name", textContent: data.ids[i] }),
      element("p", { className: "muted", textContent: facts.join(", ") }));
    if (data.neighbors) {
      body.append(element("div", { className: "lists" }, list("raw", i), list("rpml", i)));
    }
    card.replaceChildren(data.thumbs ? element("div", { className: "card-grid" }, side, body) : body);
  }

  function hover(i) {
    for (const map of maps) map.mark({ hover: i });
    show(i >= 0 ? i : pinned);
  }

  function pin(i) {
    pinned = i;
    for (const map of maps) {
      map.mark({ selected: i, hover: -1 });
      if (i >= 0) map.reveal(i);
    }
    show(i);
  }

  function colour() {
    const name = colourBy.value;
    const colours = new Uint32Array(n).fill(pixel("--point"));
    const legend = document.getElementById("legend");
    legend.hidden = true;
    if (data.categories[name]) {
      const { names, codes } = data.categories[name];
      const shades = palette(names.length, dark.matches);
      for (let i = 0; i < n; i++) colours[i] = shades[codes[i]];
      if (names.length <= LEGEND) {
        legend.hidden = false;
        legend.replaceChildren(...names.map((text, c) => {
          const dot = element("i");
          dot.style.background = css(shades[c]);
          return element("span", {}, dot, text);
        }));
      }
    }
    for (const map of maps) map.setColours(colours, pixel("--line"));
  }

  function find(text) {
    const status = document.getElementById("find-status");
    const wanted = text.trim().toLowerCase();
    status.textContent = "";
    if (!wanted) return pin(-1);
    let i = data.ids.findIndex((id) => id.toLowerCase() === wanted);
    if (i < 0) i = data.ids.findIndex((id) => id.toLowerCase().includes(wanted));
    if (i < 0) status.textContent = "No item on the maps has this in its id.";
    else pin(i);
  }

  function start() {
    for (const figure of document.querySelectorAll(".map")) {
      const { x, y } = decode(data.maps[figure.dataset.map]);
      const map = new Scatter(figure.querySelector("canvas"), x, y, {
        onHover: hover, onPick: pin, wheel: "focused", thumb: data.thumbs ? thumb : null,
      });
      const acts = { in: () => map.zoomBy(1.6), out: () => map.zoomBy(1 / 1.6), reset: () => map.reset() };
      for (const button of figure.querySelectorAll("[data-act]")) {
        button.addEventListener("click", acts[button.dataset.act]);
      }
      maps.push(map);
    }
    for (const name of [...Object.keys(data.categories), "nothing"]) {
      const few = data.categories[name];
      const text = few ? `${name} (${few.names.length.toLocaleString("en")})` : name;
      colourBy.append(element("option", { value: name, textContent: text }));
    }
    colourBy.addEventListener("change", colour);
    dark.addEventListener("change", colour);
    document.getElementById("find").addEventListener("input", (event) => find(event.target.value));
    if (matchMedia("(max-width: 43.99rem)").matches) {
      document.querySelector(".contents-fold").open = false;
    }
    colour();
    window.rpmlMaps = maps;
  }

  start();
})();
