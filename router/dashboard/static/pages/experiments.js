// What is tried: stages, effect, guards, and orders for whoever may give them.

import { place, update } from "../chart.js";
import { confirmed } from "../confirm.js";
import { empty, h, name, table } from "../dom.js";
import { order } from "../feed.js";
import { UNKNOWN, clock, count, day, figure, moment, percent, span } from "../format.js";
import { forest } from "../pictures.js";
import { outdated, polled } from "../polled.js";
import { holdout } from "../holdout.js";
import { startPanel, started } from "../plan.js";

export const title = "Experiments";
const AGAIN_MS = 2000;
const ALL = "api/experiments";

const fine = (value) => percent(value, { sign: true, digits: 1 });
export const effectText = (gain) => (gain ? `${fine(gain.value)} [${fine(gain.low)}, ${fine(gain.high)}]` : "not enough data");
const words = (text) => text.replaceAll("_", " ");
const KINDS = { running: "good", done: "good", paused: "warn", rolled_back: "bad", draft: "" };
const badge = (status) => h("span", { class: `badge ${KINDS[status] ?? ""}` }, words(status));

// What fits where an experiment stands; the proxy refuses whatever does not.
const ORDERS = { running: ["pause", "stop"], done: ["pause", "stop"], paused: ["resume", "stop"], draft: ["stop"], rolled_back: [] };
const ASKS = {
  pause: { act: "Pause", says: "Nobody is treated until it goes on; everybody keeps their side." },
  resume: { act: "Resume", says: "The stage goes on with its share; its time begins anew." },
  stop: { act: "Stop for good", says: "Everybody is back on the control. It cannot go on: a new try is a new experiment." },
};

export function variantText(variant) {
  if (variant.arm) return ["pool ", name(variant.arm)];
  if (variant.policy) {
    const parameters = Object.entries(variant.parameters).map(([key, value]) => `${key} ${value}`).join(", ");
    return ["policy ", name(variant.policy), parameters ? ` (${parameters})` : ""];
  }
  return variant.off ? "speculation off" : "what the route does anyway";
}

function killSwitch(told) {
  const on = told.speculation;
  const last = told.audit?.at(-1);
  return h("section", { class: on ? "panel" : "panel alarmed", "data-key": "switch" },
    h("h2", null, "Kill switch ", on ? h("span", { class: "badge good" }, "speculation allowed") : h("span", { class: "badge bad" }, "all requests decode plainly")),
    h("p", null, on ? "Turning speculation off sends all requests of all tenants to the baseline, within one refresh of the store." : "No request is sent to a pool that speculates until somebody allows it again.",
      last ? h("span", { class: "quiet" }, ` Last change ${moment(last.at)} by `, name(last.who), last.why ? [": ", name(last.why)] : null) : null),
    h("p", null, h("button", { type: "button", class: on ? "danger" : "primary", "data-act": "switch", "data-on": String(!on) }, on ? "Turn all speculation off" : "Allow speculation again")));
}

function list(view, told, chosen) {
  return h("section", { class: "panel", "data-key": "list" }, h("h2", null, "All experiments"),
    table("All experiments", ["Experiment", "Model", "Status", "Stage", { text: "Treated now", numeric: true }, "Why it stands there"],
      [...told.experiments].reverse().map(({ plan, standing, share }) => h("tr", { "data-key": plan.name, class: plan.name === chosen ? "chosen" : null },
        h("th", { scope: "row" }, h("a", { href: view.link("experiments", plan.name) }, name(plan.name))),
        h("td", null, name(plan.model)),
        h("td", null, badge(standing.status)),
        h("td", null, `${standing.stage} of ${plan.stages.length - 1}`),
        h("td", { class: "number" }, percent(share)),
        h("td", null, name(standing.why))))));
}

function about(shown) {
  const { plan, standing } = shown;
  const whose = [...plan.tenants.map((of) => ["tenant ", name(of)]), ...plan.groups.map((of) => ["group ", name(of)])];
  const listed = (items) => items.map((of, index) => [index ? ", " : "", of]);
  return h("section", { class: "panel", "data-key": "about" },
    h("h2", null, name(plan.name), " ", badge(standing.status), h("span", { class: "quiet" }, name(plan.hypothesis || "no hypothesis was written down"))),
    h("dl", { class: "facts" },
      h("dt", null, "Treatment"), h("dd", null, variantText(plan.treatment)),
      h("dt", null, "Control"), h("dd", null, variantText(plan.control)),
      h("dt", null, "Whose requests"), h("dd", null, whose.length ? listed(whose) : "everybody's"),
      h("dt", null, "Classes"), h("dd", null, plan.classes.length ? listed(plan.classes.map(name)) : "all"),
      h("dt", null, "Assigned as a whole"), h("dd", null, plan.unit),
      h("dt", null, "Stands there"), h("dd", null, name(standing.why), standing.since === null ? "" : `, stage since ${moment(standing.since)}`)),
    (shown.notes ?? []).map((note) => h("p", { class: "alert", "data-key": note }, note)),
    h("p", { class: "choices" }, (ORDERS[standing.status] ?? []).map((what) =>
      h("button", { type: "button", class: what === "stop" ? "danger" : null, "data-act": "move", "data-order": what, "data-name": plan.name }, ASKS[what].act))));
}

function stages({ plan, standing }) {
  const live = standing.status === "running" || standing.status === "done";
  return h("section", { class: "panel w6", "data-key": "stages" }, h("h2", null, "Stages ", h("span", { class: "quiet" }, "each lasts so long at least, and until both sides have had so many requests")),
    table("Stages", ["Stage", { text: "Share", numeric: true }, { text: "At least", numeric: true }, { text: "Requests a side", numeric: true }, { text: h("span", { class: "unseen" }, "Actions") }],
      plan.stages.map((stage, index) => h("tr", { "data-key": index, class: index === standing.stage ? "chosen" : null },
        h("th", { scope: "row" }, index, index === standing.stage ? h("span", { class: "quiet" }, live ? " now" : " stood here") : null),
        h("td", { class: "number" }, percent(stage.share, { digits: stage.share < 0.1 ? 1 : 0 })),
        h("td", { class: "number" }, span(stage.dwell_s)),
        h("td", { class: "number" }, count(stage.min_requests)),
        h("td", null, live && index !== standing.stage
          ? h("button", { type: "button", class: "small", "data-act": "ramp", "data-name": plan.name, "data-stage": index, "data-key": `ramp ${index}` }, index > standing.stage ? "Go up to it" : "Go back to it") : null)))));
}

function requests(look) {
  const { evidence, sample_ratio: ratio } = look;
  const ended = Object.entries(look.ended).map(([side, by]) => [h("dt", null, `Ended, ${side}`), h("dd", null, Object.entries(by).map(([status, n]) => `${count(n)} ${status}`).join(", ") || "none")]);
  const split = ratio === undefined ? UNKNOWN
    : ratio === null ? "nothing is split at this share"
      : [`${percent(ratio.seen, { digits: 1 })} treated, ${percent(ratio.planned, { digits: 1 })} planned`,
        ratio.e_value === null ? "; not tested: the unit is not the request" : `; evidence against the plan ${figure(ratio.e_value)}, an alarm from ${count(ratio.alarm_at)}`,
        evidence.ratio_alarm ? h("span", { class: "badge bad" }, "not split as planned") : null];
  return h("section", { class: "panel w6", "data-key": "requests" }, h("h2", null, "Requests ", h("span", { class: "quiet" }, `last look ${moment(look.at)}`)),
    h("dl", { class: "facts" },
      h("dt", null, "In this stage"), h("dd", null, `${count(evidence.control)} control, ${count(evidence.treatment)} treatment`),
      h("dt", null, "Sample ratio"), h("dd", null, split),
      h("dt", null, "Without the unit"), h("dd", null, `${count(look.missing_units)} (by the process that looked last)`),
      ended),
    evidence.alarm ? h("p", { class: "alert" }, evidence.alarm) : null);
}

function effects(shown) {
  const { look } = shown;
  const rows = [{ key: "all", label: "all classes", gain: look.evidence.gain }, ...Object.entries(look.classes).map(([of, gain]) => ({ key: `class ${of}`, label: of, gain }))];
  return h("section", { class: "panel w6", "data-key": "effects" }, h("h2", null, "Time saved by the treatment ", h("span", { class: "quiet" }, "intervals hold at any number of looks")),
    forest("Gain by class", rows.map(({ key, label, gain }) => ({
      key, label, value: gain?.value ?? null, low: gain?.low, high: gain?.high, text: effectText(gain),
      kind: gain?.low > 0 ? "gain" : gain?.high < 0 ? "loss" : "",
    })), { show: () => "" }));
}

const ofGuard = (guard, value) => (value === null ? UNKNOWN : guard.kind.endsWith("_ratio") ? `${figure(value)} ×` : percent(value, { sign: true, digits: 1 }));

function guards({ look }) {
  return h("section", { class: "panel w6", "data-key": "guards" }, h("h2", null, "Guards ", h("span", { class: "quiet" }, "a breach rolls back: even the lower bound is above the limit")),
    table("Guards", ["Guard", { text: "Limit", numeric: true }, { text: "Measured", numeric: true }, { text: "Bounds", numeric: true }, ""],
      look.evidence.guards.map((guard) => h("tr", { "data-key": guard.kind },
        h("th", { scope: "row" }, words(guard.kind)),
        h("td", { class: "number" }, ofGuard(guard, guard.limit)),
        h("td", { class: "number" }, ofGuard(guard, guard.value)),
        h("td", { class: "number" }, guard.low === null && guard.high === null ? UNKNOWN : `[${ofGuard(guard, guard.low)}, ${ofGuard(guard, guard.high)}]`),
        h("td", null, guard.breached ? h("span", { class: "badge bad" }, "breached") : guard.value === null ? h("span", { class: "badge" }, look.evidence.compared === false ? "no control" : "not enough data") : h("span", { class: "badge good" }, "kept"))))));
}

function audit({ audit: lines }) {
  return h("section", { class: "panel w6", "data-key": "audit" }, h("h2", null, "Audit"),
    h("ul", { class: "plain" }, [...lines].reverse().map((line) => h("li", { "data-key": `${line.at} ${line.what}` },
      h("time", { datetime: new Date(line.at * 1000).toISOString() }, moment(line.at)),
      h("span", { class: "badge" }, line.what), " ", name(line.who), line.why && line.why !== line.what ? [": ", name(line.why)] : null,
      line.evidence ? h("span", { class: "quiet" }, ` · gain ${effectText(line.evidence.gain)}, ${count(line.evidence.control)} control, ${count(line.evidence.treatment)} treatment`) : null))));
}

function detail(shown) {
  const { look } = shown;
  return [about(shown), h("div", { class: "grid", "data-key": "detail" },
    stages(shown),
    look ? requests(look) : h("section", { class: "panel w6", "data-key": "requests" }, empty("Nobody has looked yet", "The first look comes with the first requests.")),
    look?.effects?.length ? h("section", { class: "panel w6", "data-key": "p-effect" }, place("experiment-effect", "Time saved, as it was seen", "with its confidence sequence")) : null,
    look ? [effects(shown), guards(shown)] : null,
    audit(shown))];
}

const choice = (told, wanted) => {
  const names = told.experiments.map((of) => of.plan.name);
  if (names.includes(wanted)) return wanted;
  return told.experiments.findLast((of) => of.standing.status !== "rolled_back")?.plan.name ?? names.at(-1);
};

const one = (view) => {
  const told = polled(view, ALL, AGAIN_MS);
  const chosen = told.value && choice(told.value, view.args[0]);
  return { told, chosen, shown: chosen ? polled(view, `${ALL}/${encodeURIComponent(chosen)}`, AGAIN_MS).value : null };
};

export function render(view) {
  const { told, chosen, shown } = one(view);
  if (!told.value) return told.error ? h("p", { class: "alert", role: "alert" }, `Experiments cannot be read: ${told.error}`) : h("p", { class: "quiet" }, "Loading …");
  return [
    told.error ? h("p", { class: "alert" }, `What is shown is old: ${told.error}`) : null,
    killSwitch(told.value),
    chosen ? list(view, told.value, chosen)
      : empty("No experiments yet", "Write a plan into ", h("code", null, "try.yaml"), "; ", h("code", null, "specroute experiment plan try.yaml"), " tells what it will need, and ", h("code", null, "specroute experiment start try.yaml"), " lets it begin. Or edit the plan below."),
    h("div", { class: "grid", "data-key": "space" }),
    shown ? detail(shown) : null,
    startPanel(view),
    holdout(view),
  ];
}

export function draw(view) {
  const seen = one(view).shown?.look?.effects;
  if (!seen?.length) return;
  const column = (index) => seen.map((of) => of[index]);
  const far = seen.at(-1)[0] - seen[0][0] > 86_400;
  update({
    key: "experiment-effect", title: "Time saved, as it was seen", show: fine, points: seen.length < 60,
    x: { label: "time", time: true, show: far ? day : clock },
    range: (_, low, high) => [Math.max(-1, Math.min(low ?? 0, 0)) - 0.02, Math.min(1, Math.max(high ?? 0, 0)) + 0.02],
    data: [column(0), column(4), column(5), column(6)],
    series: [{ label: "gain", colour: "--accent", spanGaps: true }, { label: "low", colour: "--accent", dash: [3, 3], width: 1, spanGaps: true }, { label: "high", colour: "--accent", dash: [3, 3], width: 1, spanGaps: true }],
  });
}

async function ordered(view, path, body) {
  await view.order(path, body);
  outdated(ALL);
  view.refresh();
}

export const acts = {
  async switch({ on }, view) {
    const asked = await confirmed(on === "true"
      ? { title: "Allow speculation again?", says: "Requests go where the policy and the experiments send them.", act: "Allow it" }
      : { title: "Turn all speculation off?", says: "All requests of all tenants decode plainly from now on.", act: "Turn it off" });
    if (asked) await ordered(view, "api/speculation", { on: on === "true", ...asked });
  },
  async move({ order: what, name: of }, view) {
    const asked = await confirmed({ title: `${ASKS[what].act}: ${of}?`, ...ASKS[what] });
    if (asked) await ordered(view, `${ALL}/${encodeURIComponent(of)}/${what}`, asked);
  },
  async ramp({ name: of, stage }, view) {
    const asked = await confirmed({ title: `Move ${of} to stage ${stage}?`, says: "It does not wait for what the present stage asks.", act: "Move it" });
    if (asked) await ordered(view, `${ALL}/${encodeURIComponent(of)}/ramp`, { ...asked, stage: Number(stage) });
  },
  async start(_, view) {
    const asked = await confirmed({ title: "Let this experiment begin?", says: "It begins with its first stage, goes up by itself while nothing is wrong, and back when something is.", act: "Start it" });
    if (!asked) return;
    await started(view, (plan) => order(ALL, { plan, who: asked.who }));
    outdated(ALL);
    view.refresh();
  },
  forecast(_, view) {
    started(view, (plan) => order(`${ALL}/plan`, { plan }));
  },
};
