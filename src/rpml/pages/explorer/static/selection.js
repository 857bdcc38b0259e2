/* The selected items, the same on the map, in the table and for the labels. */
import { $, page, say, views } from "./page.js";

const TOOLS = ["move", "box", "lasso"];
const listeners = [];
const selection = { mask: null, count: 0 };

/* Call `listener` whenever the selection has changed. */
export function onSelection(listener) { listeners.push(listener); }

export function isSelected(row) { return Boolean(selection.mask?.[row]); }

export function selectedRows() {
  const rows = [];
  selection.mask?.forEach((on, row) => { if (on) rows.push(row); });
  return rows;
}

export function select(rows, add = false) {
  const mask = add && selection.mask ? selection.mask : new Uint8Array(page.about.rows);
  for (const row of rows) mask[row] = 1;
  change(mask);
}

export function toggle(row) {
  const mask = selection.mask || new Uint8Array(page.about.rows);
  mask[row] = 1 - mask[row];
  change(mask);
}

function change(mask) {
  selection.count = 0;
  for (let row = 0; row < mask.length; row++) selection.count += mask[row];
  selection.mask = selection.count ? mask : null;
  showSelection();
  for (const listener of listeners) listener();
}

export function showSelection() {
  const n = selection.count;
  const text = n ? `${views.counted(n, "item is", "items are")} selected.` : "Nothing is selected.";
  $("selection").textContent = text;
  $("selected").hidden = !n;
  $("selected").firstElementChild.textContent = text;
  for (const map of page.maps) map.setSelection(selection.mask);
}

export function nextTool() {
  const now = document.querySelector("input[name=tool]:checked").value;
  useTool(TOOLS[(TOOLS.indexOf(now) + 1) % TOOLS.length]);
}

export function useTool(tool) {
  document.querySelector(`input[name=tool][value=${tool}]`).checked = true;
  for (const map of page.maps) map.tool = tool;
  say(`Dragging on the map: ${tool}`);
}

/* A button that selects the rows that `rows` gives. */
export function selectButton(text, rows) {
  return views.element("button", { type: "button", textContent: text, onclick: async () => select(await rows()) });
}

export function startSelection() {
  for (const input of document.querySelectorAll("input[name=tool]")) input.addEventListener("change", () => useTool(input.value));
  for (const button of document.querySelectorAll(".clear-selection")) button.addEventListener("click", () => { select([]); if ($("selected").contains(button)) $("map").focus({ preventScroll: true }); });
  showSelection();
}
