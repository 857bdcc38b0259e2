/* The map: its points, colors and marks. */
import { clustersReady } from "./clusters.js";
import { go, pick } from "./explore.js";
import { $, ask, clusterRows, complain, page, request, say, views } from "./page.js";

const { Scatter, Legend, unpack } = window.rpml;
const points = {};
const categories = {};

export async function waitForMap() {
  try {
    const status = await ask("/api/status", {}, "status");
    if (status.map.state === "ready") return showMap();
    if (status.map.state === "missing") return cover(`There is no map: ${status.map.reason}.`, false);
    cover(`Drawing the map of ${page.about.rows.toLocaleString("en")} items; searching works meanwhile.`, true);
    setTimeout(waitForMap, 1000);
  } catch (problem) {
    complain(problem, waitForMap);
  }
}

function cover(text, working) {
  const box = $("map-state");
  box.hidden = !text;
  box.classList.toggle("working", working);
  box.replaceChildren(views.element("p", { textContent: text }));
}

export async function showMap() {
  const space = page.about.spaces[page.state.map] ? page.state.map : "rpml";
  for (const input of document.querySelectorAll("input[name=map]")) input.checked = input.value === space;
  try {
    points[space] = points[space] || unpack(await (await request("/api/map", { space }, "map")).arrayBuffer());
  } catch (problem) {
    if (problem.status === 503) return waitForMap();
    return complain(problem, showMap);
  }
  if (page.state.map !== space && page.about.spaces[page.state.map]) return; // another one was chosen meanwhile
  const { x, y } = points[space];
  if (page.map) page.map.setPoints(x, y);
  else makeMap(x, y);
  cover("", false);
  paintMap();
  markMap();
}

function makeMap(x, y) {
  page.map = new Scatter($("map"), x, y, {
    wheel: "always",
    onHover: hover,
    onPick: (row) => { if (row >= 0) pickRow(row); },
    onView: (view) => { clearTimeout(page.map.saving); page.map.saving = setTimeout(() => saveView(view), 250); },
    thumb: page.about.has_pictures ? thumb : null,
    onSelect: (rows, event) => window.rpmlLabels?.select(rows, event.shiftKey || event.ctrlKey),
  });
  const [vx, vy, zoom] = page.state.view.split(",").map(Number);
  if (zoom >= 1) page.map.setView({ x: vx, y: vy, zoom }, true);
  window.rpmlMap = page.map;
}

function saveView(view) {
  const text = view.zoom <= 1 ? "" : [view.x, view.y, view.zoom].map((v) => v.toFixed(4)).join(",");
  go({ view: text }, false);
}

const known = new Map();
async function itemOf(row) {
  if (!known.has(row)) {
    if (known.size > 5000) known.clear();
    known.set(row, ask("/api/item", { row }).catch(() => null));
  }
  return known.get(row);
}

async function pickRow(row) {
  const item = await itemOf(row);
  if (item) pick(item);
}

async function hover(row) {
  const box = $("map-hover");
  if (row < 0) { box.hidden = true; return; }
  const item = await itemOf(row);
  if (!item || page.map.hover !== row) return;
  box.replaceChildren();
  const picture = views.image(item, "");
  if (picture) box.append(picture);
  box.append(views.element("span", { textContent: [item.text, views.facts(item)].filter(Boolean).join(" · ") }));
  box.hidden = false;
  if (document.activeElement === $("map")) say([item.text, views.facts(item)].filter(Boolean).join(", "));
}

const pictures = new Map();
function thumb(row) {
  if (!pictures.has(row)) {
    if (pictures.size > 2000) pictures.clear();
    const image = new Image();
    image.onload = () => page.map.draw();
    image.src = `/picture/${row}`;
    pictures.set(row, image);
  }
  const image = pictures.get(row);
  return image.complete && image.naturalWidth ? image : null;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const legend = new Legend($("legend"), () => (page.map ? [page.map] : []));
export async function paintMap() {
  if (!page.map) return;
  const name = $("color").value = page.state.color || $("color").options[0].value;
  try {
    if (name !== "nothing") categories[name] = categories[name] || await ask("/api/category", { name });
  } catch (problem) {
    return complain(problem, paintMap);
  }
  legend.show(categories[name] || null, dark.matches);
}

export async function markMap() {
  if (!page.map) return;
  const style = getComputedStyle(document.documentElement);
  const ring = (space, name) => ({ rows: page.results[space] ? page.results[space].items.map((item) => item.row) : [], color: style.getPropertyValue(name).trim() });
  const query = page.results.rpml?.query || page.results.raw?.query;
  const selected = query && query.row !== null ? query.row : -1;
  const clusters = page.state.tab === "clusters" && page.state.cluster;
  $("ring-key").hidden = clusters || !query;
  if (!clusters) {
    page.map.filter("cluster", null);
    page.map.mark({ selected, rings: query ? [ring("raw", "--pca"), ring(page.state.map === "learned" ? "learned" : "rpml", "--rpml")] : [] });
    if (selected >= 0) page.map.reveal(selected);
    return;
  }
  try {
    if (!await clustersReady()) return;
    const rows = await clusterRows(page.state.cluster);
    const mask = new Uint8Array(page.map.n);
    for (const row of rows) mask[row] = 1;
    page.map.filter("cluster", mask);
    page.map.mark({ selected: -1, rings: [] });
  } catch (problem) {
    page.map.filter("cluster", null);
    page.map.mark({ selected: -1, rings: [] });
    if (!problem.status) complain(problem);
  }
}

/* Labels have changed: color by them anew. */
export function relabel() {
  delete categories.label;
  known.clear();
  if (!page.about.categories.includes("label")) {
    page.about.categories.unshift("label");
    $("color").prepend(views.element("option", { value: "label", textContent: "label" }));
  }
  paintMap();
}

/* A space has new points. */
export function forgetPoints(space) { delete points[space]; }

dark.addEventListener("change", () => { paintMap(); markMap(); });
