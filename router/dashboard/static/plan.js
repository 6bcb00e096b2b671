// A plan that is being written, and what it would need.

import { h, name } from "./dom.js";
import { count, figure, percent } from "./format.js";

const draft = { said: null, error: null };
let field = null; // the one on the page

function template(route) {
  const treated = route.pools.find((pool) => !pool.baseline);
  return [
    "name: try-1",
    `model: ${JSON.stringify(route.model)}`,
    "hypothesis: what it should save, and whom",
    `treatment: {arm: ${JSON.stringify(treated?.name ?? "POOL")}}`,
    "control: {default: true}",
    "unit: session",
    "stages:",
    "  - {share: 0.01, dwell_s: 3600, min_requests: 200}",
    "  - {share: 0.25, dwell_s: 86400, min_requests: 1000}",
    "guards:",
    "  - {kind: cost_ratio, limit: 1.05}",
    "  - {kind: tpot_p95_ratio, limit: 1.10}",
    "  - {kind: error_rate, limit: 0.01}",
    "  - {kind: abort_rate, limit: 0.02}",
    "",
  ].join("\n");
}

const hours = (value) => (value === null ? "" : ` (${figure(value, 1)} h)`);

function forecastLines({ plan, forecast: of }) {
  return h("div", { class: "forecast" },
    h("h3", null, "What ", name(plan.name), " will need"),
    h("p", null, `Noise of log cost ${figure(of.sd)} (${of.sd_is_assumed ? "assumed" : "measured"}), ${of.requests_per_hour === null ? "traffic unknown" : `${count(of.requests_per_hour)} requests an hour`}${of.design_is_assumed ? "; how alike requests of a unit are is not known, so it may take many times as long" : of.design > 1 ? `; requests of a session are alike: ${figure(of.design, 1)} are worth one` : ""}`),
    h("ul", { class: "plain" },
      of.stages.map((stage, index) => h("li", null, `Stage ${index}, ${percent(stage.share)}: ${stage.requests_for_effect === null ? "no control left, so nothing is compared" : `a gain of ${percent(of.effect)} shows after ${count(stage.requests_for_effect)} requests${hours(stage.hours_for_effect)}`}; lasts ${figure(stage.hours_at_least, 1)} h at least${stage.smallest_effect === null ? "" : ` and then shows gains from ${percent(stage.smallest_effect, { digits: 1 })} on`}`)),
      of.harm.map((harm) => h("li", null, `Stage 0, ${figure(harm.ratio, 1)} times the control's time: found within ${count(harm.requests)} requests${hours(harm.hours)}`))));
}

export function startPanel(view) {
  const box = h("div", { "data-keep": `plan ${view.route.model}` },
    h("label", { for: "plan" }, "Plan, in YAML or JSON"),
    h("textarea", { id: "plan", rows: 14, spellcheck: "false", class: "mono", dir: "auto" }, template(view.route)),
    h("p", { class: "choices" },
      h("button", { type: "button", "data-act": "forecast" }, "What will it need?"),
      h("button", { type: "button", class: "primary", "data-act": "start" }, "Start it …")));
  return h("section", { class: "panel", "data-key": "start" }, h("h2", null, "A new experiment ", h("span", { class: "quiet" }, "members are described in docs/experiments.md")),
    box,
    h("div", { role: "status" }, draft.error ? h("p", { class: "alert" }, draft.error) : null, draft.said));
}

// Sends what stands in the field, and keeps what was said of it for the next rendering.
export async function started(view, send) {
  field = document.getElementById("plan");
  draft.said = draft.error = null;
  try {
    const told = await send(field.value);
    draft.said = told.forecast ? forecastLines(told)
      : h("p", null, name(told.plan.name), ` is running; ${percent(told.share)} are treated`);
    if (!told.forecast) location.hash = view.link("experiments", told.plan.name);
  } catch (error) {
    draft.error = error.message;
  }
  view.refresh();
}
