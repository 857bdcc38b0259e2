/* Finding items by a part of their id, text or metadata. */
import { follow, go, leaveField, pick } from "./explore.js";
import { $, ask, cancel, complain, views } from "./page.js";

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
    const onmousedown = (event) => { event.preventDefault(); closeFinder(); pick(item); };
    return views.element("li", { id: `option-${i}`, role: "option", ariaSelected: "false", onmousedown }, views.image(item, ""), item.text);
  });
  if (!options.length) options.push(views.element("li", { className: "none", role: "option", ariaDisabled: "true", ariaSelected: "false", textContent: "No item contains this." }));
  if (finder.total > 1) options.push(allMatches(text));
  $("suggestions").replaceChildren(...options);
  $("suggestions").hidden = false;
  $("query").setAttribute("aria-expanded", "true");
  finder.at = -1;
}

/* The last suggestion: every match, marked on the map and in the table. */
function allMatches(text) {
  const onmousedown = (event) => { event.preventDefault(); closeFinder(); go({ q: text }); };
  finder.items.push({ matches: text });
  return views.element("li", { id: `option-${finder.items.length - 1}`, className: "all", role: "option", ariaSelected: "false", onmousedown, textContent: `Show all ${views.counted(finder.total, "match", "matches")}` });
}

function moveFinder(step) {
  if (!finder.items.length || $("suggestions").hidden) return;
  const from = finder.at < 0 && step < 0 ? 0 : finder.at; // upwards from nothing: the last one
  finder.at = (from + step + finder.items.length) % finder.items.length;
  [...$("suggestions").children].forEach((option, i) => option.setAttribute("aria-selected", String(i === finder.at)));
  $(`option-${finder.at}`).scrollIntoView({ block: "nearest" });
  $("query").setAttribute("aria-activedescendant", `option-${finder.at}`);
}

/* The item with this id, else every item that contains the text. */
async function findText(text) {
  if (!text) return;
  try {
    const { items, total } = await ask("/api/find", { q: text, most: 1 }, "find");
    if (total && items[0].id !== text) { go({ q: text, tab: "table" }); $("grid").focus({ preventScroll: true }); }
    else follow({ id: text });
  } catch (problem) {
    complain(problem, () => findText(text));
  }
}

export function finderKeys(event) {
  if (event.key === "ArrowDown") moveFinder(1);
  else if (event.key === "ArrowUp") moveFinder(-1);
  else if (event.key === "Escape") { if ($("suggestions").hidden) leaveField(); else closeFinder(); }
  else if (event.key === "Enter") {
    const item = finder.items[finder.at];
    clearTimeout(finder.timer);
    cancel("find");
    closeFinder();
    if (item?.matches) go({ q: item.matches });
    else if (item) follow(item);
    else findText($("query").value.trim());
  } else return;
  event.preventDefault();
}
