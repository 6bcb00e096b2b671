// What happened and what is wrong, in sentences.

import { h, name } from "./dom.js";
import { bracket, figure, gainText, minute, moment, percent, span } from "./format.js";

const RESTING = new Set(["up"]);

// Lines for the top of every page: {text, mild}.
export function troubles(state) {
  const lines = [];
  if (state.workers.some((worker) => worker.speculation_off)) {
    lines.push({ text: ["Speculation is off: all requests decode plainly, until it is allowed on ", h("a", { href: "#/experiments" }, "Experiments"), ", by `specroute experiment stop --all --undo`, or by `speculation: true` in the configuration"] });
  }
  for (const worker of state.workers) {
    if (!worker.answers) lines.push({ text: [`Worker ${worker.number} does not answer: ${worker.not_ready}`] });
  }
  if (!state.ready && state.not_ready) lines.push({ text: [`Not ready: ${state.not_ready}`] });
  if (!state.store.up) lines.push({ text: [`The store is away, so nothing new is learned together: ${state.store.says}`] });
  const last = state.config?.last_reload;
  if (last?.result === "refused") {
    lines.push({ text: [`The configuration was refused (${last.trigger}), and the one before serves on: ${last.why}`] });
  }
  for (const route of state.routes) {
    const down = route.pools.flatMap((pool) => pool.replicas).filter((replica) => replica.state === "down");
    if (down.length) {
      lines.push({ text: ["No answer from ", down.slice(0, 8).map((of, index) => [index ? ", " : "", name(of.id)]), down.length > 8 ? `, and ${down.length - 8} more` : ""] });
    }
    for (const pool of route.pools) {
      if (pool.discovery_error !== null) {
        lines.push({ text: [name(pool.name), `: the servers known last serve on, since ${pool.discovery_error}`] });
      }
      for (const why of [...pool.mismatch, ...pool.replicas.flatMap((replica) => replica.mismatch)].slice(0, 2)) {
        lines.push({ text: [name(pool.name), `: ${why}`], mild: true });
      }
    }
    if (route.policy_failed_for.length) {
      lines.push({ text: ["The policy failed, so the baseline serves ", route.policy_failed_for.map((of, index) => [index ? ", " : "", name(of)])] });
    }
  }
  return lines;
}

export const stateBadge = (word) => {
  const kind = RESTING.has(word) ? "good" : word === "down" || word === "open" ? "bad" : "warn";
  return h("span", { class: `badge ${kind}` }, word);
};

const sureness = (level) => (level > 0.9999 ? "more than 99.99 %" : percent(level, { digits: level > 0.99 ? 2 : 0 }));

const EVERY = "*";

const FIGURES = { tau: "tokens per step", cost: "time against the baseline's" };

function sentence(event) {
  const where = [event.class === EVERY ? "all classes" : name(event.class), event.segment ? [" · segment ", name(event.segment)] : null];
  const { change, time_ratio: ratio } = event;
  if (event.kind === "drift" && change) {
    const show = change.figure === "cost" ? (value) => `${figure(value)} ×` : (value) => figure(value);
    return ["Drift: ", name(event.pool), " on ", where, `: ${FIGURES[change.figure] ?? change.figure} went from ${show(change.before)} to ${show(change.after)}, since about ${moment(change.since)}`];
  }
  if (event.kind === "quarantine" || event.kind === "probation") {
    const state = event.kind === "quarantine" ? " gets no requests of " : " serves again, on probation, ";
    return ["Quality: ", name(event.pool), state, where, `: ${event.why}`];
  }
  const figures = ratio ? `${figure(ratio.value)} × [${figure(ratio.low)}, ${figure(ratio.high)}] the time` : "another time";
  const sure = event.level ? ` (${sureness(event.level)} sure)` : "";
  if (event.kind === "class_splits") {
    return [where, " is two kinds of work: where answers repeat the request, ", name(event.pool), ` takes ${figures} it takes elsewhere, against the baseline${sure}`];
  }
  if (event.kind === "segment_differs") {
    return [where, " is not like the rest of its class: ", name(event.pool), ` takes ${figures} it takes there, against the baseline${sure}`];
  }
  return [event.kind.replaceAll("_", " "), ": ", name(event.pool ?? ""), " on ", where];
}

const HARMS = {
  loss: (of) => [name(of.pool), " makes ", name(of.class), ` slower: ${longer(of.gain)}`],
  tail: (of) => [name(of.pool), " has a bad tail in ", name(of.class), `: its ${of.tail.name.replace("_", " ").toUpperCase()} is ${figure(of.tail.value)} × the baseline's ${bracket(of.tail.low, of.tail.high, figure)}`],
  failures: (of) => [name(of.pool), " fails more often than the baseline in ", name(of.class)],
  gain_lost: (of) => [name(of.pool), " saves no more time in ", name(of.class), `: ${gainText(of.gain)}`],
};

const longer = (gain) => `answers take ${percent(-gain.value)} longer than the baseline's ${bracket(-gain.high, -gain.low, percent)}`;

const EDGE_S = 300; // what began near the window's edge may have begun before it

function beginning(of, state) {
  if (of.since !== null) return `since about ${minute(of.since)}, when it changed`;
  if (of.measured_since === null) return "no change was seen";
  const edge = state.time - state.window_s + EDGE_S;
  return of.measured_since < edge
    ? `no change was seen: it was so all through the last ${span(state.window_s)}, and perhaps before`
    : `no change was seen: it was so since it was first measured, at ${minute(of.measured_since)}`;
}

function cause(of) {
  const changed = (what) => of.changes.find((change) => change.figure === what);
  const tau = changed("tau"), cost = changed("cost");
  if (tau && tau.after < tau.before) return `Drafts are kept less often: ${figure(tau.before)} tokens per step became ${figure(tau.after)}.`;
  if (cost) return `It took ${figure(cost.before)} × the baseline's time, now ${figure(cost.after)} ×; no change of acceptance was seen, so look at its servers.`;
  if (of.tokens_per_step === null || !of.num_speculative_tokens) return "";
  return `Of ${of.num_speculative_tokens + 1} tokens that a step checks ${figure(of.tokens_per_step)} are kept.`;
}

const LEARNS_NOTHING = new Set(["fixed", "rules"]);

function remedy(of, policy) {
  const better = [name(of.class), " is better off on ", name(of.instead.pool), of.instead.gain ? ` (${gainText(of.instead.gain)})` : ", the baseline"];
  const gets = of.share === null ? "" : ["; ", name(of.pool), ` had ${percent(of.share)} of the class in the last minutes`];
  return [...better, gets, LEARNS_NOTHING.has(policy) ? [", and policy ", h("code", null, policy), " leaves it so: change ", h("code", null, "routes[].policy")] : "", "."];
}

export function concernsPanel(view) {
  const { route } = view;
  return h("section", { class: "panel", "data-key": "concerns" },
    h("h2", null, "Needs attention"),
    route.concerns.length
      ? h("ul", { class: "plain" }, route.concerns.map((of) => h("li", { "data-key": `${of.class}|${of.pool}` },
        h("span", { class: of.harm === "loss" || of.harm === "failures" ? "badge bad" : "badge warn" }, of.harm.replace("_", " ")), " ",
        h("b", null, HARMS[of.harm](of)), "; ", beginning(of, view.state), ". ", cause(of), " ", remedy(of, route.policy), " ",
        h("a", { href: view.link("classes", of.class, of.pool), "aria-label": `Look at ${of.class} on ${of.pool}` }, "look"))))
      : h("p", { class: "quiet" }, "No pool is known to lose in any class, and none has lost a gain."));
}

export const kindText = (kind) => kind.replaceAll("_", " ");

export function eventItem(view, event) {
  return h("li", { "data-key": `${event.kind}|${event.class}|${event.segment}|${event.copying}|${event.pool}|${event.change?.figure ?? ""}` },
    h("time", { datetime: new Date(event.time * 1000).toISOString() }, moment(event.time)),
    h("span", { class: event.kind === "drift" ? "badge warn" : "badge" }, kindText(event.kind)), " ",
    sentence(event), " ",
    event.class === EVERY
      ? h("a", { href: view.link("fleet"), "aria-label": `Look at the servers of ${event.pool}` }, "look")
      : h("a", { href: view.link("classes", event.class, event.pool), "aria-label": `Look at ${event.class} on ${event.pool}` }, "look"));
}

export const newestFirst = (events) => [...events].sort((one, other) => other.time - one.time);
