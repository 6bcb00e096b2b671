// What the whole has saved each tenant in a month, against those that were held out by chance.

import { h, name, table } from "./dom.js";
import { count, percent } from "./format.js";
import { polled } from "./polled.js";

const MONTHS = 13;
const AGAIN_MS = 30_000;

function months(now) {
  const at = new Date(now * 1000);
  return Array.from({ length: MONTHS }, (_, ago) =>
    new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() - ago, 1)).toISOString().slice(0, 7));
}

const fine = (value) => percent(value, { sign: true, digits: 1 });
const gainOf = (gain) => (gain ? `${fine(gain.value)} [${fine(gain.low)}, ${fine(gain.high)}]` : "not enough data");

let wanted = null;
document.addEventListener("change", (event) => {
  if (event.target.id === "holdout-month") wanted = event.target.value;
});

export function holdout(view) {
  const there = months(view.state.time);
  const month = there.includes(wanted) ? wanted : there[0];
  const { value, error } = polled(view, `api/holdout/${month}`, AGAIN_MS);
  const rows = Object.entries(value?.models[view.route.model] ?? {});
  return h("section", { class: "panel", "data-key": "holdout" },
    h("h2", null, "Holdout ", h("span", { class: "quiet" }, "time that the whole saved, against requests held out on the baseline by chance; intervals hold at any look")),
    h("p", null, h("label", { for: "holdout-month" }, "Month, by UTC "), h("select", { id: "holdout-month" }, there.map((of) => h("option", { value: of, selected: of === month }, of)))),
    error ? h("p", { class: "alert" }, error) : null,
    rows.length
      ? table("Holdout by tenant", ["Tenant", { text: "Time saved", numeric: true }, { text: "Held out", numeric: true }, { text: "Others", numeric: true }],
        rows.map(([tenant, of]) => h("tr", { "data-key": tenant },
          h("th", { scope: "row" }, name(tenant)), h("td", { class: "number" }, gainOf(of.gain)),
          h("td", { class: "number" }, count(of.held_out)), h("td", { class: "number" }, count(of.others)))))
      : h("p", { class: "quiet" }, value ? "Nobody was held out in this month: no stream of this model was held back from speculation by chance, so what the whole has saved is not measured." : "Loading …"));
}
