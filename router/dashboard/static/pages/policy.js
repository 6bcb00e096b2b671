// What the policy does now, and why a pool gets little or nothing.

import { poolColour } from "../chart.js";
import { hills } from "../density.js";
import { empty, h, name, table } from "../dom.js";
import { byTail, count, gainText, percent } from "../format.js";
import { bars } from "../pictures.js";
import { polled } from "../polled.js";
import { concernsPanel } from "../words.js";

export const title = "Policy";
const AGAIN_MS = 3000;
const HELD = {
  failures: "held back: too many of its requests failed lately",
  slow_tail: "held back: its slowest answers are far beyond the baseline's",
};

// Why a pool gets little: what the policy tells, and what the state does.
export function whyOut(route, entry, cell, exploring) {
  const pool = route.pools.find((of) => of.name === cell.pool);
  const usable = pool.replicas.filter((replica) => replica.up && replica.breaker !== "open" && !replica.draining);
  if (!pool.replicas.length) return "has no server";
  if (!usable.length) return "no server takes requests";
  const held = exploring?.held[cell.pool];
  if (held) return `${HELD[held] ?? `held back: ${held}`}; it is probed, and comes back when that is over`;
  if (!pool.lossless) return "may change texts; only where that is allowed";
  if (route.policy_failed_for.includes(entry.class)) return "the policy failed here: baseline only";
  if (byTail(cell)) return "known to lose: a tail is worse";
  if (cell.verdict === "loss") return "known to lose";
  if (cell.verdict === "gain") return "known to gain";
  if (cell.verdict === "no difference") return "no difference";
  return cell.verdict === null ? "baseline" : "not enough data";
}

// What pools that are not proven may have, and what they had.
function exploration(told) {
  const { exploring } = told;
  if (!exploring) return null;
  const fine = (value) => percent(value, { digits: 1 });
  return [
    h("h3", null, "Exploration"),
    exploring.unproven.length
      ? h("p", null, "Not proven: ", exploring.unproven.map((of, index) => [index ? ", " : "", name(of)]), `, less than ${percent(exploring.proof)} sure to be no worse. Together they may have ${fine(exploring.budget)} of the requests now`,
        exploring.wanted > exploring.budget ? `, and would have had ${fine(exploring.wanted)}` : `, and want ${fine(exploring.wanted)}`,
        `; in the last minutes they had ${fine(exploring.got)}.`)
      : h("p", null, `Every pool that is used is at least ${percent(exploring.proof)} sure to be no worse; the budget of ${fine(exploring.budget)} is not needed.`),
    h("p", { class: "quiet" }, `Each pool gets ${percent(exploring.floor, { digits: 2 })} in any case, so that change is seen.`),
  ];
}

function beliefs(view, told) {
  const { route } = view;
  return [
    h("h3", null, "What it believes of each pool: time against the baseline's, with 90 %"),
    told.grid
      ? hills(`Beliefs about ${told.class}`, told.grid, told.pools.map((of) => ({ ...of, label: of.pool, colour: poolColour(route, of.pool) })))
      : h("p", { class: "quiet" }, "The policy ", name(route.policy), " goes by no estimate of what a pool costs, so there is no belief to draw."),
    exploration(told),
  ];
}

function classPanel(view, entry, told) {
  const { route } = view;
  return h("section", { class: "panel w6", "data-key": entry.class },
    h("h2", null, name(entry.class), h("span", { class: "quiet" }, `${count(entry.requests)} requests in the window`)),
    bars(`Probabilities for ${entry.class}`, entry.cells.map((cell) => ({
      label: cell.pool, value: cell.probability, text: percent(cell.probability, { digits: 1 }),
      note: [whyOut(route, entry, cell, told?.exploring), cell.gain ? h("span", null, h("br"), gainText(cell.gain)) : null],
    }))),
    told ? beliefs(view, told) : null,
    entry.segments.length ? segments(view, entry) : null);
}

function segments(view, entry) {
  return h("details", { "data-key": `segments ${entry.class}` }, h("summary", null, `${entry.segments.length} segments told apart`),
    table(`Segments of ${entry.class}`, ["Segment", "Answers", ...view.route.pools.map((pool) => ({ text: name(pool.name), numeric: true }))],
      entry.segments.map((part) => h("tr", { "data-key": `${part.segment} ${part.copying}` },
        h("th", { scope: "row" }, part.segment ? name(part.segment) : "rest", part.copying ? " (copying)" : ""),
        h("td", null, count(part.measured)),
        part.cells.map((cell) => h("td", { class: "number" }, cell.probability === null ? "as the class" : percent(cell.probability)))))));
}

export function render(view) {
  const { route } = view;
  if (!route.classes.length) {
    return empty("The policy has seen no request", "Until it has, every class gets what the policy gives to the unknown. Send some traffic to ", h("code", null, `${view.state.data_url}/v1`), ".");
  }
  const asked = polled(view, "api/beliefs", AGAIN_MS);
  const told = new Map(asked.value?.routes.find((of) => of.model === route.model)?.classes.map((of) => [of.class, of]) ?? []);
  return [
    route.concerns.length ? concernsPanel(view) : null,
    asked.error ? h("p", { class: "alert warn" }, `Beliefs cannot be shown: ${asked.error}`) : null,
    h("p", { class: "quiet" }, "Probability with which the next request of a class goes to each pool on an idle fleet, and what is known and believed of that pool. Reasons of one request are on ", h("a", { href: "#/explain" }, "Explain"), "."),
    h("div", { class: "grid" }, route.classes.map((entry) => classPanel(view, entry, told.get(entry.class)))),
  ];
}
