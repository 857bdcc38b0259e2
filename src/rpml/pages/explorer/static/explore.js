"use strict";
/* The explorer: what is looked at lives in the address, everything else follows from it. */
(() => {
  const { Scatter, Legend, unpack } = window.rpml;
  const views = window.rpmlViews;
  const $ = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const DEFAULTS = { id: "", upload: "", k: "20", tab: "neighbors", cluster: "", sort: "size", least: "1", map: "rpml", color: "", view: "" };
  const ALLOWED = { tab: ["neighbors", "clusters", "labels"], map: ["raw", "rpml", "learned"], sort: ["size", "impurity", "name"], k: ["10", "20", "50", "100"] };
  const narrow = matchMedia("(max-width: 61.99rem)");
  let state = { ...DEFAULTS };
  let about = null;
  let map = null;
  const points = {};
  const categories = {};
  const results = {};
  const running = {};
  let focusResults = false; // after an item of a list was chosen by keyboard
  let revealResults = false; // where they are below the map

  /* ---- asking the server ---- */

  class Problem extends Error {}

  async function request(path, parameters = {}, slot = "") {
    if (slot) {
      running[slot]?.abort();
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

  async function checked(response) {
    if (response.ok) return response;
    let sentence = `the server answered ${response.status}`;
    try { sentence = (await response.json()).error || sentence; } catch { /* not JSON */ }
    const problem = new Problem(sentence[0].toUpperCase() + sentence.slice(1) + ".");
    problem.status = response.status;
    throw problem;
  }

  async function ask(path, parameters, slot) {
    return (await request(path, parameters, slot)).json();
  }

  function complain(problem, retry) {
    if (problem.name === "AbortError") return;
    const box = $("alert");
    box.hidden = false;
    box.replaceChildren(problem instanceof Problem ? problem.message : "Something went wrong on this page.");
    if (!(problem instanceof Problem)) console.error(problem);
    if (retry) {
      const button = views.element("button", { type: "button", textContent: "Try again" });
      button.addEventListener("click", () => { calm(); retry(); });
      box.append(button);
    }
  }

  function calm() { $("alert").hidden = true; }
  function say(text) { $("said").textContent = text; }

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
    for (const [key, value] of Object.entries(state)) if (value !== DEFAULTS[key]) given.set(key, value);
    const text = given.toString();
    return text ? `/?${text}` : "/";
  }

  /* Change what is looked at; a step back in the browser undoes a step that was `kept`. */
  function go(change, kept = true) {
    const before = state;
    state = { ...state, ...change };
    if (kept && address() !== location.pathname + location.search) history.pushState(null, "", address());
    else history.replaceState(null, "", address());
    update(before);
  }

  function update(before) {
    const changed = (...keys) => keys.some((key) => before[key] !== state[key]);
    if (changed("tab")) showTab();
    if (changed("id", "upload", "k")) search();
    if (changed("cluster")) showCluster();
    if (changed("sort", "least")) listClusters();
    if (changed("map")) showMap();
    if (changed("color")) paintMap();
    if (changed("cluster", "tab", "map")) markMap();
  }

  /* ---- neighbors ---- */

  function chosen() {
    if (state.upload) return { upload: state.upload };
    return state.id ? { id: state.id } : null;
  }

  async function search() {
    const query = chosen();
    calm();
    for (const space of Object.keys(about.spaces)) results[space] = null;
    document.title = query ? `${state.id || "Upload"} · RPML explorer` : "RPML explorer";
    if (!query) {
      $("lists").hidden = true;
      $("asked").replaceChildren(welcome());
      markMap();
      return;
    }
    $("query").value = state.id;
    const slow = setTimeout(() => $("panel-neighbors").setAttribute("aria-busy", "true"), 150);
    try {
      await Promise.all(Object.keys(about.spaces).map((space) => searchIn(space, query)));
      say(`Neighbors of ${results.rpml.query.title}`);
      focusResults = false;
      if (revealResults) $("results").scrollIntoView({ block: "start" });
      revealResults = false;
    } catch (problem) {
      if (problem.name === "AbortError") return;
      $("lists").hidden = true;
      $("asked").replaceChildren(views.empty("Nothing found", [problem.message, "Check the id, or select an item on the map."], randomButton()));
      if (problem.status === undefined) complain(problem, search);
    } finally {
      clearTimeout(slow);
      $("panel-neighbors").removeAttribute("aria-busy");
    }
    markMap();
  }

  async function searchIn(space, query) {
    results[space] = await ask("/api/neighbors", { ...query, space, k: state.k }, `search-${space}`);
    showResults();
  }

  function showResults() {
    const first = results.rpml || results.raw;
    $("lists").hidden = false;
    $("asked").replaceChildren(views.asked(first.query, tools(), (cluster) => go({ tab: "clusters", cluster: String(cluster) })));
    if (focusResults) $("asked").querySelector("h2").focus({ preventScroll: true });
    const lists = Object.keys(about.spaces).map((space) => results[space]);
    const rows = lists.every(Boolean) ? lists.map((found) => new Set(found.items.map((item) => item.row))) : [new Set()];
    const shared = new Set([...rows[0]].filter((row) => rows.every((list) => list.has(row))));
    const everywhere = lists.length > 2 ? "in all" : "in both";
    for (const list of document.querySelectorAll(".list")) {
      const found = results[list.dataset.space];
      list.hidden = !about.spaces[list.dataset.space];
      if (!found) continue;
      const heading = list.querySelector("h2");
      const space = about.spaces[list.dataset.space];
      heading.replaceChildren(space.title, " ", views.element("span", { className: "muted", textContent: `${space.n_dims.toLocaleString("en")} dimensions, ${shared.size} ${everywhere}` }));
      list.querySelector("ol").replaceChildren(...found.items.map((item, i) =>
        views.hit(found.query, item, i + 1, shared.has(item.row) ? everywhere : "", follow)));
    }
  }

  function tools() {
    const size = views.element("select", { ariaLabel: "How many neighbors" });
    for (const k of ["10", "20", "50", "100"]) size.append(views.element("option", { value: k, textContent: `${k} nearest`, selected: k === state.k }));
    size.addEventListener("change", () => go({ k: size.value }));
    const copy = views.element("button", { type: "button", textContent: "Copy link" });
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(location.href);
        copy.textContent = "Link copied";
      } catch {
        copy.textContent = "Copy it from the address bar";
      }
      say(copy.textContent);
      setTimeout(() => { copy.textContent = "Copy link"; }, 1800);
    });
    const select = views.element("button", { type: "button", textContent: "Select these", hidden: !about.can_label });
    select.addEventListener("click", () => window.rpmlLabels.select(Object.values(results).filter(Boolean).flatMap((found) => found.items.map((item) => item.row))));
    return views.element("div", { className: "tools" }, size, select, download("/api/neighbors.csv", { ...chosen(), k: state.k }), copy);
  }

  function download(path, parameters) {
    const href = `${path}?${new URLSearchParams(parameters)}`;
    return views.element("a", { href, download: "rpml-result.csv", textContent: "Export CSV" });
  }

  function welcome() {
    const upload = about && about.accepts_images ? "a .npy vector or an image" : "a .npy vector";
    return views.empty("What is near what?", [
      "Type or paste an id, click a point on the map, or upload " + upload + ".",
      "You will see its nearest items by the raw features and in the learned embedding, side by side.",
    ], randomButton());
  }

  function randomButton() {
    const button = views.element("button", { type: "button", textContent: "Show a random item" });
    button.addEventListener("click", showRandom);
    return button;
  }

  async function showRandom() {
    try { pick(await ask("/api/random", {}, "random")); } catch (problem) { complain(problem, showRandom); }
  }

  function pick(item) {
    go({ id: item.id, upload: "", tab: "neighbors" });
    $("results").scrollTop = 0;
    revealResults = narrow.matches;
  }

  /* From a list: the results are replaced, so the focus goes to their heading. */
  function follow(item) {
    focusResults = true;
    pick(item);
  }

  /* ---- finding an id ---- */

  const finder = { items: [], at: -1, timer: 0 };

  function closeFinder() {
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
    if (!options.length) options.push(views.element("li", { className: "none", attributes: { role: "option", "aria-disabled": "true", "aria-selected": "false" }, textContent: "No id or text contains this." }));
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
      const mask = text ? new Uint8Array(map.n) : null;
      for (const row of rows) mask[row] = 1;
      map?.filter("matches", mask);
      $("matches").hidden = !text;
      if (!text) return;
      const clear = views.element("button", { type: "button", textContent: "Clear" });
      clear.addEventListener("click", () => { markMatches(""); $("query").focus(); });
      const select = views.element("button", { type: "button", textContent: "Select them", hidden: !about.can_label });
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

  function finderKeys(event) {
    if (event.key === "ArrowDown") moveFinder(1);
    else if (event.key === "ArrowUp") moveFinder(-1);
    else if (event.key === "Escape") closeFinder();
    else if (event.key === "Enter") {
      const item = finder.items[finder.at];
      clearTimeout(finder.timer);
      running.find?.abort();
      closeFinder();
      if (item?.matches) markMatches(item.matches);
      else if (item) pick(item);
      else if ($("query").value.trim()) go({ id: $("query").value.trim(), upload: "", tab: "neighbors" });
    } else return;
    event.preventDefault();
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

  /* ---- clusters ---- */

  let listed = [];
  let total = 0;
  let prepared = null;

  /* Whether there are clusters, asked once they are ready; while they are not, the page says so. */
  function clustersReady() {
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

  async function listClusters(more = false) {
    if (state.tab !== "clusters" && !more) return;
    try {
      if (!await clustersReady()) return;
      const page = await ask("/api/clusters", { sort: state.sort, least: state.least || "1", start: more ? listed.length : 0 }, "clusters");
      listed = more ? [...listed, ...page.clusters] : page.clusters;
      total = page.total;
      drawClusters();
    } catch (problem) {
      complain(problem, listClusters);
    }
  }

  function drawClusters() {
    const rows = listed.map((cluster) => views.clusterRow(cluster, String(cluster.cluster) === state.cluster, (name) => go({ cluster: String(name) })));
    const box = $("cluster-list");
    const focused = document.activeElement?.closest?.("tr")?.rowIndex;
    if (!listed.length) box.replaceChildren(views.element("p", { className: "empty", textContent: "No cluster has that many items." }));
    else box.replaceChildren(views.clusterTable(rows));
    if (focused > 0) box.querySelector("table")?.rows[focused]?.querySelector("button")?.focus({ preventScroll: true });
    if (listed.length < total) {
      const button = views.element("button", { type: "button", className: "more", textContent: `Show more (${(total - listed.length).toLocaleString("en")} left)` });
      button.addEventListener("click", () => listClusters(true));
      box.append(button);
    }
  }

  async function showCluster() {
    const box = $("cluster");
    box.replaceChildren();
    if (state.tab !== "clusters" && !state.cluster) return;
    try {
      if (!await clustersReady()) return;
      if (listed.length) drawClusters();
      if (!state.cluster) {
        box.replaceChildren(views.element("p", { className: "empty", textContent: "Select a cluster to see its members, its mode and its tree." }));
        return;
      }
      const found = await ask("/api/cluster", { cluster: state.cluster }, "cluster");
      box.replaceChildren(views.cluster(found, follow, clusterTools()));
    } catch (problem) {
      if (problem.name === "AbortError") return;
      if (problem.status) box.replaceChildren(views.element("p", { className: "empty", textContent: problem.message }));
      else complain(problem, showCluster);
    }
  }

  function clusterTools() {
    const select = views.element("button", { type: "button", textContent: "Select its items", hidden: !about.can_label });
    select.addEventListener("click", async () => window.rpmlLabels.select(await clusterRows(state.cluster)));
    return views.element("span", {}, download("/api/cluster.csv", { cluster: state.cluster }), " ", select);
  }

  function showTab() {
    for (const name of ALLOWED.tab) {
      const on = state.tab === name;
      $(`tab-${name}`).setAttribute("aria-selected", String(on));
      $(`tab-${name}`).tabIndex = on ? 0 : -1;
      $(`panel-${name}`).hidden = !on;
    }
    if (state.tab === "clusters") {
      listClusters();
      if (!state.cluster) showCluster();
    }
  }

  /* ---- the map ---- */

  async function waitForMap() {
    try {
      const status = await ask("/api/status", {}, "status");
      if (status.map.state === "ready") return showMap();
      if (status.map.state === "missing") return cover(`There is no map: ${status.map.reason}.`, false);
      cover(`Drawing the map of ${about.rows.toLocaleString("en")} items; searching works meanwhile.`, true);
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

  async function showMap() {
    const space = about.spaces[state.map] ? state.map : "rpml";
    for (const input of document.querySelectorAll("input[name=map]")) input.checked = input.value === space;
    try {
      points[space] = points[space] || unpack(await (await request("/api/map", { space }, "map")).arrayBuffer());
    } catch (problem) {
      if (problem.status === 503) return waitForMap();
      return complain(problem, showMap);
    }
    if (state.map !== space && about.spaces[state.map]) return; // another one was chosen meanwhile
    const { x, y } = points[space];
    if (map) map.setPoints(x, y);
    else makeMap(x, y);
    cover("", false);
    paintMap();
    markMap();
  }

  function makeMap(x, y) {
    map = new Scatter($("map"), x, y, {
      wheel: "always",
      onHover: hover,
      onPick: (row) => { if (row >= 0) pickRow(row); },
      onView: (view) => { clearTimeout(map.saving); map.saving = setTimeout(() => saveView(view), 250); },
      thumb: about.has_pictures ? thumb : null,
      onSelect: (rows, event) => window.rpmlLabels?.select(rows, event.shiftKey || event.ctrlKey),
    });
    const [vx, vy, zoom] = state.view.split(",").map(Number);
    if (zoom >= 1) map.setView({ x: vx, y: vy, zoom }, true);
    window.rpmlMap = map;
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
    if (!item || map.hover !== row) return;
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
      image.onload = () => map.draw();
      image.src = `/picture/${row}`;
      pictures.set(row, image);
    }
    const image = pictures.get(row);
    return image.complete && image.naturalWidth ? image : null;
  }

  const legend = new Legend($("legend"), () => (map ? [map] : []));
  async function paintMap() {
    if (!map) return;
    const name = $("color").value = state.color || $("color").options[0].value;
    try {
      if (name !== "nothing") categories[name] = categories[name] || await ask("/api/category", { name });
    } catch (problem) {
      return complain(problem, paintMap);
    }
    legend.show(categories[name] || null, dark.matches);
  }

  async function markMap() {
    if (!map) return;
    const style = getComputedStyle(document.documentElement);
    const ring = (space, name) => ({ rows: results[space] ? results[space].items.map((item) => item.row) : [], color: style.getPropertyValue(name).trim() });
    const query = results.rpml?.query || results.raw?.query;
    const selected = query && query.row !== null ? query.row : -1;
    const clusters = state.tab === "clusters" && state.cluster;
    $("ring-key").hidden = clusters || !query;
    if (!clusters) {
      map.filter("cluster", null);
      map.mark({ selected, rings: query ? [ring("raw", "--pca"), ring(state.map === "learned" ? "learned" : "rpml", "--rpml")] : [] });
      if (selected >= 0) map.reveal(selected);
      return;
    }
    try {
      if (!await clustersReady()) return;
      const rows = await clusterRows(state.cluster);
      const mask = new Uint8Array(map.n);
      for (const row of rows) mask[row] = 1;
      map.filter("cluster", mask);
      map.mark({ selected: -1, rings: [] });
    } catch (problem) {
      map.filter("cluster", null);
      map.mark({ selected: -1, rings: [] });
      if (!problem.status) complain(problem);
    }
  }

  /* ---- listening ---- */

  function shortcuts(event) {
    const typing = event.target.closest("input:not([type=radio]), select, textarea, dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {
      "/": () => { $("query").focus(); $("query").select(); },
      m: () => $("map").focus(),
      n: () => { go({ tab: "neighbors" }); $("tab-neighbors").focus(); },
      c: () => { go({ tab: "clusters" }); $("tab-clusters").focus(); },
      r: showRandom,
      l: () => { if (about.can_label) { go({ tab: "labels" }); $("tab-labels").focus(); } },
      s: () => window.rpmlLabels?.nextTool(),
      u: () => $("upload").click(),
      b: () => { const maps = Object.keys(about.spaces); go({ map: maps[(maps.indexOf(state.map) + 1) % maps.length] }, false); },
      "?": () => $("help").showModal(),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  async function clusterRows(cluster) {
    return new Uint32Array(await (await request("/api/cluster/rows", { cluster }, "rows")).arrayBuffer());
  }

  /* Labels have changed: color by them anew. */
  function relabel() {
    delete categories.label;
    known.clear();
    if (!about.categories.includes("label")) {
      about.categories.unshift("label");
      $("color").prepend(views.element("option", { value: "label", textContent: "label" }));
    }
    paintMap();
  }

  /* A new embedding: one more list and one more map. */
  async function relearned() {
    about = await ask("/api/about");
    delete points.learned;
    $("map-learned").hidden = false;
    await search();
  }

  function tabKeys(event) {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const tabs = ALLOWED.tab.filter((name) => !$(`tab-${name}`).hidden);
    const step = event.key === "ArrowRight" ? 1 : tabs.length - 1;
    const tab = tabs[(tabs.indexOf(state.tab) + step) % tabs.length];
    go({ tab });
    $(`tab-${tab}`).focus();
  }

  function listen() {
    $("query").addEventListener("input", () => { clearTimeout(finder.timer); finder.timer = setTimeout(suggest, 90); });
    $("query").addEventListener("keydown", finderKeys);
    $("query").addEventListener("blur", () => setTimeout(closeFinder, 100));
    $("random").addEventListener("click", showRandom);
    $("upload-button").addEventListener("click", () => $("upload").click());
    $("upload").addEventListener("change", () => { if ($("upload").files[0]) upload($("upload").files[0]); $("upload").value = ""; });
    $("help-button").addEventListener("click", () => $("help").showModal());
    for (const name of ALLOWED.tab) {
      $(`tab-${name}`).addEventListener("click", () => go({ tab: name }));
      $(`tab-${name}`).addEventListener("keydown", tabKeys);
    }
    $("sort").addEventListener("change", () => go({ sort: $("sort").value }));
    $("least").addEventListener("change", () => go({ least: String(Math.max(1, Math.round(Number($("least").value)) || 1)) }));
    for (const input of document.querySelectorAll("input[name=map]")) input.addEventListener("change", () => go({ map: input.value }, false));
    $("color").addEventListener("change", () => go({ color: $("color").value }, false));
    $("zoom-in").addEventListener("click", () => map?.zoomIn(1.6));
    $("zoom-out").addEventListener("click", () => map?.zoomIn(1 / 1.6));
    $("zoom-all").addEventListener("click", () => map?.reset());
    dark.addEventListener("change", () => { paintMap(); markMap(); });
    document.addEventListener("keydown", shortcuts);
    for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
    document.addEventListener("drop", (event) => { if (event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]); });
    window.addEventListener("popstate", () => {
      const before = state;
      state = readAddress();
      $("sort").value = state.sort;
      $("least").value = state.least;
      update(before);
    });
  }

  function describe() {
    $("about").textContent = `${about.name ? about.name + " · " : ""}${about.rows.toLocaleString("en")} items`;
    for (const name of [...about.categories, "nothing"]) $("color").append(views.element("option", { value: name, textContent: name }));
    $("map-note").textContent = about.map_note;
    $("map-note").hidden = !about.map_note;
    if (about.accepts_images) $("upload").accept = ".npy,image/*";
    else $("upload-button").textContent = "Upload a .npy query";
    $("sort").value = state.sort;
    $("least").value = state.least;
  }

  async function start() {
    state = readAddress();
    try {
      about = await ask("/api/about");
    } catch (problem) {
      return complain(problem, start);
    }
    if (state.tab === "labels" && !about.can_label) state.tab = "neighbors";
    describe();
    listen();
    window.rpmlExplorer = { ask, request, checked, complain, say, go, pick, views, $, get map() { return map; }, get about() { return about; }, relabel, relearned };
    if (about.can_label) window.startLabels();
    showTab();
    showCluster();
    waitForMap();
    await search();
  }

  start();
})();
