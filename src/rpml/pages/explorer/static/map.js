/* The map: its points, colors and marks. */
import { clustersReady } from "./clusters.js";
import { go, pick } from "./explore.js";
import { $, ask, clusterRows, complain, page, request, say, views } from "./page.js";
import { select, showSelection, toggle } from "./selection.js";
import { forgetCells, showMatches } from "./table.js";

const { Scatter, Legend, color, unpack } = window.rpml;
const CANVASES = ["map", "map-other"];
const MOST_RINGS = 100; // around the items of a cluster
const ANCHORS = 4; // items that an uploaded query is placed between
const scatters = [];
const points = {};
const categories = {};

export async function waitForMap() {
  try {
    const status = await ask("/api/status", {}, "status");
    if (status.map.state === "ready") return showMaps();
    if (status.map.state === "missing") return cover(`There is no map: ${status.map.reason}.`, false);
    cover(`Drawing the map of ${views.counted(page.about.rows, "item")}; searching works meanwhile.`, true);
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

/* One or two maps: the canvases that are used show these spaces. */
function spacesShown() {
  const known = (space) => page.about.spaces[space];
  const first = known(page.state.map) ? page.state.map : "rpml";
  return [first, page.state.other].filter((space, i) => known(space) && (i === 0 || space !== first));
}

export async function showMaps() {
  const spaces = spacesShown();
  for (const input of document.querySelectorAll("input[name=map]")) input.checked = input.value === spaces[0];
  $("other").value = spaces[1] || "";
  try {
    await Promise.all(spaces.map(async (space) => {
      points[space] = points[space] || unpack(await (await request("/api/map", { space }, `map-${space}`)).arrayBuffer());
    }));
  } catch (problem) {
    if (problem.status === 503) return waitForMap();
    return complain(problem, showMaps);
  }
  if (spacesShown().join() !== spaces.join()) return; // others were chosen meanwhile
  $("map-other").parentElement.hidden = spaces.length < 2;
  spaces.forEach((space, i) => {
    const { x, y } = points[space];
    if (scatters[i]) scatters[i].setPoints(x, y);
    else scatters[i] = makeMap(i, x, y);
    scatters[i].space = space;
    $(CANVASES[i]).setAttribute("aria-label", `Map of the items: ${page.about.spaces[space].title}`);
    $(CANVASES[i]).previousElementSibling.textContent = spaces.length > 1 ? page.about.spaces[space].title : "";
  });
  page.maps = scatters.slice(0, spaces.length);
  window.rpmlMap = scatters[0];
  window.rpmlMaps = page.maps;
  cover("", false);
  paintMap();
  showSelection();
  showMatches();
  markMap();
}

function makeMap(i, x, y) {
  const map = new Scatter($(CANVASES[i]), x, y, {
    wheel: "always",
    onHover: (row) => hover(map, row),
    onPick: (row) => { if (row >= 0) pickRow(row); },
    onView: (view) => { if (i === 0) { clearTimeout(map.saving); map.saving = setTimeout(() => saveView(view), 250); } },
    thumb: page.about.has_pictures ? thumb : null,
    onSelect: (rows, event) => select(rows, event.shiftKey || event.ctrlKey),
    onToggle: toggle,
  });
  const [vx, vy, zoom] = page.state.view.split(",").map(Number);
  if (i === 0 && zoom >= 1) map.setView({ x: vx, y: vy, zoom }, true);
  return map;
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
  if (page.state.tab === "table") return select([row]);
  const item = await itemOf(row);
  if (item) pick(item);
}

async function hover(map, row) {
  const box = $("map-hover");
  for (const other of page.maps) if (other !== map) other.mark({ hover: row });
  if (row < 0) { box.hidden = true; return; }
  const item = await itemOf(row);
  if (!item || map.hover !== row) return;
  box.replaceChildren();
  const picture = views.image(item, "");
  if (picture) box.append(picture);
  box.append(views.element("span", { textContent: [item.text, views.facts(item)].filter(Boolean).join(" · ") }));
  box.hidden = false;
  if (document.activeElement === map.canvas) say([item.text, views.facts(item)].filter(Boolean).join(", "));
}

const pictures = new Map();
function thumb(row) {
  if (!pictures.has(row)) {
    if (pictures.size > 2000) pictures.clear();
    const image = new Image();
    image.onload = () => page.maps.forEach((map) => map.draw());
    image.src = `/picture/${row}`;
    pictures.set(row, image);
  }
  const image = pictures.get(row);
  return image.complete && image.naturalWidth ? image : null;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const legend = new Legend($("legend"), () => page.maps);
export async function paintMap() {
  if (!page.maps.length) return;
  const known = [...$("color").options].map((option) => option.value);
  const name = $("color").value = known.includes(page.state.color) ? page.state.color : known[0];
  try {
    if (name !== "nothing") categories[name] = categories[name] || await ask("/api/category", { name });
  } catch (problem) {
    return complain(problem, paintMap);
  }
  legend.show(categories[name] || null, dark.matches);
}

/* The chosen item and its neighbors, or a cluster. */
export async function markMap() {
  if (!page.maps.length) return;
  const query = Object.values(page.results).find(Boolean)?.query;
  const selected = query && query.row !== null ? query.row : -1;
  const cluster = page.state.tab === "clusters" && page.state.cluster;
  $("ring-key").hidden = cluster || !query;
  let mask = null, members = [];
  try {
    if (cluster && await clustersReady()) {
      mask = new Uint8Array(page.about.rows);
      members = await clusterRows(cluster);
      for (const row of members) mask[row] = 1;
    }
  } catch (problem) {
    if (!problem.status) complain(problem);
  }
  const rings = Object.entries(page.results).filter(([, result]) => result).map(([space, { items }]) => (
    { rows: items.map((item) => item.row), color: color(`--ring-${space}`) }));
  // a few points among thousands would be overlooked, many stand out by themselves
  const ringed = members.length <= MOST_RINGS ? [{ rows: [...members], color: color("--ring-rpml") }] : [];
  for (const map of page.maps) {
    map.filter("cluster", mask);
    map.mark(cluster ? { selected: -1, rings: ringed } : { selected, rings });
    if (!cluster && selected >= 0) map.reveal(selected);
    map.mark({ query: !cluster && query && query.row === null ? placeOf(map) : null });
  }
}

/* Where an uploaded query belongs: between its nearest items, as the server places items. */
function placeOf(map) {
  const near = (page.results[map.space]?.items || []).slice(0, ANCHORS);
  if (!near.length) return null;
  const weights = near.map((item) => Math.exp(20 * (item.similarity - near[0].similarity)));
  const total = weights.reduce((a, b) => a + b);
  const mean = (values) => near.reduce((sum, item, i) => sum + values[item.row] * weights[i], 0) / total;
  return [mean(map.x), mean(map.y)];
}

/* The choice of maps, and what the rings mean. */
export function listSpaces() {
  const spaces = Object.entries(page.about.spaces);
  $("which").replaceChildren($("which").firstElementChild, ...spaces.map(([space, { title }]) => {
    const onchange = () => go({ map: space, other: page.state.other === space ? "" : page.state.other }, false);
    const input = views.element("input", { type: "radio", name: "map", value: space, checked: space === page.state.map, onchange });
    return views.element("label", {}, input, views.element("span", { textContent: title }));
  }));
  $("other").replaceChildren(views.element("option", { value: "", textContent: "nothing" }),
    ...spaces.map(([value, { title }]) => views.element("option", { value, textContent: title })));
  $("other").value = page.state.other;
  $("ring-key").replaceChildren("Neighbors by", ...spaces.flatMap(([space, { title }]) => [views.element("i", { className: `ring ${space}` }), ` ${title} `]));
}

/* What the map can be colored by. */
export function listColors() {
  $("color").replaceChildren(...[...page.about.categories, "nothing"].map((name) => views.element("option", { value: name, textContent: name })));
}

/* Labels have changed: color by them anew. */
export async function relabel() {
  delete categories.label;
  known.clear();
  page.about = await ask("/api/about");
  listColors();
  paintMap();
  forgetCells();
}

/* A space has new points. */
export function forgetPoints(space) { delete points[space]; }

dark.addEventListener("change", () => { paintMap(); markMap(); });
