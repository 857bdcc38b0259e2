/* Pieces of the page: values in, elements out. Text is only ever set as text. */
export const { element } = window.rpml;

/* A number with its noun: "1 item", "2,000 items". */
export function counted(n, noun, plural = `${noun}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? noun : plural}`;
}

export function image(item, alt, large = false) {
  if (!item.picture) return null;
  const path = item.row === null ? `upload/${item.upload}` : `${item.row}${large ? "?large=1" : ""}`;
  return element("img", { src: `/picture/${path}`, alt, loading: "lazy" });
}

export function facts(item) {
  const parts = [];
  if (item.label !== null && item.label !== undefined) parts.push(`label ${item.label}`);
  if (item.cluster !== null && item.cluster !== undefined) parts.push(`cluster ${item.cluster}`);
  return parts.join(" · ");
}

const SAME = { right: ", same label", wrong: ", another label", "": "" };

function tone(query, item) {
  if (query.label === null || query.label === undefined || item.label === null) return "";
  return query.label === item.label ? "right" : "wrong";
}

/* The similarity and, with --scale, the share of random pairs that are less similar. */
function closeness(item) {
  const share = item.scale === undefined ? "" : ` (${(Math.floor(1000 * item.scale) / 10).toFixed(1)}%)`;
  return item.similarity.toFixed(3) + share;
}

/* A neighbor: a button that makes it the query. */
export function hit(query, item, rank, everywhere, onPick) {
  const picture = image(item, "");
  const same = tone(query, item);
  return element("li", {}, element("button", { type: "button", className: `hit ${same} ${picture ? "" : "plain"}`, onclick: () => onPick(item) },
    picture && element("span", { className: "item" }, picture),
    element("span", {},
      element("span", { className: "name", textContent: item.text, title: item.text }),
      element("span", { className: "facts" },
        `${rank}. ${closeness(item)}`,
        everywhere ? element("span", { className: "both", textContent: ` · ${everywhere}` }) : "",
        element("span", { className: "unseen", textContent: SAME[same] })),
      element("span", { className: "facts", textContent: facts(item), title: facts(item) }))));
}

/* A neighbor in the gallery: a large picture, framed and marked as right or wrong. */
export function tile(query, item, rank, everywhere, onPick) {
  const same = tone(query, item);
  const picture = image(item, item.text) || element("span", { className: "text" }, element("span", { textContent: item.text }));
  const mark = same ? element("span", { className: "mark", textContent: same === "right" ? "✓" : "✗", attributes: { "aria-hidden": "true" } }) : null;
  return element("li", {}, element("button", { type: "button", className: "tile", title: [item.text, facts(item)].filter(Boolean).join(" · "), onclick: () => onPick(item) },
    element("span", { className: `item ${same}` }, picture, mark),
    element("span", { className: "facts" }, `${rank}. ${closeness(item)}`,
      element("span", { className: "unseen", textContent: SAME[same] }), everywhere ? ` · ${everywhere}` : ""),
    element("span", { className: "facts", textContent: item.label ?? "" })));
}

export function empty(title, lines, action) {
  const texts = lines.map((line) => element("p", { textContent: line }));
  return element("div", { className: "empty" }, element("h2", { textContent: title }), ...texts, action);
}

/* The item that was searched for, with what can be done with the result. */
export function asked(query, tools, scaled, onCluster) {
  const picture = query.picture ? image(query, query.title, true) : null;
  const about = element("p", { className: "muted" });
  if (query.row === null) about.textContent = "a query, not one of the items";
  else about.textContent = [query.text === query.id ? "" : `id ${query.id}`, query.label === null ? "" : `label ${query.label}`].filter(Boolean).join(" · ");
  if (query.cluster !== null && query.cluster !== undefined) {
    tools.prepend(element("button", { type: "button", textContent: `Cluster ${query.cluster}`, onclick: () => onCluster(query.cluster) }));
  }
  const known = (query.metadata || []).filter(([, value]) => value && value !== query.text);
  const metadata = known.length ? element("dl", { className: "metadata" }, ...known.flatMap(([name, value]) => [element("dt", { textContent: name }), element("dd", { textContent: value })])) : null;
  const key = element("p", { className: "note", textContent: `After the rank of a neighbor: its cosine similarity, 1 for the same direction${scaled ? "; in parentheses, the share of random pairs of items that are less similar" : ""}.` });
  const body = element("div", {}, element("h2", { tabIndex: -1, textContent: query.text || query.title }), about, metadata, tools, key);
  return element("div", { className: "asked" },
    picture && element("div", { className: "item query" }, picture), body);
}

export function clusterRow(cluster, current, onPick) {
  const button = element("button", { type: "button", className: "pick", title: `mode: ${cluster.mode.id}`, onclick: () => onPick(cluster.cluster) },
    image(cluster.mode, ""), element("span", { textContent: `Cluster ${cluster.title}` }));
  const impurity = cluster.impurity === null ? "–" : `${Math.round(100 * cluster.impurity)}%`;
  return element("tr", current ? { ariaCurrent: "true" } : {}, element("td", {}, button),
    element("td", { className: "number", textContent: cluster.size.toLocaleString("en") }),
    element("td", { className: "number", textContent: impurity }));
}

export function clusterTable(rows) {
  const head = element("tr", {},
    element("th", { scope: "col", textContent: "Cluster" }),
    element("th", { scope: "col", className: "number", textContent: "Items" }),
    element("th", { scope: "col", className: "number", textContent: "Impurity" }));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

function chip(item, onPick) {
  const shown = image(item, item.id) || element("span", { className: "text" }, element("span", { textContent: item.text }));
  return element("button", { type: "button", title: [item.text, facts(item)].filter(Boolean).join(" · "), onclick: () => onPick(item) },
    element("span", { className: "item" }, shown));
}

/* Nested lists from a map of row -> parent row. */
function tree(members, parents, onPick) {
  const children = new Map(), roots = [];
  const byRow = new Map(members.map((item) => [item.row, item]));
  for (const item of members) {
    const parent = parents[item.row];
    if (parent === item.row || !byRow.has(parent)) roots.push(item);
    else if (children.has(parent)) children.get(parent).push(item);
    else children.set(parent, [item]);
  }
  const top = element("ul", { className: "tree" });
  const waiting = roots.map((item) => [item, top]);
  while (waiting.length) {
    const [item, list] = waiting.shift();
    const button = element("button", { type: "button", onclick: () => onPick(item) }, image(item, ""), element("span", { className: "name", textContent: item.text }));
    const below = children.get(item.row), inner = below ? element("ul") : null;
    list.append(element("li", {}, button, inner));
    for (const child of below || []) waiting.push([child, inner]);
  }
  return top;
}

export function cluster(found, onPick, exportLink) {
  const impurity = found.impurity === null ? "" : `, impurity ${Math.round(100 * found.impurity)}%`;
  const plain = found.members.some((item) => item.picture) ? "" : " plain";
  const more = found.size > found.members.length ? `, the ${found.members.length} nearest to it` : "";
  return element("div", {},
    element("h2", { textContent: `Cluster ${found.title}` }),
    element("p", { className: "muted", textContent: counted(found.size, "item") + impurity }),
    element("div", { className: "tools" }, exportLink),
    element("h3", { textContent: "Most typical item (the mode)" }),
    element("div", { className: `members${plain}` }, chip(found.mode, onPick)),
    element("h3", { textContent: `Members${more}` }),
    element("div", { className: `members${plain}` }, ...found.members.map((item) => chip(item, onPick))),
    element("h3", { textContent: "Which item leads to which (the ascent tree)" }),
    found.tree ? tree(found.members, found.tree, onPick) : element("p", { className: "muted", textContent: `There is no tree: ${found.tree_reason}.` }));
}
