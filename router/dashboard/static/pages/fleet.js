// Pools and their servers: health, load, what they say they are.

import { poolColour } from "../chart.js";
import { h, name, table } from "../dom.js";
import { UNKNOWN, count, percent, seconds } from "../format.js";
import { stateBadge } from "../words.js";

export const title = "Fleet";

function engine(replica) {
  const found = replica.detected;
  if (!found) return h("span", { class: "quiet" }, "has not told");
  return [`${found.engine}${found.version ? ` ${found.version}` : ""}`, h("br"), h("span", { class: "quiet" }, found.speculation)];
}

function more(replica) {
  const notes = [
    replica.open_s !== null ? `breaker open for ${seconds(replica.open_s)} more` : null,
    replica.cooling_s !== null ? `was busy; rests ${seconds(replica.cooling_s)} more` : null,
    replica.suspect ? "stopped working on what it has" : null,
    replica.share < 1 ? `starts slowly: ${percent(replica.share)}` : null,
    ...replica.mismatch,
  ].filter(Boolean);
  return notes.length ? h("ul", { class: "plain" }, notes.map((note) => h("li", null, note))) : null;
}

function row(view, replica) {
  const { gauges } = replica;
  const confirming = view.confirming === replica.id;
  const button = replica.draining
    ? h("button", { type: "button", class: "small", "data-act": "undrain", "data-replica": replica.id }, "Put back")
    : h("button", { type: "button", class: confirming ? "small primary" : "small", "data-act": "drain", "data-replica": replica.id, "data-key": replica.id },
      confirming ? "Really take out?" : "Take out");
  return h("tr", { "data-key": replica.id },
    h("th", { scope: "row" }, name(replica.id), h("br"), h("span", { class: "quiet mono" }, name(replica.url))),
    h("td", null, stateBadge(replica.state)),
    h("td", null, replica.breaker.replaceAll("_", " ")),
    h("td", { class: "number" }, count(replica.in_flight)),
    h("td", { class: "number" }, replica.line_s > 0 ? seconds(replica.line_s) : ""),
    h("td", { class: "number" }, count(gauges.running)),
    h("td", { class: "number" }, count(gauges.waiting)),
    h("td", { class: "number" }, gauges.kv_usage === null ? UNKNOWN : percent(gauges.kv_usage)),
    h("td", null, engine(replica)),
    h("td", null, more(replica)),
    h("td", null, button));
}

const HEADS = [
  "Server", "State", "Breaker", { text: "In flight", numeric: true },
  { text: "Line", numeric: true, title: "how long the first stream there has waited for its answer to begin, unless others have overtaken it" },
  { text: "Running", numeric: true, title: "by the engine's own account" },
  { text: "Waiting", numeric: true, title: "by the engine's own account" },
  { text: "KV cache", numeric: true }, "Says it is", "Notes", { text: h("span", { class: "unseen" }, "Actions") },
];

function poolRows(view, pool) {
  const what = `${pool.method}${pool.num_speculative_tokens ? `, k = ${pool.num_speculative_tokens}` : ""} · configured as ${pool.engine}`;
  const notes = [pool.discovery_error, ...pool.mismatch].filter(Boolean);
  return [
    h("tr", { class: "group", "data-key": `pool ${pool.name}` }, h("th", { scope: "rowgroup", colspan: HEADS.length },
      h("span", { class: `swatch ink${poolColour(view.route, pool.name)}` }), name(pool.name),
      pool.baseline ? h("span", { class: "badge" }, "baseline") : null,
      pool.lossless ? null : h("span", { class: "badge warn" }, "may change texts"),
      h("span", { class: "quiet" }, what))),
    notes.map((note) => h("tr", null, h("td", { colspan: HEADS.length }, h("p", { class: "alert warn" }, note)))),
    pool.replicas.length ? pool.replicas.map((replica) => row(view, replica))
      : h("tr", null, h("td", { colspan: HEADS.length, class: "quiet" }, "No servers: discovery has found none. Check the name or the file that it looks at.")),
  ];
}

export function render(view) {
  return [
    h("section", { class: "panel", "data-key": "servers" }, table("Servers by pool", HEADS.map((head) =>
      (head.text instanceof Node ? { ...head, text: head.text.cloneNode(true) } : head)), view.route.pools.map((pool) => poolRows(view, pool)))),
    h("p", { class: "quiet" }, "A server that is taken out finishes what it works on and gets nothing new, until it is put back or the proxy starts anew."),
  ];
}

const address = (view, replica, action) => {
  const cut = replica.lastIndexOf("/");
  const query = new URLSearchParams({ model: view.route.model });
  return `api/replicas/${encodeURIComponent(replica.slice(0, cut))}/${replica.slice(cut + 1)}/${action}?${query}`;
};

export const acts = {
  drain({ replica }, view) {
    if (view.confirming !== replica) {
      view.confirming = replica;
      setTimeout(() => { view.confirming = null; }, 6000);
      view.refresh();
      return;
    }
    view.confirming = null;
    view.order(address(view, replica, "drain"));
  },
  undrain({ replica }, view) {
    view.order(address(view, replica, "undrain"));
  },
};
