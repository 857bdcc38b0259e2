/* Finding items by a part of their id, text or metadata. */
import { go, pick } from "./explore.js";
import { $, ask, cancel, complain, page, request, views } from "./page.js";

const finder = { items: [], at: -1, timer: 0 };

export function suggestSoon() {
  clearTimeout(finder.timer);
  finder.timer = setTimeout(suggest, 90);
}

export function closeFinder() {
  $("suggestions").hidden = true;
  $("query").setAttribute("aria-expanded", "false");
  $("query").removeAttribute("aria-activedescendant");
  finder.at = -1;
}

async function suggest() {
  const text = $("query").value.trim();
  if (!text) return closeFinder();
  try {
    const found = await ask("/api/find", { q: text }, "find");
    finder.items = found.items;
    finder.total = found.total;
  } catch (problem) {
    return complain(problem, suggest);
  }
  const options = finder.items.map((item, i) => {
    const option = views.element("li", { id: `option-${i}`, attributes: { role: "option", "aria-selected": "false" } }, views.image(item, ""), item.text);
    option.addEventListener("mousedown", (event) => { event.preventDefault(); closeFinder(); pick(item); });
    return option;
  });
  if (!options.length) options.push(views.element("li", { className: "none", attributes: { role: "option", "aria-disabled": "true", "aria-selected": "false" }, textContent: "No item contains this." }));
  if (finder.total > 1) options.push(allMatches(text));
  $("suggestions").replaceChildren(...options);
  $("suggestions").hidden = false;
  $("query").setAttribute("aria-expanded", "true");
  finder.at = -1;
}

/* The last suggestion: every match, marked on the map. */
function allMatches(text) {
  const count = finder.total.toLocaleString("en");
  const option = views.element("li", { id: `option-${finder.items.length}`, className: "all", attributes: { role: "option", "aria-selected": "false" }, textContent: `Mark all ${count} matches on the map` });
  option.addEventListener("mousedown", (event) => { event.preventDefault(); closeFinder(); markMatches(text); });
  finder.items.push({ matches: text });
  return option;
}

async function markMatches(text) {
  try {
    const rows = text ? new Uint32Array(await (await request("/api/find/rows", { q: text }, "matches")).arrayBuffer()) : [];
    const mask = text ? new Uint8Array(page.map.n) : null;
    for (const row of rows) mask[row] = 1;
    page.map?.filter("matches", mask);
    $("matches").hidden = !text;
    if (!text) return;
    const clear = views.element("button", { type: "button", textContent: "Clear" });
    clear.addEventListener("click", () => { markMatches(""); $("query").focus(); });
    const select = views.element("button", { type: "button", textContent: "Select them", hidden: !page.about.can_label });
    select.addEventListener("click", () => window.rpmlLabels.select(rows));
    $("matches").replaceChildren(`${rows.length.toLocaleString("en")} items contain “${text}”. `, select, " ", clear);
  } catch (problem) {
    complain(problem, () => markMatches(text));
  }
}

function moveFinder(step) {
  if (!finder.items.length || $("suggestions").hidden) return;
  const from = finder.at < 0 && step < 0 ? 0 : finder.at; // upwards from nothing: the last one
  finder.at = (from + step + finder.items.length) % finder.items.length;
  [...$("suggestions").children].forEach((option, i) => option.setAttribute("aria-selected", String(i === finder.at)));
  $(`option-${finder.at}`).scrollIntoView({ block: "nearest" });
  $("query").setAttribute("aria-activedescendant", `option-${finder.at}`);
}

export function finderKeys(event) {
  if (event.key === "ArrowDown") moveFinder(1);
  else if (event.key === "ArrowUp") moveFinder(-1);
  else if (event.key === "Escape") closeFinder();
  else if (event.key === "Enter") {
    const item = finder.items[finder.at];
    clearTimeout(finder.timer);
    cancel("find");
    closeFinder();
    if (item?.matches) markMatches(item.matches);
    else if (item) pick(item);
    else if ($("query").value.trim()) go({ id: $("query").value.trim(), upload: "", tab: "neighbors" });
  } else return;
  event.preventDefault();
}
