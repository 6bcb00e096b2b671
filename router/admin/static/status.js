// Shows /api/state, once a second. Every text from outside goes through textContent.
"use strict";

const REFRESH_MS = 1000;
const SHOWN_EVENTS = 5;
const WIDEST_SHOWN = 2; // a wider interval says nothing
const UNKNOWN = "–";

const percent = (value, sign) =>
  value === null ? UNKNOWN : (sign && value > 0 ? "+" : "") + Math.round(value * 100) + " %";
const figure = (value) => (value === null ? UNKNOWN : value.toFixed(2));
const milliseconds = (value) => (value === null ? UNKNOWN : (value * 1000).toFixed(1));
const gain = (value) =>
  value === null || value.high - value.low > WIDEST_SHOWN
    ? UNKNOWN
    : `${percent(value.value, true)} [${percent(value.low, true)}, ${percent(value.high, true)}]`;

function element(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function shareCell(share) {
  const cell = element("td");
  if (share === null) {
    cell.textContent = UNKNOWN;
    return cell;
  }
  const meter = element("meter");
  meter.value = share;
  meter.textContent = percent(share);
  cell.append(meter, percent(share));
  return cell;
}

function row(name, cell, baseline) {
  const verdict = cell.pool === baseline ? "baseline" : cell.verdict ?? UNKNOWN;
  const line = element("tr");
  line.append(
    element("td", name, "name"),
    element("td", cell.pool),
    element("td", cell.failed ? `${cell.ok} +${cell.failed} failed` : cell.ok),
    shareCell(cell.share),
    element("td", figure(cell.tokens_per_step)),
    element("td", figure(cell.acceptance_rate)),
    element("td", milliseconds(cell.tpot_s.p50)),
    element("td", milliseconds(cell.tpot_s.p95)),
    element("td", milliseconds(cell.ttft_s.p50)),
    element("td", gain(cell.gain)),
    element("td", verdict, verdict.replaceAll(" ", "-")),
  );
  return line;
}

function table(route) {
  const node = element("table");
  const head = element("tr");
  for (const title of ["class", "pool", "answers", "share now", "τ", "α", "TPOT ms", "p95",
    "TTFT ms", "gain [95 %]", "verdict"]) {
    const cell = element("th", title);
    cell.scope = "col";
    head.append(cell);
  }
  const top = element("thead");
  top.append(head);
  node.append(top);
  for (const entry of route.classes) {
    const body = element("tbody", undefined, "class");
    entry.cells.forEach((cell, index) =>
      body.append(row(index ? "" : entry.class, cell, route.baseline)));
    node.append(body);
  }
  return node;
}

function eventLine(event) {
  const ratio = event.time_ratio;
  const figures = `${figure(ratio.value)} times (${figure(ratio.low)} … ${figure(ratio.high)}) the time`;
  const who = event.kind === "class_splits"
    ? `${event.class} is two kinds of work: where answers repeat the request, ` +
      `pool ${event.pool} takes ${figures} it takes elsewhere`
    : `${event.class}, segment ${event.segment}: pool ${event.pool} takes ${figures} it takes in ` +
      "the rest of the class";
  return element("li", `${who}, against the baseline`);
}

function events(route) {
  const list = element("ul", undefined, "events");
  list.append(...[...route.events].sort((a, b) => b.time - a.time).slice(0, SHOWN_EVENTS).map(eventLine));
  return list;
}

function troubles(state) {
  const silent = state.workers.filter((worker) => !worker.answers)
    .map((worker) => `Worker ${worker.number}: ${worker.not_ready}`);
  const last = state.config?.last_reload;
  const refused = last?.result === "refused"
    ? [`The configuration was refused (${last.trigger}), and the one before serves on: ${last.why}`]
    : [];
  return [...silent, ...refused].map((line) => element("p", line, "down"));
}

function workers(state) {
  const all = state.workers.length;
  return all > 1 ? ` · ${state.workers.filter((worker) => worker.answers).length} of ${all} workers` : "";
}

function section(route) {
  const node = element("section");
  node.append(element("h2", `${route.model} · policy ${route.policy}`));
  const replicas = route.pools.flatMap((pool) => pool.replicas);
  const down = replicas.filter((replica) => replica.state === "down");
  if (down.length) {
    node.append(element("p", `No answer from ${down.map((replica) => replica.id).join(", ")}`, "down"));
  }
  const resting = replicas.filter((replica) => replica.state !== "up" && replica.state !== "down");
  if (resting.length) {
    node.append(element("p", resting.map((replica) => `${replica.id}: ${replica.state}`).join(" · ")));
  }
  for (const pool of route.pools.filter((pool) => pool.discovery_error !== null)) {
    node.append(element("p", `${pool.name}: the last servers known, ${pool.discovery_error}`, "down"));
  }
  if (!route.classes.length) {
    node.append(element("p", "No traffic yet: point an OpenAI client at the address above."));
    return node;
  }
  const scroll = element("div", undefined, "scroll");
  scroll.append(table(route));
  node.append(scroll);
  if (route.events.length) node.append(element("h3", "Events"), events(route));
  return node;
}

async function refresh() {
  const head = document.getElementById("head");
  try {
    const reply = await fetch("api/state", { cache: "no-store" });
    const state = await reply.json();
    const store = state.store.up ? "up" : `away (${state.store.error})`;
    head.textContent = `${state.data_url}/v1 · ${state.ready ? "ready" : state.not_ready} · ` +
      `store ${state.store.url} ${store} · window ${Math.round(state.window_s / 60)} min${workers(state)}`;
    head.className = "";
    document.getElementById("routes").replaceChildren(
      ...troubles(state), ...state.routes.map(section));
  } catch (error) {
    head.textContent = "The proxy does not answer; what is shown may be old.";
    head.className = "stale";
  }
  setTimeout(refresh, REFRESH_MS);
}

refresh();
