// Small pictures drawn as SVG: intervals beside each other, bars.

import { h, name, svg } from "./dom.js";

const WIDTH = 240;
const HEIGHT = 26;

// Rows of {label, value, low, high, text, kind}; all on one scale, with a line at `zero`.
export function forest(caption, rows, { zero = 0, show }) {
  const there = rows.filter((row) => row.value !== null);
  const ends = there.flatMap((row) => [row.low ?? row.value, row.high ?? row.value]);
  let low = Math.max(Math.min(zero, ...ends), zero - 2);
  let high = Math.min(Math.max(zero, ...ends), zero + 2);
  const margin = (high - low || 1) * 0.08;
  low -= margin;
  high += margin;
  const at = (value) => Math.min(WIDTH, Math.max(0, ((value - low) / (high - low)) * WIDTH)).toFixed(1);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "forest" },
      h("caption", { class: "unseen" }, caption),
      h("tbody", null, rows.map((row) => h("tr", { "data-key": row.key ?? row.label },
        h("th", { scope: "row" }, row.href ? h("a", { href: row.href }, name(row.label)) : name(row.label),
          row.note ? h("span", { class: "quiet" }, " ", row.note) : null),
        h("td", { class: "picture" }, svg("svg", {
          viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true", class: row.kind ?? "",
        },
          svg("line", { x1: at(zero), x2: at(zero), y1: 0, y2: HEIGHT, class: "zero" }),
          row.value === null ? null : [
            svg("line", { x1: at(row.low ?? row.value), x2: at(row.high ?? row.value), y1: HEIGHT / 2, y2: HEIGHT / 2, class: "reach" }),
            svg("circle", { cx: at(row.value), cy: HEIGHT / 2, r: 4.5, class: "dot" }),
          ])),
        h("td", { class: "number" }, row.text ?? show(row)))))));
}

// Rows of {label, value in 0..1, text, note, current}.
export function bars(caption, rows) {
  return h("table", { class: "bars" },
    h("caption", { class: "unseen" }, caption),
    h("tbody", null, rows.map((row) => h("tr", { "data-key": row.label, class: row.current ? "current" : null },
      h("th", { scope: "row" }, name(row.label)),
      h("td", { class: "picture" }, svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true", class: "bar" },
        svg("rect", { x: 0, y: 0, width: 100, height: 10, class: "rail" }),
        svg("rect", { x: 0, y: 0, width: (100 * (row.value ?? 0)).toFixed(2), height: 10, class: "full" }))),
      h("td", { class: "number" }, row.text),
      h("td", { class: "quiet" }, row.note)))));
}
