/* Labeling items, the queue of suggestions, and learning again. */
import { go, pick, relearned } from "./explore.js";
import { relabel } from "./map.js";
import { $, ask, checked, complain, page, request, say, views } from "./page.js";
import { select, selectedRows } from "./selection.js";

let queue = [];
let labels = [];

async function post(path, body = {}) {
  const response = await fetch(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });
  return (await checked(response)).json();
}

/* Run an action; the page shows what goes wrong. */
function attempt(action) {
  return async (...given) => {
    try { return await action(...given); } catch (problem) { return complain(problem); }
  };
}

/* ---- labels ---- */

function show(summary) {
  labels = summary.labels;
  $("known-labels").replaceChildren(...labels.map(({ label }) => views.element("option", { value: label })));
  $("label-list").replaceChildren(...labels.map(({ label, count }, i) => {
    const number = i < 9 ? views.element("kbd", { textContent: String(i + 1) }) : null;
    const onclick = attempt(async () => select(new Uint32Array(await (await request("/api/labels/rows", { label })).arrayBuffer())));
    return views.element("button", { type: "button", title: `Select the items labeled ${label}`, onclick }, number,
      views.element("span", { className: "name", textContent: label }),
      views.element("span", { className: "count", textContent: count.toLocaleString("en") }));
  }));
  $("undo").disabled = !summary.can_undo;
  const n = summary.n_labeled;
  const labeled = n === 0 ? "No item is labeled" : views.counted(n, "item is labeled", "items are labeled");
  $("label-status").textContent = `${labeled}; ${summary.is_saved ? "saved in" : "the first change writes all labels to"} ${summary.file}.`;
}

async function assign(rows, label) {
  const summary = await post("/api/labels", { rows, label });
  show(summary);
  relabel();
  say(label === null ? `${views.counted(summary.changed, "label")} removed` : `${views.counted(summary.changed, "item")} labeled ${label}`);
}

const assignSelected = attempt(async (label) => {
  const rows = selectedRows();
  if (!rows.length) return say("Select items first");
  await assign(rows, label);
  if (label !== null) $("label").value = "";
});

const undo = attempt(async () => {
  show(await post("/api/labels/undo"));
  if ($("undo").disabled) $("label").focus();
  relabel();
  say("Undone");
});

/* ---- suggestions ---- */

const suggest = attempt(async () => {
  queue = (await ask("/api/suggest", { n: 10 })).items;
  showQuestion("There is no item left to suggest: learn again.");
});

function showQuestion(none = "No suggestion left: ask for more, or learn again.") {
  const item = queue[0];
  if (!item) return $("queue").replaceChildren(views.element("p", { className: "muted", textContent: none }));
  for (const map of page.maps) {
    map.mark({ selected: item.row });
    map.reveal(item.row);
  }
  const input = views.element("input", { type: "text", ariaLabel: `Label of ${item.id}`, autocomplete: "off", maxLength: 200, attributes: { list: "known-labels" } });
  const next = () => { queue.shift(); showQuestion(); if (!queue.length) $("suggest").focus(); };
  const skip = views.element("button", { type: "button", textContent: "Skip", onclick: next });
  const look = views.element("button", { type: "button", textContent: "Show its neighbors", onclick: () => pick(item) });
  const onsubmit = (event) => { event.preventDefault(); if (input.value.trim()) answer(item, input.value); };
  const form = views.element("form", { onsubmit },
    views.element("p", { textContent: item.text }),
    views.element("div", { className: "answer" }, input, views.element("button", { textContent: "Assign" }), skip, look));
  input.addEventListener("keydown", (event) => {
    const known = labels[Number(event.key) - 1];
    if (!input.value && known && event.key >= "1" && event.key <= "9") { event.preventDefault(); answer(item, known.label); }
  });
  const picture = views.image(item, item.id, true);
  $("queue").replaceChildren(views.element("div", { className: "question" }, picture && views.element("div", { className: "item query" }, picture), form));
  input.focus();
}

const answer = attempt(async (item, label) => {
  await assign([item.row], label);
  queue.shift();
  if (queue.length) showQuestion();
  else await suggest();
});

/* ---- learning again ---- */

const learn = attempt(async () => { showLearning(await post("/api/learn")); });

function showLearning(now) {
  const working = now.state === "working", focused = document.activeElement;
  $("learn").disabled = working;
  $("cancel-learning").hidden = !working;
  if (working && focused === $("learn")) $("cancel-learning").focus();
  if (!working && focused === $("cancel-learning")) $("learn").focus();
  if (working) {
    $("learning").textContent = `Learning: ${now.stage}, ${Math.round(100 * now.share)}%`;
    setTimeout(attempt(async () => showLearning(await ask("/api/learn"))), 500);
  } else if (now.state === "failed") $("learning").textContent = `Learning failed: ${now.message}`;
  else if (now.state === "ready") {
    const { before, after, gain } = now.recall;
    const points = (share) => `${share > 0 ? "+" : share < 0 ? "\u2212" : ""}${Math.abs(100 * share).toFixed(1)}`;
    $("learning").textContent = `Learned from ${views.counted(now.n_labeled, "label")}. The nearest labeled item has the same label (Recall@1) for ${(100 * before.value).toFixed(1)}% of the labeled items before, ${(100 * after.value).toFixed(1)}% after: ${points(gain.value)} points, 95% interval ${points(gain.low)} to ${points(gain.high)}. The labels were used to learn, so the gain on other items is smaller.`;
    attempt(async () => { await relearned(); go({ map: "rpml", other: "learned" }, false); })();
  } else $("learning").textContent = "";
}

/* ---- listening ---- */

export function startLabels() {
  $("tab-labels").hidden = false;
  $("assign").addEventListener("submit", (event) => { event.preventDefault(); if ($("label").value.trim()) assignSelected($("label").value); });
  $("unlabel").addEventListener("click", () => assignSelected(null));
  $("undo").addEventListener("click", undo);
  $("suggest").addEventListener("click", suggest);
  $("learn").addEventListener("click", learn);
  $("cancel-learning").addEventListener("click", attempt(async () => { await post("/api/learn/cancel"); }));
  attempt(async () => show(await ask("/api/labels")))();
  attempt(async () => { const now = await ask("/api/learn"); if (now.state !== "idle") showLearning(now); })();
}
