// Who gains where: classes by pools, and everything known of one of them.

import { place, poolColour, update } from "../chart.js";
import { empty, h, name, table } from "../dom.js";
import { MARKS, UNKNOWN, bracket, byTail, count, figure, gainText, minute, moment, percent, seconds, signed, span, tellsSomething, tint } from "../format.js";
import { bars, forest } from "../pictures.js";
import { timeAxis, timeChart } from "./overview.js";

export const title = "Classes × pools";
export const ranged = true;

const LATENCIES = [["tpot_s", "Time per output token"], ["ttft_s", "Time to first token"], ["e2e_s", "Whole answer, streamed"], ["queue_s", "Wait for a place"], ["overhead_s", "Added by the proxy"]];

const since = (cell) => (cell.since === null ? "" : ` since ${minute(cell.since)}`);

function heatCell(view, entry, cell) {
  const current = view.args[0] === entry.class && view.args[1] === cell.pool;
  const answers = `${count(cell.ok)} answers${since(cell)}`;
  const body = cell.verdict === null
    ? [h("b", null, "baseline"), h("small", null, answers)]
    : [h("b", null, `${MARKS[cell.verdict]} ${byTail(cell) ? "tail, " : ""}${tellsSomething(cell.gain) ? signed(cell.gain.value) : UNKNOWN}`), h("small", null, tellsSomething(cell.gain) ? `${bracket(cell.gain.low, cell.gain.high, signed)}${since(cell)}` : answers)];
  return h("td", null, h("a", {
    class: `cell ${tint(cell)}`, href: view.link("classes", entry.class, cell.pool), "aria-current": current ? "true" : null,
    "aria-label": `${entry.class} on ${cell.pool}: ${cell.verdict ?? "baseline"}, ${cell.verdict === null ? answers : gainText(cell.gain)}`,
  }, body));
}

function heat(view) {
  const { route } = view;
  return h("section", { class: "panel", "data-key": "heat" },
    h("h2", null, "Time saved against the baseline at the same time ", h("span", { class: "quiet" }, `window ${span(view.state.window_s)}; intervals hold at all looks together`)),
    table("Gain of each pool for each class", ["Class", ...route.pools.map((pool) => ({ text: [h("span", { class: `swatch ${swatch(route, pool.name)}` }), name(pool.name)] })), { text: "Requests", numeric: true }],
      route.classes.map((entry) => h("tr", { "data-key": entry.class },
        h("th", { scope: "row" }, name(entry.class)),
        entry.cells.map((cell) => heatCell(view, entry, cell)),
        h("td", { class: "number" }, count(entry.requests)))), { class: "heat" }),
    h("div", { class: "legend" }, [["gain3", "▲ gain"], ["same", "≈ no difference"], ["loss3", "▼ loss"], ["loss1", "▼ tail: not surely slower on the whole, but a slowest percentile is worse than the baseline's"], ["open", "· not enough data"]].map(([kind, text]) =>
      h("span", null, h("i", { class: kind }), text))));
}

const swatch = (route, pool) => `ink${poolColour(route, pool)}`;

const facts = (rows) => h("dl", { class: "facts" }, rows.filter(Boolean).map(([term, value]) => [h("dt", null, term), h("dd", null, value)]));

function acceptance(cell) {
  const rates = cell.acceptance_rate_by_position;
  const sources = Object.entries(cell.acceptance_sources);
  const equal = cell.equal_acceptance_rate;
  return h("section", { class: "panel w4", "data-key": "acceptance" },
    h("h2", null, "Acceptance"),
    facts([
      ["Tokens per step, τ", `${figure(cell.tokens_per_step)} ${bracket(cell.tokens_per_step_interval?.[0], cell.tokens_per_step_interval?.[1], figure)}`],
      ["Acceptance rate, α", cell.acceptance_rate === null ? UNKNOWN : `${figure(cell.acceptance_rate)} (${(cell.acceptance_form ?? "").replaceAll("_", " ")})`],
      equal ? ["α if all positions were alike", `${figure(equal.value)} ${bracket(equal.low, equal.high, figure)}`] : null,
      ["Source", cell.acceptance_source === null ? "nothing tells it yet" : `${cell.acceptance_source}, ${count(cell.acceptance_requests)} requests, ${count(cell.acceptance_tokens)} tokens`],
      sources.length ? ["Records by source", sources.map(([source, n]) => `${source} ${count(n)}`).join(", ")] : null,
      cell.draft_acceptance_rate !== null ? ["Accepted / drafted", `${figure(cell.draft_acceptance_rate)} (as engines print it; ranks nothing)`] : null,
    ]),
    rates.length ? [h("h3", null, "α by position of the draft"), bars("Acceptance by position", rates.map((rate, index) => ({ label: String(index + 1), value: rate, text: figure(rate), note: "" })))] : null);
}

function gains(view, cell) {
  const bands = Object.entries(cell.gain_by_load);
  const rows = [
    { key: "all", label: "all loads", gain: cell.gain, kind: cell.verdict },
    { key: "look", label: "this look alone", gain: cell.gain_one_look },
    ...bands.map(([band, gain]) => ({ key: `load ${band}`, label: `load ${view.route.load_bands[Number(band)] ?? band}`, gain })),
  ];
  const kind = (row) => (row.kind === "gain" || row.kind === "loss" ? row.kind : "");
  const tails = Object.entries(cell.tail_ratios);
  return h("section", { class: "panel w6", "data-key": "gains" },
    h("h2", null, "Gain ", h("span", { class: "quiet" }, "load: requests at the server")),
    forest("Gain by load", rows.map((row) => ({
      key: row.key, label: row.label, value: tellsSomething(row.gain) ? row.gain.value : null, low: row.gain?.low, high: row.gain?.high, kind: kind(row), text: gainText(row.gain),
    })), { show: () => "" }),
    h("h3", null, "Tails against the baseline's"),
    cell.tails_compared ? null : h("p", { class: "quiet" }, "The pool answers other applications than the baseline, so tails are shown, and decide nothing; nor are loads compared."),
    forest("Tail ratios", tails.map(([tail, ratio]) => ({
      key: tail, label: tail.replace("_", " ").toUpperCase(), value: ratio?.value ?? null, low: ratio?.low, high: ratio?.high,
      text: ratio ? `${figure(ratio.value)} × ${bracket(ratio.low, ratio.high, figure)}` : UNKNOWN,
    })), { zero: 1, show: () => "" }));
}

function latencies(cell) {
  const of = (quantiles, q) => h("td", { class: "number", title: bracket(quantiles.intervals[q]?.[0], quantiles.intervals[q]?.[1], seconds) || null }, seconds(quantiles[q]),
    h("br"), h("span", { class: "quiet" }, bracket(quantiles.intervals[q]?.[0], quantiles.intervals[q]?.[1], seconds)));
  return h("section", { class: "panel w6", "data-key": "latency" },
    h("h2", null, "Latency"),
    table("Quantiles with intervals", ["", { text: "p50", numeric: true }, { text: "p95", numeric: true }, { text: "p99", numeric: true }], LATENCIES.map(([key, text]) =>
      h("tr", { "data-key": key }, h("th", { scope: "row" }, text, h("br"), h("span", { class: "quiet" }, `n ${count(cell[key].n)}`)), ["p50", "p95", "p99"].map((q) => of(cell[key], q))))));
}

function worstTail(cell) {
  const known = Object.entries(cell.tail_ratios).filter(([, ratio]) => ratio);
  if (!known.length) return UNKNOWN;
  const [tail, ratio] = known.reduce((worst, at) => (at[1].value > worst[1].value ? at : worst));
  return `${tail.replace("_", " ").toUpperCase()} takes ${figure(ratio.value)} × the baseline's`;
}

function about(view, entry, cell, pool) {
  return h("section", { class: "panel", "data-key": "about" },
    h("h2", null, name(entry.class), " on ", name(cell.pool), " ",
      h("span", { class: `badge ${cell.verdict === "gain" ? "good" : cell.verdict === "loss" ? "bad" : ""}` }, cell.verdict ?? "baseline"),
      byTail(cell) ? h("span", { class: "badge warn" }, `by its tail: ${worstTail(cell)}`) : null,
      cell.abandoned_more ? h("span", { class: "badge warn" }, `${percent(cell.abandoned_share)} of its answers abandoned: slow ones are missing`) : null,
      h("span", { class: "quiet" }, `${pool.method}${pool.num_speculative_tokens ? `, k = ${pool.num_speculative_tokens}` : ""} on ${pool.engine}`)),
    h("p", null, `${cell.since === null ? "" : `It changed about ${moment(cell.since)}; all figures are of what came since. `}Gets ${percent(cell.probability)} of the draws, had ${percent(cell.share)} of the last minutes' requests · ${count(cell.ok)} ok, ${count(cell.failed)} failed, ${count(cell.rejected)} rejected, ${count(cell.aborted)} aborted (abandoned: ${percent(cell.abandoned_share)}), ${count(cell.held)} held up by the client · ${count(cell.tokens)} tokens`));
}

function detail(view, entry, cell, pool) {
  const step = pool.step_time;
  const over = place("cell-gain", "Gain over time", "each point by itself, with its 95 % interval");
  return [about(view, entry, cell, pool), h("div", { class: "grid", "data-key": "detail" },
    cell.verdict === null ? null : gains(view, cell), latencies(cell), acceptance(cell),
    cell.verdict === null ? null : h("section", { class: "panel w8", "data-key": "p-gain" }, over),
    h("section", { class: "panel w6", "data-key": "p-tpot" }, place("cell-tpot", "Time per output token, p50", "this class, by pool")),
    h("section", { class: "panel w6", "data-key": "p-ttft" }, place("cell-ttft", "Time to first token, p95", "this class, by pool")),
    h("section", { class: "panel", "data-key": "p-step" },
      step ? place("cell-step", "Time of a decode step by load", `${count(step.requests)} requests${step.verified_tokens ? `, ${figure(step.verified_tokens, 1)} tokens to verify` : ""}${step.misfit !== null && step.misfit < 0.01 ? "; the curve fits badly" : ""}`)
        : empty("No step times of this pool yet", "They come with streamed answers whose steps are known.")))];
}

function find(view) {
  const entry = view.route.classes.find((of) => of.class === view.args[0]);
  const cell = entry?.cells.find((of) => of.pool === view.args[1]);
  const pool = view.route.pools.find((of) => of.name === view.args[1]);
  return entry && cell && pool ? { entry, cell, pool } : null;
}

export function render(view) {
  if (!view.route.classes.length) {
    return empty("No traffic yet", "Each class of request becomes a row here. Point a client at ", h("code", null, `${view.state.data_url}/v1`), ".");
  }
  const found = find(view);
  if (found) view.past(found.entry.class);
  return [heat(view), found ? detail(view, found.entry, found.cell, found.pool)
    : h("p", { class: "quiet" }, "Choose a field to see acceptance, latency, gain by load and step time.")];
}

export function draw(view) {
  const found = find(view);
  if (!found) return;
  const past = view.past(found.entry.class);
  const { pool, cell } = found;
  if (past) {
    timeChart(view, past, "cell-tpot", "Time per output token, p50", (of) => of.tpot_p50, seconds);
    timeChart(view, past, "cell-ttft", "Time to first token, p95", (of) => of.ttft_p95, seconds);
    const gain = past.pools.find((of) => of.pool === cell.pool).gain;
    const part = (index) => gain.map((of) => (tellsSomething(of && { low: of[1], high: of[2] }) ? of[index] : null));
    const ink = poolColour(view.route, cell.pool);
    update({
      key: "cell-gain", title: "Gain over time", show: signed, points: past.times.length < 60,
      x: timeAxis(past),
      range: (_, low, high) => [Math.max(-2, Math.min(low ?? 0, 0) - 0.05), Math.max(high ?? 0, 0) + 0.05],
      data: [past.times, part(0), part(1), part(2)],
      series: [{ label: "gain", colour: ink, spanGaps: true }, { label: "low", colour: ink, dash: [3, 3], width: 1, spanGaps: true }, { label: "high", colour: ink, dash: [3, 3], width: 1, spanGaps: true }],
    });
  }
  if (pool.step_time) drawStep(view, pool);
}

// Where loads were seen; beyond them the model only bounds what could be.
const known = (pool) => pool.step_time.points.filter((at) => !at.extrapolated);

// This pool's curve with its bounds, and the baseline's beside it.
function drawStep(view, pool) {
  const base = view.route.pools.find((of) => of.baseline);
  const shown = pool === base || !base?.step_time ? [pool] : [pool, base];
  const loads = [...new Set(shown.flatMap((of) => known(of).map((at) => at.load)))].sort((one, other) => one - other);
  const column = (of, key) => loads.map((load) => known(of).find((at) => at.load === load)?.[key] ?? null);
  update({
    key: "cell-step", title: "Time of a decode step by load", show: seconds, points: true,
    x: { label: "load", log: true, show: (value) => figure(value, 0) },
    data: [loads, ...shown.map((of) => column(of, "mean_s")), column(pool, "low_s"), column(pool, "high_s")],
    series: [
      ...shown.map((of) => ({ label: of.name, colour: poolColour(view.route, of.name), spanGaps: true })),
      { label: "low", colour: poolColour(view.route, pool.name), dash: [3, 3], width: 1, spanGaps: true },
      { label: "high", colour: poolColour(view.route, pool.name), dash: [3, 3], width: 1, spanGaps: true },
    ],
  });
}
