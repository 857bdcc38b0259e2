/* The table of all items: only the rows in view are in the page. */
import { follow, go } from "./explore.js";
import { $, ask, calm, complain, page, request, say, views } from "./page.js";
import { isSelected, onSelection, select, selectButton, toggle } from "./selection.js";

const ROW = 32; // pixels per row, as in the style sheet
const TALLEST = 1e7; // pixels that every browser can scroll; longer tables scroll faster
const AHEAD = 40; // rows fetched before and after those in view
const cells = new Map(); // row -> its values
let columns = [];
let found = new Uint32Array(0); // rows that pass search and filters, sorted
let order = found; // of these, what is shown
let current = 0; // place in `order`
let anchor = 0; // where a range of rows begins
let own = false; // whether the table itself changes the selection
let drawing = 0;

export function filters() { return new URLSearchParams(page.state.where); }
export function isFiltered() { return Boolean(page.state.q || page.state.where); }

/* ---- which rows ---- */

export async function findRows() {
  if (page.state.tab !== "table" && !isFiltered() && found.length) return showMatches();
  const query = { q: page.state.q, by: page.state.by };
  for (const [name, condition] of filters()) query[`where.${name}`] = condition;
  try {
    if (!columns.length) await makeHead();
    found = new Uint32Array(await (await request("/api/table/rows", query, "table")).arrayBuffer());
  } catch (problem) {
    return complain(problem, findRows);
  }
  calm();
  current = anchor = 0;
  $("table-scroll").scrollTop = 0;
  showHead();
  showMatches();
  showOrder();
}

/* Everything that was found, or only what is selected of it. */
function showOrder() {
  order = $("only-selected").checked ? found.filter(isSelected) : found;
  current = Math.min(current, Math.max(0, order.length - 1));
  $("grid").setAttribute("aria-rowcount", order.length + 1);
  $("table-space").style.height = `${Math.min(TALLEST, headHeight() + order.length * ROW)}px`;
  const all = views.counted(page.about.rows, "item");
  $("table-status").textContent = order.length === page.about.rows ? all : `${order.length.toLocaleString("en")} of ${all}`;
  draw();
}

/* What was found stands out on the map, and is counted below it. */
export function showMatches() {
  const box = $("matches");
  box.hidden = !isFiltered();
  let mask = null;
  if (isFiltered()) {
    mask = new Uint8Array(page.about.rows);
    for (const row of found) mask[row] = 1;
    const clear = views.element("button", { type: "button", textContent: "Clear", onclick: () => { go({ q: "", where: "" }); $("query").focus(); } });
    const showTable = () => { go({ tab: "table" }); $("tab-table").focus(); };
    const table = views.element("button", { type: "button", textContent: "Show in the table", hidden: page.state.tab === "table", onclick: showTable });
    const passes = found.length === 1 ? "passes" : "pass";
    const text = page.state.q ? `${views.counted(found.length, "item contains", "items contain")} “${page.state.q}”${page.state.where ? ` and ${passes} the filters` : ""}. ` : `${views.counted(found.length, "item")} ${passes} the filters. `;
    box.replaceChildren(text, selectButton("Select them", () => found), " ", table, " ", clear);
  }
  for (const map of page.maps) map.filter("matches", mask);
}

/* ---- the head: sorting and filters ---- */

async function makeHead() {
  ({ columns } = await ask("/api/table"));
  $("grid").setAttribute("aria-colcount", columns.length);
  $("grid").style.width = `max(100%, ${9 * columns.length + 8}rem)`;
  $("table-head").replaceChildren(...columns.map(({ name, numeric }) => {
    const sort = () => go({ by: page.state.by === name ? `-${name}` : page.state.by === `-${name}` ? "" : name }, false);
    const button = views.element("button", { type: "button", onclick: sort }, name, views.element("span", { className: "arrow", ariaHidden: "true" }));
    const input = views.element("input", { type: "text", ariaLabel: `Filter ${name}`, placeholder: numeric ? "e.g. >= 3 < 7" : "contains", autocomplete: "off", spellcheck: false, dataset: { column: name } });
    let waiting = 0;
    input.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 200); });
    return views.element("th", { scope: "col", className: numeric ? "number" : "", dataset: { column: name } }, button, input);
  }));
}

function filter() {
  const where = new URLSearchParams();
  for (const input of $("table-head").querySelectorAll("input")) if (input.value.trim()) where.set(input.dataset.column, input.value.trim());
  go({ where: where.toString() }, false);
}

function showHead() {
  const where = filters();
  for (const head of $("table-head").children) {
    const { column } = head.dataset, by = page.state.by;
    head.setAttribute("aria-sort", by === column ? "ascending" : by === `-${column}` ? "descending" : "none");
    head.querySelector(".arrow").textContent = by === column ? " ▲" : by === `-${column}` ? " ▼" : "";
    const input = head.querySelector("input");
    if (input !== document.activeElement) input.value = where.get(column) || "";
  }
}

/* ---- the rows in view ---- */

function headHeight() { return $("table-head").parentElement.offsetHeight; }
function fitting() { return Math.max(1, ($("table-scroll").clientHeight - headHeight()) / ROW); }

/* Pixels that can be scrolled, and rows that pass meanwhile. */
function scrolling() {
  const view = $("table-scroll");
  return { pixels: Math.max(1, $("table-space").offsetHeight - view.clientHeight), rows: Math.max(0, order.length - fitting()) };
}

function draw() { drawing = drawing || requestAnimationFrame(() => { drawing = 0; paint(); }); }

function paint() {
  if ($("panel-table").hidden) return;
  const { pixels, rows } = scrolling();
  const place = Math.min(1, $("table-scroll").scrollTop / pixels) * rows;
  const first = Math.floor(place), last = Math.min(order.length, Math.ceil(place + fitting()) + 1);
  const body = $("table-body");
  body.style.transform = `translateY(${-(place - first) * ROW}px)`;
  body.replaceChildren(...Array.from(order.subarray(first, last), (row, i) => line(row, first + i)));
  if (first <= current && current < last) $("grid").setAttribute("aria-activedescendant", `line-${current}`);
  else $("grid").removeAttribute("aria-activedescendant");
  fetchCells(first, last);
}

function line(row, place) {
  const wanted = page.state.q.toLowerCase(), values = cells.get(row);
  const onclick = (event) => pickLine(place, event), onpointerenter = () => page.maps.forEach((map) => map.mark({ hover: row }));
  return views.element("tr", { id: `line-${place}`, className: place === current ? "current" : "", ariaRowIndex: place + 2, ariaSelected: String(isSelected(row)), onclick, onpointerenter },
    ...columns.map(({ name, numeric }, c) => {
      const text = values ? values[c] : "…";
      const content = marked(text, name === "cluster" ? "" : wanted);
      if (name !== "id") return views.element("td", { className: numeric ? "number" : "", title: text }, ...content);
      const onclick = (event) => { event.stopPropagation(); if (values) follow({ id: text }); };
      return views.element("td", { className: "pick" }, views.element("button", { type: "button", tabIndex: -1, title: `Neighbors of ${text}`, onclick }, ...content));
    }));
}

/* A text with every occurrence of what was searched; the first one is never out of sight. */
function marked(text, wanted) {
  const low = text.toLowerCase();
  let hit = wanted ? low.indexOf(wanted) : -1;
  const word = low.lastIndexOf(" ", hit - 2) + 1; // the one before
  let at = hit <= 9 ? 0 : hit - word < 16 ? word : hit - 6;
  const nodes = at ? ["…"] : [];
  for (; hit >= 0; hit = low.indexOf(wanted, at)) {
    nodes.push(text.slice(at, hit), views.element("mark", { textContent: text.slice(hit, hit + wanted.length) }));
    at = hit + wanted.length;
  }
  return [...nodes, text.slice(at)];
}

async function fetchCells(first, last) {
  if (order.subarray(first, last).every((row) => cells.has(row))) return;
  const missing = [...order.subarray(Math.max(0, first - AHEAD), last + AHEAD)].filter((row) => !cells.has(row));
  try {
    const answer = await ask("/api/table/cells", { rows: missing.join(",") }, "cells");
    if (cells.size > 50000) cells.clear();
    missing.forEach((row, i) => cells.set(row, answer.cells[i]));
    draw();
  } catch (problem) {
    complain(problem, draw);
  }
}

/* ---- choosing rows ---- */

/* With Ctrl a row is added or removed, with Shift all rows since the last one are selected. */
function pickLine(place, { ctrlKey, metaKey, shiftKey }) {
  own = true;
  current = place;
  if (shiftKey) select(order.slice(Math.min(anchor, place), Math.max(anchor, place) + 1));
  else if (ctrlKey || metaKey) toggle(order[place]);
  else select([order[place]]);
  if (!shiftKey) anchor = place;
  own = false;
  reach(place);
}

/* Make a place of the table the current one, bring it into view, and ring it on the map. */
function reach(place) {
  current = place;
  const { pixels, rows } = scrolling();
  const now = Math.min(1, $("table-scroll").scrollTop / pixels) * rows;
  const next = Math.max(Math.min(now, place), place - fitting() + 1);
  if (next !== now && rows) $("table-scroll").scrollTop = Math.round((next / rows) * pixels);
  for (const map of page.maps) map.mark({ hover: order[place] });
  draw();
}

function keys(event) {
  if (event.target !== $("grid") || !order.length) return;
  const jump = Math.floor(fitting()) - 1, last = order.length - 1;
  const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: jump, PageUp: -jump, Home: -last, End: last };
  if (event.key in moves) {
    reach(Math.max(0, Math.min(last, current + moves[event.key])));
    if (event.shiftKey) pickLine(current, { shiftKey: true });
    say((cells.get(order[current]) || []).filter(Boolean).join(", "));
  } else if (event.key === " ") pickLine(current, { ctrlKey: true });
  else if (event.key === "Enter" && cells.has(order[current])) follow({ id: cells.get(order[current])[0] });
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/* Labels have changed. */
export function forgetCells() { cells.clear(); columns = []; findRows(); }

export function startTable() {
  $("table-scroll").addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(showOrder).observe($("table-scroll"));
  $("grid").addEventListener("keydown", keys);
  $("only-selected").addEventListener("change", showOrder);
  $("table-tools").append(selectButton("Select all of these", () => order));
  onSelection(() => {
    if ($("only-selected").checked) showOrder();
    const first = own ? -1 : order.findIndex(isSelected);
    if (first >= 0) reach(first);
    else draw();
  });
}
