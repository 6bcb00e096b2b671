// Beliefs drawn as hills above each other, on one scale; the baseline is a line at 1.

import { h, name, svg } from "./dom.js";
import { UNKNOWN, bracket, figure, percent } from "./format.js";

const WIDTH = 300;
const HEIGHT = 34;
const MOST_RATIO = 8; // beyond it nobody has to see how much beyond

// Rows of {label, density, time_ratio, no_worse, note, colour}; `grid` are ratios of time, even on a log scale.
export function hills(caption, grid, rows) {
  const logs = grid.map((ratio) => Math.log(Math.min(Math.max(ratio, 1 / MOST_RATIO), MOST_RATIO)));
  const low = logs[0];
  const wide = logs.at(-1) - low || 1;
  const at = (ratio) => (((Math.log(Math.min(Math.max(ratio, 1 / MOST_RATIO), MOST_RATIO)) - low) / wide) * WIDTH);
  const top = Math.max(...rows.flatMap((row) => row.density ?? [0])) || 1;
  const path = (density) => {
    const points = density.map((of, index) => `${((logs[index] - low) / wide * WIDTH).toFixed(1)} ${(HEIGHT - 1 - (of / top) * (HEIGHT - 3)).toFixed(1)}`);
    return `M0 ${HEIGHT - 1} L${points.join(" L")} L${WIDTH} ${HEIGHT - 1} Z`;
  };
  const ratio = (of) => `${figure(of)} ×`;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "forest hills" },
      h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Pool"),
        h("th", { scope: "col", class: "ends" }, h("span", null, ratio(grid[0])), h("span", null, ratio(grid.at(-1)))),
        h("th", { scope: "col", class: "number", title: "Mean, and where it lies with 90 %" }, "Believed"), h("th", { scope: "col", class: "number", title: "Probability of costing no more than the baseline" }, "No worse"))),
      h("tbody", null, rows.map((row) => h("tr", { "data-key": row.label },
        h("th", { scope: "row" }, h("span", { class: `swatch ink${row.colour}` }), name(row.label), row.note),
        h("td", { class: "picture" }, svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, preserveAspectRatio: "none", "aria-hidden": "true" },
          svg("line", { x1: at(1).toFixed(1), x2: at(1).toFixed(1), y1: 0, y2: HEIGHT, class: "zero" }),
          row.density ? svg("path", { d: path(row.density), class: `hill line${row.colour}` })
            : svg("line", { x1: at(row.time_ratio.value).toFixed(1), x2: at(row.time_ratio.value).toFixed(1), y1: 4, y2: HEIGHT, class: "sure" }))),
        h("td", { class: "number" }, row.density ? `${ratio(row.time_ratio.value)} ${bracket(row.time_ratio.low, row.time_ratio.high, figure)}` : ratio(row.time_ratio.value)),
        h("td", { class: "number" }, row.density ? percent(row.no_worse) : UNKNOWN))))));
}
