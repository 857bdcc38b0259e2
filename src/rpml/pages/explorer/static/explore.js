/* The explorer: what is looked at lives in the address, everything else follows from it. */
import { listClusters, showCluster, startClusters } from "./clusters.js";
import { closeFinder, finderKeys, suggestSoon } from "./finder.js";
import { startLabels } from "./labels.js";
import { forgetPoints, listColors, listSpaces, markMap, paintMap, showMaps, waitForMap } from "./map.js";
import { $, Problem, ask, calm, checked, complain, download, page, say, views } from "./page.js";
import { nextTool, select, selectButton, startSelection } from "./selection.js";
import { findRows, isFiltered, showMatches, startTable } from "./table.js";

const DEFAULTS = { id: "", upload: "", k: "20", across: "", tab: "neighbors", cluster: "", sort: "size", map: "rpml", other: "", color: "", view: "", q: "", where: "", by: "", show: "list" };
const ALLOWED = { tab: ["neighbors", "table", "clusters", "labels"], show: ["list", "gallery"], sort: ["size", "impurity", "name"], k: ["10", "20", "50", "100"] };
const narrow = matchMedia("(max-width: 61.99rem)");
let focusResults = false; // after an item was chosen in a list or searched for
let revealResults = false; // where they are below the map

/* ---- what is looked at ---- */

function readAddress() {
  const given = new URLSearchParams(location.search);
  const read = { ...DEFAULTS };
  for (const key of Object.keys(DEFAULTS)) {
    const value = given.get(key);
    if (value !== null && (!ALLOWED[key] || ALLOWED[key].includes(value))) read[key] = value;
  }
  return read;
}

function address() {
  const given = new URLSearchParams();
  for (const [key, value] of Object.entries(page.state)) if (value !== DEFAULTS[key]) given.set(key, value);
  const text = given.toString();
  return text ? `/?${text}` : "/";
}

/* Change what is looked at; a step back in the browser undoes a step that was `kept`. */
export function go(change, kept = true) {
  const before = page.state;
  page.state = { ...page.state, ...change };
  if (kept && address() !== location.pathname + location.search) history.pushState(null, "", address());
  else history.replaceState(null, "", address());
  update(before);
}

function update(before) {
  const changed = (...keys) => keys.some((key) => before[key] !== page.state[key]);
  const focused = document.activeElement;
  if (changed("tab")) showTab();
  if (focused.closest("[role=tabpanel][hidden]")) leaveField();
  if (changed("id", "upload", "k", "across")) search();
  if (changed("show") && chosen() && page.results.rpml) showResults();
  if (changed("cluster")) showCluster();
  if (changed("sort")) listClusters();
  if (changed("map", "other")) showMaps();
  if (changed("q")) showQuery();
  if (changed("q", "where", "by") || (changed("tab") && page.state.tab === "table")) findRows();
  else if (changed("tab")) showMatches();
  if (changed("color")) paintMap();
  if (changed("cluster", "tab", "map")) markMap();
}

/* ---- neighbors ---- */

/* What was searched for last: a text, else the item. */
function showQuery() { $("query").value = page.state.q || page.state.id; }

function chosen() {
  if (page.state.upload) return { upload: page.state.upload };
  return page.state.id ? { id: page.state.id } : null;
}

/* How many neighbors, and of which nuisance only those of other values (of items, not of uploads). */
function wanted() {
  const across = page.state.id && page.about.nuisance.includes(page.state.across) ? { across: page.state.across } : {};
  return { k: page.state.k, ...across };
}

async function search() {
  const query = chosen();
  $("queries").value = page.state.upload in page.about.queries ? page.state.upload : "";
  calm();
  for (const space of Object.keys(page.about.spaces)) page.results[space] = null;
  document.title = query ? `${page.state.id || "Upload"} · RPML explorer` : "RPML explorer";
  if (!query) {
    $("lists").hidden = true;
    $("asked").replaceChildren(welcome());
    markMap();
    return;
  }
  showQuery();
  try {
    await Promise.all(Object.keys(page.about.spaces).map(async (space) => {
      page.results[space] = await ask("/api/neighbors", { ...query, space, ...wanted() }, `search-${space}`);
    }));
    showResults();
    say(`Neighbors of ${page.results.rpml.query.title}`);
    focusResults = false;
    if (revealResults) $("results").scrollIntoView({ block: "start" });
    revealResults = false;
  } catch (problem) {
    if (problem.name === "AbortError") return;
    focusResults = false;
    $("lists").hidden = true;
    $("asked").replaceChildren(views.empty("Nothing found", [problem.message, "Check the id, or select an item on the map."], randomButton()));
    if (problem.status === undefined) complain(problem, search);
  }
  markMap();
}

function showResults() {
  const focused = document.activeElement;
  $("lists").hidden = false;
  $("asked").replaceChildren(views.asked(page.results.rpml.query, tools(), page.results.rpml.items.some((item) => item.scale !== undefined), (cluster) => go({ tab: "clusters", cluster: String(cluster) })));
  const lists = Object.keys(page.about.spaces).map((space) => page.results[space]);
  const rows = lists.map((found) => new Set(found.items.map((item) => item.row)));
  const shared = new Set([...rows[0]].filter((row) => rows.every((list) => list.has(row))));
  const everywhere = lists.length > 2 ? "in all" : "in both";
  $("lists").classList.toggle("gallery", page.state.show === "gallery");
  $("lists").replaceChildren(...Object.entries(page.about.spaces).map(([space, { title, n_dims: dims }]) => {
    const found = page.results[space];
    const heading = views.element("h2", { id: `list-${space}` }, title, " ", views.element("span", { className: "muted", textContent: `${views.counted(dims, "dimension")}, ${shared.size} ${everywhere}` }));
    const piece = page.state.show === "gallery" ? views.tile : views.hit;
    const hits = found.items.map((item, i) => piece(found.query, item, i + 1, shared.has(item.row) ? everywhere : "", follow));
    return views.element("section", { className: "list", dataset: { space }, attributes: { "aria-labelledby": `list-${space}` } }, heading, views.element("ol", {}, ...hits));
  }));
  if (focusResults || !focused.isConnected) keepFocus(focusResults ? "" : focused.id);
}

/* The results were replaced: to the same control as before, else to their heading. */
function keepFocus(id) { ($(id) || $("asked").querySelector("h2")).focus({ preventScroll: true }); }

function tools() {
  const size = views.element("select", { id: "how-many", ariaLabel: "How many neighbors", onchange: () => go({ k: size.value }) },
    ...ALLOWED.k.map((k) => views.element("option", { value: k, textContent: `${k} nearest`, selected: k === page.state.k })));
  const across = views.element("select", { id: "across", ariaLabel: "Which neighbors", hidden: !page.about.nuisance.length || !page.state.id, onchange: () => go({ across: across.value }) });
  for (const [name, text] of [["", "of all items"], ...page.about.nuisance.map((name) => [name, `of another ${name}`])]) across.append(views.element("option", { value: name, textContent: text, selected: name === page.state.across }));
  const gallery = page.state.show === "gallery";
  const change = () => { go({ show: gallery ? "list" : "gallery" }); $("show").focus(); };
  const show = views.element("button", { type: "button", id: "show", textContent: gallery ? "Show as lists" : "Show as gallery", hidden: !page.about.has_pictures, onclick: change });
  const select = selectButton("Select these", () => Object.values(page.results).filter(Boolean).flatMap((found) => found.items.map((item) => item.row)));
  return views.element("div", { className: "tools" }, size, across, show, select, download("/api/neighbors.csv", { ...chosen(), ...wanted() }));
}

function welcome() {
  const upload = page.about && page.about.accepts_images ? "a .npy vector or an image" : "a .npy vector";
  return views.empty("What is near what?", [
    "Type or paste an id, click a point on the map, or upload " + upload + ".",
    "You will see its nearest items by the raw features and in the learned embedding, side by side.",
  ], randomButton());
}

function randomButton() {
  return views.element("button", { type: "button", textContent: "Show a random item", onclick: showRandom });
}

async function showRandom() {
  try { pick(await ask("/api/random", {}, "random")); } catch (problem) { complain(problem, showRandom); }
}

export function pick(item) {
  go({ id: item.id, upload: "", tab: "neighbors" });
  $("results").scrollTop = 0;
  revealResults = narrow.matches;
}

/* From a list or the search: the results are new, so the focus goes to their heading. */
export function follow(item) {
  focusResults = true;
  pick(item);
}

/* ---- uploads ---- */

async function upload(file) {
  const vector = file.name.toLowerCase().endsWith(".npy");
  const path = vector ? "/api/upload/vector" : "/api/upload/image";
  calm();
  say(`Uploading ${file.name}`);
  try {
    const response = await fetch(path, { method: "POST", body: file, headers: { "content-type": "application/octet-stream", "x-file-name": encodeURIComponent(file.name) } });
    const kept = await (await checked(response)).json();
    go({ upload: kept.upload, id: "", tab: "neighbors" });
  } catch (problem) {
    complain(problem instanceof Problem ? problem : new Problem("The upload failed: is rpml explore still running?"));
  }
}

/* ---- listening ---- */

function showTab() {
  for (const name of ALLOWED.tab) {
    const on = page.state.tab === name;
    $(`tab-${name}`).setAttribute("aria-selected", String(on));
    $(`tab-${name}`).tabIndex = on ? 0 : -1;
    $(`panel-${name}`).hidden = !on;
  }
  if (page.state.tab === "clusters") {
    listClusters();
    if (!page.state.cluster) showCluster();
  }
}

/* A new embedding: one more list and one more map. */
export async function relearned() {
  page.about = await ask("/api/about");
  forgetPoints("learned");
  listSpaces();
  await search();
}

/* From a field, or from what is no longer shown, to the tab: the shortcuts work there. */
export function leaveField() { $(`tab-${page.state.tab}`).focus(); }

function shortcuts(event) {
  if (event.key === "Escape" && !event.defaultPrevented && event.target.matches("main input[type=text], main select")) leaveField();
  const typing = event.target.closest("input:not([type=radio]), select, textarea, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const acts = {
    "/": () => { $("query").focus(); $("query").select(); },
    m: () => $("map").focus(),
    n: () => { go({ tab: "neighbors" }); $("tab-neighbors").focus(); },
    c: () => { go({ tab: "clusters" }); $("tab-clusters").focus(); },
    r: showRandom,
    l: () => { if (page.about.can_label) { go({ tab: "labels" }); $("tab-labels").focus(); } },
    t: () => { go({ tab: "table" }); $("tab-table").focus(); },
    s: nextTool,
    u: () => $("upload").click(),
    b: () => { const maps = Object.keys(page.about.spaces); go({ map: maps[(maps.indexOf(page.state.map) + 1) % maps.length] }, false); },
    "?": () => $("help").showModal(),
  };
  if (!acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
}

function tabKeys(event) {
  if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
  const tabs = ALLOWED.tab.filter((name) => !$(`tab-${name}`).hidden);
  const step = event.key === "ArrowRight" ? 1 : tabs.length - 1;
  const tab = tabs[(tabs.indexOf(page.state.tab) + step) % tabs.length];
  go({ tab });
  $(`tab-${tab}`).focus();
}

function listen() {
  $("query").addEventListener("input", suggestSoon);
  $("query").addEventListener("keydown", finderKeys);
  $("query").addEventListener("blur", () => setTimeout(closeFinder, 100));
  $("random").addEventListener("click", showRandom);
  $("queries").addEventListener("change", () => go({ upload: $("queries").value, id: "", tab: "neighbors" }));
  $("upload-button").addEventListener("click", () => $("upload").click());
  $("upload").addEventListener("change", () => { if ($("upload").files[0]) upload($("upload").files[0]); $("upload").value = ""; });
  $("help-button").addEventListener("click", () => $("help").showModal());
  for (const name of ALLOWED.tab) {
    $(`tab-${name}`).addEventListener("click", () => go({ tab: name }));
    $(`tab-${name}`).addEventListener("keydown", tabKeys);
  }
  $("sort").addEventListener("change", () => go({ sort: $("sort").value }));
  $("other").addEventListener("change", () => go({ other: $("other").value }, false));
  $("color").addEventListener("change", () => go({ color: $("color").value }, false));
  $("zoom-in").addEventListener("click", () => page.maps.forEach((map) => map.zoomIn(1.6)));
  $("zoom-out").addEventListener("click", () => page.maps.forEach((map) => map.zoomIn(1 / 1.6)));
  $("zoom-all").addEventListener("click", () => page.maps.forEach((map) => map.reset()));
  document.addEventListener("keydown", shortcuts);
  for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
  document.addEventListener("drop", (event) => { if (event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]); });
  window.addEventListener("popstate", () => {
    const before = page.state;
    page.state = readAddress();
    $("sort").value = page.state.sort;
    update(before);
  });
}

function describe() {
  $("about").textContent = `${page.about.name ? page.about.name + " · " : ""}${views.counted(page.about.rows, "item")}`;
  listColors();
  const queries = Object.entries(page.about.queries);
  $("queries").append(...queries.map(([value, textContent]) => views.element("option", { value, textContent })));
  $("queries").hidden = !queries.length;
  $("map-note").textContent = page.about.map_note;
  $("map-note").hidden = !page.about.map_note;
  if (page.about.accepts_images) $("upload").accept = ".npy,image/*";
  else $("upload-button").textContent = "Upload a .npy query";
  $("sort").value = page.state.sort;
}

async function start() {
  try {
    page.about = await ask("/api/about");
  } catch (problem) {
    return complain(problem, start);
  }
  if (page.about.spaces.second) DEFAULTS.other = "second"; // two models: their maps side by side
  page.state = readAddress();
  if (page.state.tab === "labels" && !page.about.can_label) page.state.tab = "neighbors";
  describe();
  listen();
  window.rpmlExplorer = { go, page, select };
  listSpaces();
  startSelection();
  startTable();
  startClusters();
  if (page.about.can_label) startLabels();
  showQuery();
  showTab();
  showCluster();
  waitForMap();
  if (isFiltered() || page.state.tab === "table") findRows();
  revealResults = narrow.matches; // a link to an item
  await search();
}

start();
