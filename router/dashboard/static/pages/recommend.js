// What to change: lengths of drafts as the engines' own flags, and which servers to move.

import { empty, h, name, table } from "../dom.js";
import { UNKNOWN, count, figure, moment, percent, span } from "../format.js";
import { again, polled } from "../polled.js";
import { concernsPanel } from "../words.js";

export const title = "Recommend";
const PATH = "api/recommend";
const AGAIN_MS = 300_000;

const fine = (value) => percent(value, { sign: true, digits: 1 });
const gainOf = (gain) => (gain ? `${fine(gain.value)} [${fine(gain.low)}, ${fine(gain.high)}]` : UNKNOWN);

function bestCells(pool, best) {
  return [
    h("td", null, best.k === pool.k ? `keep k = ${best.k}` : h("b", null, `k = ${best.k}`),
      best.k === pool.k && best.likeliest !== best.k ? [h("br"), h("span", { class: "quiet" }, `k = ${best.likeliest} looks better, not beyond doubt`)] : null),
    h("td", { class: "number" }, best.k === pool.k ? UNKNOWN : gainOf(best.gain)),
    h("td", { class: "number" }, gainOf(best.against_plain)),
  ];
}

const HEADS = (pool) => ["Drafts", { text: `Saves against k = ${pool.k}`, numeric: true }, { text: "Saves against plain decoding", numeric: true }];

const FILE = "FILE: ";

function flag(pool, line, index) {
  if (line.startsWith("(")) return h("p", { class: "quiet" }, line);
  const id = `flag-${pool.pool}-${index}`;
  return h("div", { class: "flag", "data-key": id },
    line.startsWith(FILE) ? h("span", { class: "quiet" }, "FILE holds") : null,
    h("code", { id }, line.startsWith(FILE) ? line.slice(FILE.length) : line),
    h("button", { type: "button", class: "small", "data-act": "copy", "data-of": id, "aria-label": `Copy the flag of ${pool.pool}` }, "Copy"));
}

function poolPanel(pool) {
  const head = h("h2", null, name(pool.pool), " ", h("span", { class: "quiet" }, `${pool.method} on ${pool.engine}, drafts of ${pool.k}`));
  if (pool.lacking.length) {
    return h("section", { class: "panel", "data-key": `pool ${pool.pool}` }, head,
      empty("Not enough data", h("span", null, pool.lacking.map((why) => h("span", { class: "line" }, name(why))))));
  }
  return h("section", { class: "panel", "data-key": `pool ${pool.pool}` }, head,
    table(`Drafts of ${pool.pool} by class`, ["Class", ...HEADS(pool)], [
      h("tr", { "data-key": "*" }, h("th", { scope: "row" }, "all classes", h("span", { class: "quiet" }, ` at ${figure(pool.load, 1)} requests a server`)), bestCells(pool, pool.overall)),
      ...Object.entries(pool.classes).map(([of, best]) => h("tr", { "data-key": of }, h("th", { scope: "row" }, name(of)), bestCells(pool, best))),
    ], { class: "advice" }),
    pool.schedule.length > 1 ? [h("h3", null, "By requests in the batch"),
      table(`Drafts of ${pool.pool} by batch size`, ["Batch", ...HEADS(pool)], pool.schedule.map((of) =>
        h("tr", { "data-key": of.low }, h("th", { scope: "row" }, `${count(of.low)}–${count(of.high)}`), bestCells(pool, of.best))), { class: "advice" })] : null,
    h("h3", null, "Flag of the engine"),
    pool.flags.length ? pool.flags.map((line, index) => flag(pool, line, index)) : h("p", null, "No change of drafts shows a gain."),
    pool.longer ? h("p", { class: "quiet" }, `Extrapolated: drafts of ${pool.longer[0]} might save ${gainOf(pool.longer[1])}; none so long was seen.`) : null,
    pool.notes.map((note) => h("p", { class: "quiet" }, name(note))));
}

function changes(caption, rows) {
  if (!rows.length) return null;
  return [h("h3", null, caption), table(caption, ["Change", { text: "Saves", numeric: true }, ""], rows.map((of) =>
    h("tr", { "data-key": of.what }, h("th", { scope: "row" }, name(of.what)), h("td", { class: "number" }, gainOf(of.gain)),
      h("td", null, of.shown ? h("span", { class: "badge good" }, "worth it") : h("span", { class: "badge" }, of.gain.high < 0 ? "would lose" : "not beyond doubt"),
        of.outside ? h("span", { class: "badge warn" }, "at loads not seen") : null))), { class: "advice" })];
}

function fleetPanel({ fleet }) {
  const served = new Map();
  for (const [of, pool] of Object.entries(fleet.split?.classes ?? {})) served.set(pool, [...(served.get(pool) ?? []), of]);
  return h("section", { class: "panel", "data-key": "fleet" },
    h("h2", null, "The fleet ", h("span", { class: "quiet" }, "pools to add to, or to retire")),
    h("p", { class: "verdict" }, name(fleet.verdict)),
    served.size ? h("dl", { class: "facts" }, [...served].map(([pool, classes]) => [h("dt", null, name(pool)), h("dd", null, "fastest for ", classes.map((of, index) => [index ? ", " : "", name(of)]))])) : null,
    changes("The same servers all on one pool", Object.values(fleet.single ?? {})),
    changes("Servers moved", fleet.moves.slice(0, 6)),
    changes("One server more", fleet.additions.slice(0, 6)),
    fleet.lacking.map((why) => h("p", { class: "quiet" }, "Not known: ", name(why))));
}

export function render(view) {
  const told = polled(view, PATH, AGAIN_MS);
  const made = told.value?.routes.find((of) => of.model === view.route.model);
  const head = h("p", { class: "quiet", "data-key": "when" },
    told.value ? `By what was known at ${moment(told.value.time)}, over ${span(told.value.window_s)}; as `  : "Reckoning; with many pools and classes this takes some seconds … as ",
    h("code", null, "specroute recommend"), " says it. ",
    h("button", { type: "button", class: "small", "data-act": "anew", disabled: told.loading }, told.loading ? "Reckoning …" : "Reckon again"));
  const changed = view.route.concerns.filter((of) => of.since !== null);
  return [
    view.route.concerns.length ? concernsPanel(view) : null,
    head,
    changed.length ? h("p", { class: "alert warn" }, "What follows is of the whole window, so of the time before ", changed.map((of, index) => [index ? ", " : "", name(of.pool), " in ", name(of.class)]), " changed, too.") : null,
    told.error ? h("p", { class: "alert", role: "alert" }, told.error) : null,
    made ? [fleetPanel(made), h("div", { class: "grid", "data-key": "pools" }, made.pools.map(poolPanel)),
      made.pools.length ? null : empty("No pool of this route drafts", "Add one with a method that speculates to the configuration.")] : null,
  ];
}

export const acts = {
  anew(_, view) {
    again(view, PATH, `${PATH}?anew=1`);
    view.refresh();
  },
  async copy({ of }) {
    const code = document.getElementById(of);
    try {
      await navigator.clipboard.writeText(code.textContent);
      code.classList.add("copied");
      setTimeout(() => code.classList.remove("copied"), 1500);
    } catch {
      // Over plain HTTP browsers keep the clipboard closed: mark it for Ctrl-C.
      getSelection().selectAllChildren(code);
    }
  },
};
