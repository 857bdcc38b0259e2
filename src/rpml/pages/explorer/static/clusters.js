/* The list of clusters, and one cluster. */
import { follow, go } from "./explore.js";
import { $, ask, clusterRows, complain, download, page, views } from "./page.js";
import { selectButton } from "./selection.js";

let listed = [];
let total = 0;
let prepared = null;

/* Whether there are clusters, asked once they are ready; while they are not, the page says so. */
export function clustersReady() {
  prepared = prepared || new Promise((resolve, reject) => {
    const look = async () => {
      try {
        const { state: now, reason } = (await ask("/api/status")).clusters;
        if (now === "ready") return resolve(true);
        const text = now === "missing" ? `There are no clusters to show: ${reason}.` : "The clusters are being prepared …";
        $("cluster-list").replaceChildren(views.element("p", { className: "empty", textContent: text }));
        if (now === "missing") return resolve(false);
        setTimeout(look, 1000);
      } catch (problem) {
        prepared = null;
        reject(problem);
      }
    };
    look();
  });
  return prepared;
}

export async function listClusters(more = false) {
  if (page.state.tab !== "clusters" && !more) return;
  try {
    if (!await clustersReady()) return;
    const answer = await ask("/api/clusters", { sort: page.state.sort, start: more ? listed.length : 0 }, "clusters");
    listed = more ? [...listed, ...answer.clusters] : answer.clusters;
    total = answer.total;
    drawClusters();
  } catch (problem) {
    complain(problem, listClusters);
  }
}

/* One stop for Tab: the arrows go from cluster to cluster, Tab goes on to the one that is open. */
function listKeys(event) {
  const picks = pickButtons(), at = picks.indexOf(event.target);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: picks.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  stopAt(picks[Math.max(0, Math.min(picks.length - 1, to))]).focus();
}

function pickButtons() { return [...$("cluster-list").querySelectorAll("button.pick")]; }

function stopAt(stop) {
  for (const button of pickButtons()) button.tabIndex = button === stop ? 0 : -1;
  return stop;
}

export function startClusters() { $("cluster-list").addEventListener("keydown", listKeys); }

function drawClusters() {
  const rows = listed.map((cluster) => views.clusterRow(cluster, String(cluster.cluster) === page.state.cluster, (name) => go({ cluster: String(name) })));
  const box = $("cluster-list");
  const focused = document.activeElement?.closest?.("tr")?.rowIndex;
  box.replaceChildren(views.clusterTable(rows));
  const picks = pickButtons();
  const stop = stopAt(picks[focused - 1] || box.querySelector("[aria-current] button") || picks[0]);
  if (focused > 0) stop?.focus({ preventScroll: true });
  if (listed.length < total) {
    const showMore = async () => {
      const next = listed.length;
      await listClusters(true);
      stopAt(pickButtons()[next])?.focus();
    };
    box.append(views.element("button", { type: "button", className: "more", textContent: `Show more (${(total - listed.length).toLocaleString("en")} left)`, onclick: showMore }));
  }
}

export async function showCluster() {
  const box = $("cluster");
  box.replaceChildren();
  if (page.state.tab !== "clusters" && !page.state.cluster) return;
  try {
    if (!await clustersReady()) return;
    if (listed.length) drawClusters();
    if (!page.state.cluster) {
      box.replaceChildren(views.element("p", { className: "empty", textContent: "Select a cluster to see its items, the most typical one first." }));
      return;
    }
    const found = await ask("/api/cluster", { cluster: page.state.cluster }, "cluster");
    box.replaceChildren(views.cluster(found, follow, clusterTools()));
  } catch (problem) {
    if (problem.name === "AbortError") return;
    if (problem.status) box.replaceChildren(views.element("p", { className: "empty", textContent: problem.message }));
    else complain(problem, showCluster);
  }
}

function clusterTools() {
  const select = selectButton("Select its items", () => clusterRows(page.state.cluster));
  return views.element("span", {}, download("/api/cluster.csv", { cluster: page.state.cluster }), " ", select);
}
