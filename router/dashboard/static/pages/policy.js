// What the policy does now, and why a pool gets little or nothing.

import { empty, h, name, table } from "../dom.js";
import { byTail, count, gainText, percent } from "../format.js";
import { bars } from "../pictures.js";

export const title = "Policy";

// Why a pool gets little, as far as the state tells; the policy itself gives no reasons.
export function whyOut(route, entry, cell) {
  const pool = route.pools.find((of) => of.name === cell.pool);
  const usable = pool.replicas.filter((replica) => replica.up && replica.breaker !== "open" && !replica.draining);
  if (!pool.replicas.length) return "has no server";
  if (!usable.length) return "no server takes requests";
  if (!pool.lossless) return "may change texts; only where that is allowed";
  if (route.policy_failed_for.includes(entry.class)) return "the policy failed here: baseline only";
  if (byTail(cell)) return "known to lose: a tail is worse";
  if (cell.verdict === "loss") return "known to lose";
  if (cell.verdict === "gain") return "known to gain";
  if (cell.verdict === "no difference") return "no difference";
  return cell.verdict === null ? "baseline" : "not enough data";
}

function classPanel(view, entry) {
  const { route } = view;
  return h("section", { class: "panel w6", "data-key": entry.class },
    h("h2", null, name(entry.class), h("span", { class: "quiet" }, `${count(entry.requests)} requests in the window`)),
    bars(`Probabilities for ${entry.class}`, entry.cells.map((cell) => ({
      label: cell.pool, value: cell.probability, text: percent(cell.probability, { digits: 1 }),
      note: [whyOut(route, entry, cell), cell.gain ? h("span", null, h("br"), gainText(cell.gain)) : null],
    }))),
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
  return [
    h("p", { class: "quiet" }, "Probability with which the next request of a class goes to each pool, and what is known of that pool. Reasons of one request are on ", h("a", { href: "#/explain" }, "Explain"), "."),
    h("div", { class: "grid" }, route.classes.map((entry) => classPanel(view, entry))),
  ];
}
