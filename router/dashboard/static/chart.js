// Charts of columns over time or load: hover, drag to zoom, double click to see all, PNG, CSV, table.

import { download, h, morph } from "./dom.js";
import { UNKNOWN } from "./format.js";

const HEIGHT = 200;
const charts = new Map();

export const colour = (key) => getComputedStyle(document.documentElement).getPropertyValue(key).trim();

const POOL_COLOURS = 8;
// The baseline is grey; other pools keep the place they have in the route.
export const poolColour = (route, pool) => {
  const others = route.pools.filter((of) => !of.baseline).map((of) => of.name);
  return pool === route.baseline ? "--plain" : `--pool${others.indexOf(pool) % POOL_COLOURS}`;
};

// Where a chart stands in a page; `update` draws it there. `key` names it on the page.
export const place = (key, title, note) => h("figure", { class: "chart", "data-key": key },
  h("figcaption", null, h("span", { class: "title" }, title), note ? h("span", { class: "quiet" }, ` ${note}`) : null),
  h("div", { class: "plot", "data-keep": key, "data-title": title }));

const csvField = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
// A name that a spreadsheet would take for a formula stays text.
const csvName = (text) => csvField(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);

function csv(spec) {
  const heads = [spec.x.label, ...spec.series.map((of) => csvName(of.label))];
  const rows = spec.data[0].map((x, index) => [
    spec.x.time ? new Date(x * 1000).toISOString() : x,
    ...spec.data.slice(1).map((column) => column[index] ?? ""),
  ]);
  return [heads, ...rows].map((row) => row.join(",")).join("\n") + "\n";
}

function toPng(plot, title, filename) {
  const from = plot.root.querySelector("canvas");
  const ratio = devicePixelRatio || 1;
  const canvas = h("canvas", { width: from.width, height: from.height + 30 * ratio });
  const context = canvas.getContext("2d");
  context.fillStyle = colour("--panel");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = colour("--ink");
  context.font = `${14 * ratio}px system-ui, sans-serif`;
  context.fillText(title, 8 * ratio, 20 * ratio);
  context.drawImage(from, 0, 30 * ratio);
  canvas.toBlob((blob) => download(blob, filename));
}

function valuesTable(spec) {
  const most = 60;
  const from = Math.max(0, spec.data[0].length - most);
  return h("table", null,
    h("thead", null, h("tr", null, [spec.x.label, ...spec.series.map((of) => of.label)].map((text) =>
      h("th", { scope: "col" }, h("bdi", { dir: "auto" }, text))))),
    h("tbody", null, spec.data[0].slice(from).map((x, index) => h("tr", null,
      h("th", { scope: "row" }, spec.x.show(x)),
      spec.data.slice(1).map((column) => h("td", null,
        column[from + index] === null || column[from + index] === undefined
          ? UNKNOWN : spec.show(column[from + index])))))));
}

function options(spec, width) {
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "11px system-ui, sans-serif" };
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return {
    width,
    height: spec.height ?? HEIGHT,
    padding: [10, 26, 0, 0],
    scales: {
      x: { time: spec.x.time === true, distr: spec.x.log ? 3 : 1, log: 2 },
      y: { range: spec.range ?? ((_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1]) },
    },
    axes: [
      { ...axis, space: 70, ...(spec.x.time ? { values: spec.x.ticks } : { values: (_, at) => at.map((v) => (v === null ? "" : String(Math.round(v * 10) / 10))) }) },
      { ...axis, size: 62, values: (_, ticks) => ticks.map((value) => spec.show(value)) },
    ],
    cursor: { drag: { x: true, y: false }, points: { size: 6 } },
    legend: { live: true },
    bands: spec.bands,
    series: [
      { label: spec.x.label, value: (_, x) => (x === null || x === undefined ? UNKNOWN : spec.x.show(x)) },
      ...spec.series.map((of) => {
        const ink = colour(of.colour);
        return {
          label: of.label,
          stroke: ink,
          width: of.width ?? 1.75,
          dash: of.dash,
          fill: of.fill ? ink + (dark ? "66" : "55") : undefined,
          points: { show: spec.points ? true : undefined, size: 5 },
          spanGaps: of.spanGaps ?? false,
          value: (_, value, index, at) => {
            const shown = of.shown && at !== null && at !== undefined ? of.shown[at] : value;
            return shown === null || shown === undefined ? UNKNOWN : spec.show(shown);
          },
        };
      }),
    ],
  };
}

function tools(spec) {
  const file = spec.title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
  const button = (text, label, act) => {
    const made = h("button", { type: "button", class: "small", "aria-label": label }, text);
    made.addEventListener("click", act);
    return made;
  };
  const held = () => charts.get(spec.key);
  const details = h("details", null, h("summary", null, "Table"));
  details.addEventListener("toggle", () => held()?.tell());
  return h("div", { class: "tools" },
    button("PNG", `${spec.title}: save as PNG`, () => toPng(held().plot, held().spec.title, `${file}.png`)),
    button("CSV", `${spec.title}: save as CSV`, () =>
      download(new Blob([csv(held().spec)], { type: "text/csv" }), `${file}.csv`)),
    details);
}

const looks = (spec) => JSON.stringify([
  spec.series.map((of) => [of.label, of.colour, of.fill === true, of.dash]), spec.x, spec.title,
  matchMedia("(prefers-color-scheme: dark)").matches,
]);

// Draws a chart in its place, or gives new columns to the one that is there.
export function update(spec) {
  const holder = document.querySelector(`[data-keep="${CSS.escape(spec.key)}"]`);
  if (!holder) return;
  let held = charts.get(spec.key);
  if (held && (held.holder !== holder || held.looks !== looks(spec))) {
    drop(spec.key);
    held = null;
  }
  if (held) {
    held.spec = spec;
    // Somebody who has zoomed in keeps looking there.
    const zoomed = held.zoomed();
    held.plot.setData(spec.plotted ?? spec.data, !zoomed);
    if (zoomed) held.plot.redraw();
    held.tell();
    return;
  }
  const picture = h("div", { class: "canvas", role: "img" });
  const bar = tools(spec);
  holder.replaceChildren(picture, bar);
  const plot = new uPlot(options(spec, Math.max(holder.clientWidth, 260)), spec.plotted ?? spec.data, picture);
  const resize = new ResizeObserver(() => {
    const width = holder.clientWidth;
    if (width && Math.abs(width - plot.width) > 2) plot.setSize({ width, height: spec.height ?? HEIGHT });
  });
  resize.observe(holder);
  held = {
    holder, plot, spec, resize, looks: looks(spec),
    zoomed() {
      const { min, max } = plot.scales.x;
      const xs = plot.data[0];
      return xs.length > 1 && (min > xs[0] || max < xs.at(-1));
    },
    tell() {
      // Where nobody points, the legend tells the latest.
      if (plot.cursor.idx === null || plot.cursor.idx === undefined) plot.setLegend({ idx: held.spec.data[0].length - 1 });
      const last = held.spec.data.slice(1).map((column, index) => {
        const value = column.findLast((of) => of !== null && of !== undefined);
        return `${held.spec.series[index].label} ${value === undefined ? UNKNOWN : held.spec.show(value)}`;
      });
      picture.setAttribute("aria-label", `${held.spec.title}. Latest: ${last.slice(0, 10).join(", ")}`);
      const details = bar.querySelector("details");
      if (details.open) morph(details, [details.firstChild.cloneNode(true), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${held.spec.title}: values` }, valuesTable(held.spec))]);
    },
  };
  charts.set(spec.key, held);
  held.tell();
}

function drop(key) {
  const held = charts.get(key);
  held?.resize.disconnect();
  held?.plot.destroy();
  charts.delete(key);
}

// Lets go of charts whose place is gone.
export function sweep() {
  for (const [key, held] of charts) if (!held.holder.isConnected) drop(key);
}

// Areas that lie on each other: each is drawn from the sum of those below it.
export function stacked(columns) {
  const sums = columns[0]?.map(() => 0) ?? [];
  return columns.map((column) => column.map((value, index) => {
    if (value === null) return null;
    sums[index] += value;
    return sums[index];
  }));
}

export function timeTicks(_, ticks) {
  const far = ticks.length > 1 && ticks.at(-1) - ticks[0] > 86_400;
  const near = ticks.length > 1 && ticks[1] - ticks[0] < 60;
  const days = ticks.length > 1 && ticks[1] - ticks[0] >= 86_400;
  const two = (value) => String(value).padStart(2, "0");
  return ticks.map((time) => {
    const at = new Date(time * 1000);
    const hour = `${two(at.getHours())}:${two(at.getMinutes())}${near ? `:${two(at.getSeconds())}` : ""}`;
    if (!far) return hour;
    const date = `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return days ? date : `${date} ${hour}`;
  });
}
