// How it goes, at a glance: traffic, who gets it, what pays, what is wrong.

import { place, poolColour, stacked, timeTicks, update } from "../chart.js";
import { empty, h, name } from "../dom.js";
import { UNKNOWN, bracket, byTail, clock, count, day, figure, gainText, percent, seconds, signed, span, tellsSomething } from "../format.js";
import { forest } from "../pictures.js";
import { concernsPanel, eventItem, newestFirst } from "../words.js";

export const title = "Overview";
export const ranged = true;
const EVENTS = 6;
const LOSERS = 3;
const SERVES = 0.1;

const tile = (label, value, more, bad = false) => h("div", { class: bad ? "tile bad" : "tile", "data-key": label },
  h("div", { class: "label" }, label), h("div", { class: "value" }, value), h("div", { class: "more" }, more));

// The pool that the class's figures speak for most: the best lower bound; else the most requests.
export function leader(entry, baseline) {
  const known = entry.cells.filter((cell) => cell.pool !== baseline && tellsSomething(cell.gain));
  return known.reduce((best, cell) => (!best || cell.gain.low > best.gain.low ? cell : best), null);
}

// What was saved since the day began, in time; the sign of a loss is kept.
const spent = (value) => (value === null || value === undefined ? UNKNOWN : `${value < 0 ? "−" : ""}${span(Math.abs(value))}`);

function savedTile({ saved_today: today }) {
  const of = today?.seconds;
  if (!of) return tile("Saved today", UNKNOWN, today ? "no answer of a pool has a concurrent baseline to be compared with" : "not looked at yet");
  const speed = today.tokens_per_s;
  return tile("Saved today", spent(of.value), [
    `${bracket(of.low, of.high, spent)} of waiting for ${count(today.answers)} answers; ${signed(today.gain.value)} ${bracket(today.gain.low, today.gain.high, signed)}`,
    speed ? `; ${figure(Math.abs(speed.value), 1)} ${bracket(...(speed.value < 0 ? [-speed.high, -speed.low] : [speed.low, speed.high]), (value) => figure(value, 1))} tokens/s ${speed.value < 0 ? "fewer" : "more"}` : "",
    today.not_compared ? `; ${count(today.not_compared)} answers without a baseline to compare with` : "",
  ], of.value < 0);
}

function holdoutTile({ holdout }) {
  const gain = holdout?.gain;
  const sure = gain && (gain.low > 0 || gain.high < 0);
  return tile("Against the holdout", sure ? signed(gain.value) : gain ? "too few to say" : UNKNOWN,
    !holdout ? "not looked at yet" : [gain ? `${bracket(gain.low, gain.high, signed)} of the time; ` : "not enough data; ",
      `${count(holdout.held_out)} held out in ${holdout.month}, ${count(holdout.others)} not`], gain?.high < 0);
}

// The tail that is surely worst against the baseline's, among pools that serve a tenth of their class and more.
function tailTile(view, route) {
  let worst = null;
  for (const entry of route.classes) {
    for (const cell of entry.cells.filter((of) => (of.share ?? 0) >= SERVES)) {
      for (const [tail, ratio] of Object.entries(cell.tails_compared ? cell.tail_ratios : {})) {
        if (ratio && ratio.low !== null && (!worst || ratio.low > worst.ratio.low)) worst = { tail, ratio, entry, cell };
      }
    }
  }
  if (!worst) return tile("Worst tail", UNKNOWN, "not enough data on the tails of the pools that serve");
  if (worst.ratio.low <= 1) return tile("Worst tail", "none", "no slowest percentile is surely worse than the baseline's");
  const { tail, ratio, entry, cell } = worst;
  return tile("Worst tail", `${figure(ratio.value)} ×`, [`${bracket(ratio.low, ratio.high, figure)} ${tail.replace("_", " ").toUpperCase()} of `,
    h("a", { href: view.link("classes", entry.class, cell.pool) }, name(entry.class), " on ", name(cell.pool))], ratio.low > 1.1);
}

// Which pools lose in which class, the worst first: what somebody who is called will ask.
function losers(view, route) {
  const lost = route.classes.flatMap((entry) => entry.cells.filter((cell) => cell.verdict === "loss").map((cell) => ({ entry, cell })));
  lost.sort((a, b) => (a.cell.gain?.value ?? 0) - (b.cell.gain?.value ?? 0));
  return lost.slice(0, LOSERS).flatMap(({ entry, cell }, at) => [at ? ", " : ": ",
    h("a", { href: view.link("classes", entry.class, cell.pool) }, name(entry.class), " on ", name(cell.pool))]);
}

export function render(view) {
  const { state, route } = view;
  const past = view.past();
  const cells = route.classes.flatMap((entry) => entry.cells);
  const verdicts = (verdict) => cells.filter((cell) => cell.verdict === verdict).length;
  const servers = route.pools.flatMap((pool) => pool.replicas);
  const up = servers.filter((server) => server.up).length;
  const tiles = h("div", { class: "tiles" },
    savedTile(route),
    holdoutTile(route),
    tailTile(view, route),
    tile("Requests per second", figure(past?.requests_per_s.at(-1) ?? null), past ? `over ${span(past.step_s)}` : ""),
    tile("In flight", count(state.admission?.in_flight), `${count(state.admission?.waiting)} waiting for a place`),
    tile("Pools × classes", `${verdicts("gain")} ▲ gain`, [`${verdicts("no difference")} ≈ same, ${verdicts("not enough data")} open, ${verdicts("loss")} ▼ lose`, ...losers(view, route)]),
    tile("Servers that answer", `${up} / ${servers.length}`, `${route.pools.length} pools`, up < servers.length),
    tile("Store", state.store.up ? "up" : "away", `estimates ${seconds(state.store.snapshot_age_s)} old`, !state.store.up),
    tile("Workers", `${state.workers.filter((of) => of.answers).length} / ${state.workers.length}`, `window ${span(state.window_s)}`, state.workers.some((of) => !of.answers)));
  if (!route.classes.length) {
    return [tiles, empty("No traffic yet", "Point an OpenAI client at ", h("code", null, `${state.data_url}/v1`), " with the model ", name(route.model), "; figures appear with the first answers.")];
  }
  return [concernsPanel(view), tiles,
    h("div", { class: "grid" },
      h("section", { class: "panel w6", "data-key": "share" }, place("overview-share", "Share of requests by pool")),
      h("section", { class: "panel w6", "data-key": "rate" }, place("overview-rate", "Requests per second")),
      h("section", { class: "panel w7", "data-key": "pays" },
        h("h2", null, "What pays, by class ", h("span", { class: "quiet" }, "best pool; time saved against the baseline at the same time, interval at all looks together")),
        forest("Gain of the best pool of each class", route.classes.map((entry) => {
          const best = leader(entry, route.baseline);
          return {
            key: entry.class, label: entry.class, note: best ? [name(best.pool)] : `${count(entry.requests)} requests`,
            href: view.link("classes", entry.class, best?.pool ?? route.baseline),
            value: best?.gain.value ?? null, low: best?.gain.low, high: best?.gain.high,
            kind: best?.verdict === "gain" ? "gain" : best?.verdict === "loss" ? "loss" : "",
            text: best ? `${gainText(best.gain)} ${byTail(best) ? "loss by its tail" : best.verdict}` : "not enough data",
          };
        }), { show: (row) => percent(row.value) })),
      h("section", { class: "panel w5", "data-key": "events" },
        h("h2", null, "Events", h("a", { class: "quiet", href: "#/events" }, "all")),
        route.events.length
          ? h("ul", { class: "plain" }, newestFirst(route.events).slice(0, EVENTS).map((event) => eventItem(view, event)))
          : empty("Nothing has changed", "A drift, a segment that differs or a class that is two kinds of work will be told here.")),
      h("section", { class: "panel w6", "data-key": "tpot" }, place("overview-tpot", "Time per output token, p95", "all classes")),
      h("section", { class: "panel w6", "data-key": "ttft" }, place("overview-ttft", "Time to first token, p95", "all classes")))];
}

export const timeAxis = (past) => ({ label: "time", time: true, ticks: timeTicks, show: past.step_s < 3600 ? clock : day });

export function timeChart(view, past, key, chartTitle, figureOf, show, more = {}) {
  const pools = past.pools;
  update({
    key, title: chartTitle, show,
    x: timeAxis(past),
    data: [past.times, ...pools.map(figureOf)],
    series: pools.map((pool) => ({ label: pool.pool, colour: poolColour(view.route, pool.pool) })),
    ...more,
  });
}

export function draw(view) {
  const past = view.past();
  if (!past) return;
  const shares = past.pools.map((pool) => pool.share);
  update({
    key: "overview-share", title: "Share of requests by pool", show: (value) => percent(value),
    x: timeAxis(past),
    data: [past.times, ...shares], plotted: [past.times, ...stacked(shares)],
    range: () => [0, 1],
    bands: shares.slice(1).map((_, index) => ({ series: [index + 2, index + 1] })),
    series: past.pools.map((pool, index) => ({
      label: pool.pool, colour: poolColour(view.route, pool.pool), fill: true, width: 1, shown: shares[index],
    })),
  });
  update({
    key: "overview-rate", title: "Requests per second", show: (value) => figure(value, 1),
    x: timeAxis(past),
    data: [past.times, past.requests_per_s],
    series: [{ label: "all pools", colour: "--accent", fill: true }],
  });
  timeChart(view, past, "overview-tpot", "Time per output token, p95", (pool) => pool.tpot_p95, seconds);
  timeChart(view, past, "overview-ttft", "Time to first token, p95", (pool) => pool.ttft_p95, seconds);
}

