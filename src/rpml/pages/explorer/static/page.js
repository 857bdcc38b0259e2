/* What every part of the page shares: what is looked at, and how the server is asked. */
import * as views from "./views.js";

export const $ = (id) => document.getElementById(id);
export { views };
/* state: what is looked at; about: what the server answered about itself; maps: each a Scatter, once
   drawn; results: the neighbors by space. */
export const page = { state: {}, about: null, maps: [], results: {} };

export class Problem extends Error {}

const running = {};

export function cancel(slot) { running[slot]?.abort(); }

export async function request(path, parameters = {}, slot = "") {
  if (slot) {
    cancel(slot);
    running[slot] = new AbortController();
  }
  const url = new URL(path, location.origin);
  for (const [key, value] of Object.entries(parameters)) url.searchParams.set(key, value);
  let response;
  try {
    response = await fetch(url, { signal: slot ? running[slot].signal : undefined });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The explorer does not answer: is rpml explore still running?");
  }
  return checked(response);
}

export async function checked(response) {
  if (response.ok) return response;
  let sentence = `the server answered ${response.status}`;
  try { sentence = (await response.json()).error || sentence; } catch { /* not JSON */ }
  const problem = new Problem(sentence[0].toUpperCase() + sentence.slice(1) + ".");
  problem.status = response.status;
  throw problem;
}

export async function ask(path, parameters, slot) {
  return (await request(path, parameters, slot)).json();
}

export function complain(problem, retry) {
  if (problem.name === "AbortError") return;
  const box = $("alert");
  box.hidden = false;
  box.replaceChildren(problem instanceof Problem ? problem.message : "Something went wrong on this page.");
  if (!(problem instanceof Problem)) console.error(problem);
  if (retry) box.append(views.element("button", { type: "button", textContent: "Try again", onclick: () => { calm(); retry(); } }));
}

export function calm() { $("alert").hidden = true; }
export function say(text) { $("announcement").textContent = text; }

export function download(path, parameters) {
  const href = `${path}?${new URLSearchParams(parameters)}`;
  return views.element("a", { href, download: "rpml-result.csv", textContent: "Export CSV" });
}

export async function clusterRows(cluster) {
  return new Uint32Array(await (await request("/api/cluster/rows", { cluster }, "rows")).arrayBuffer());
}
