// Why a request went where it went, and what came of it.

import { empty, h, name, table } from "../dom.js";
import { ask } from "../feed.js";
import { UNKNOWN, clock, count, figure, moment, percent, seconds } from "../format.js";
import { bars } from "../pictures.js";

export const title = "Explain";
const SHOWN = 40;
const AGAIN_MS = 3000;

const known = { list: null, one: null, wanted: null, error: null, at: 0, loading: false };

async function load(view) {
  if (known.loading || performance.now() - known.at < AGAIN_MS) return;
  known.loading = true;
  try {
    known.list = (await ask(`api/decisions?limit=${SHOWN}`)).decisions;
  } catch (error) {
    known.error = error.message;
  }
  known.at = performance.now();
  known.loading = false;
  view.refresh();
}

async function find(view, id) {
  if (known.wanted === id) return;
  known.wanted = id;
  known.one = known.list?.find((of) => of.request_id === id) ?? null;
  known.error = null;
  if (!known.one) {
    try {
      known.one = await ask(`api/decisions/${encodeURIComponent(id)}`);
    } catch (error) {
      known.error = error.message;
    }
    view.refresh();
  }
}

const facts = (rows) => h("dl", { class: "facts" }, rows.filter(Boolean).map(([term, value]) => [h("dt", null, term), h("dd", null, value)]));

function steps(one) {
  if (one.steps === null) return one.acceptance_source ? one.acceptance_source : UNKNOWN;
  return `${count(one.steps)} steps, ${count(one.drafted)} drafted, ${count(one.accepted)} accepted (${one.acceptance_source})`;
}

function detail(view, one) {
  const pools = [...new Set([...Object.keys(one.probabilities), ...Object.keys(one.excluded)])];
  return h("div", { class: "grid", "data-key": one.request_id },
    h("section", { class: "panel w6" },
      h("h2", null, "Decision ", h("span", { class: "mono quiet" }, one.request_id)),
      facts([
        ["When", moment(one.time)],
        ["Asked for", [name(one.model), ` · ${one.endpoint}${one.stream ? ", streamed" : ""}`]],
        ["Class", [name(one.class), ` · ${percent(one.confidence)} sure, by ${one.class_reason}`]],
        ["Expected", `answer repeats ${percent(one.copy_ratio)} of the request; length ${one.length_band ?? UNKNOWN}`],
        ["Segment", one.segment ? name(one.segment) : "none told apart"],
        ["Policy", [name(one.policy), `, by snapshot ${one.snapshot}`]],
        ["Drawn", [name(one.arm), ` with probability ${percent(one.propensity, { digits: 1 })}`]],
      ]),
      h("h3", null, "Candidates"),
      bars("Probabilities", pools.map((pool) => ({
        label: pool, value: one.probabilities[pool] ?? 0, text: percent(one.probabilities[pool] ?? null, { digits: 1 }),
        current: pool === one.arm, note: one.excluded[pool] ? `out: ${one.excluded[pool].replaceAll("_", " ")}` : pool === one.arm ? "drawn" : "",
      })))),
    h("section", { class: "panel w6" },
      h("h2", null, "What came of it ", h("span", { class: `badge ${one.status === "ok" ? "good" : "bad"}` }, one.status)),
      facts([
        ["Served by", one.served_by === null ? "nobody" : [name(one.served_by), one.served_by === one.arm ? "" : " (stepped in)"]],
        ["Tries", one.attempts.length ? one.attempts.map(([replica, end], index) => [index ? ", then " : "", name(replica), ` ${end}`]) : UNKNOWN],
        ["Status", [one.http_status ?? UNKNOWN, one.error ? [" · ", name(one.error)] : ""]],
        ["Load met", `${count(one.load)} at the server, ${count(one.waiting)} waiting there`],
        ["Waited for a place", seconds(one.queue_s)],
        ["Added by the proxy", seconds(one.overhead_s)],
        ["First token", seconds(one.ttft_s)],
        ["Per output token", seconds(one.tpot_s)],
        ["Whole answer", `${seconds(one.e2e_s)}${one.held ? ", held up by its client" : ""}`],
        ["Tokens", `${count(one.tokens)} of answer, ${count(one.prompt_tokens)} of prompt, ${count(one.cached_tokens)} cached`],
        ["Speculation", steps(one)],
        one.tokens !== null && one.steps ? ["Tokens per step", figure(one.tokens / one.steps)] : null,
      ])));
}

export function render(view) {
  load(view);
  const [id] = view.args;
  if (id) find(view, id);
  else known.wanted = known.one = known.error = null;
  const field = h("form", { class: "ask", "data-keep": "ask" }, h("label", { for: "request-id" }, "Request id"),
    h("input", { id: "request-id", class: "mono", placeholder: "x-specroute-request-id of a reply", autocomplete: "off", spellcheck: "false" }),
    h("button", { class: "primary" }, "Explain"));
  field.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = field.querySelector("input").value.trim();
    if (text) location.hash = view.link("explain", text);
  });
  return [
    h("section", { class: "panel", "data-key": "ask" }, field, known.error && id ? h("p", { role: "alert" }, `${known.error}. Only the last decisions are kept in memory; older ones are in the decision log.`) : null),
    h("div", { class: "grid", "data-key": "space" }),
    known.one ? detail(view, known.one) : null,
    known.list?.length
      ? h("section", { class: "panel", "data-key": "list" }, h("h2", null, "The last decisions"),
        table("The last decisions", ["Time", "Request", "Class", "Pool", { text: "Drawn with", numeric: true }, "Status", { text: "Load", numeric: true }, { text: "First token", numeric: true }, { text: "Per token", numeric: true }, { text: "Tokens", numeric: true }],
          known.list.map((one) => h("tr", { "data-key": one.request_id, class: one.request_id === id ? "chosen" : null },
            h("td", null, clock(one.time)),
            h("td", { class: "mono" }, h("a", { href: view.link("explain", one.request_id) }, one.request_id)),
            h("td", null, name(one.class)), h("td", null, name(one.arm)),
            h("td", { class: "number" }, percent(one.propensity)),
            h("td", null, h("span", { class: `badge ${one.status === "ok" ? "good" : "bad"}` }, one.status)),
            h("td", { class: "number" }, count(one.load)), h("td", { class: "number" }, seconds(one.ttft_s)),
            h("td", { class: "number" }, seconds(one.tpot_s)), h("td", { class: "number" }, count(one.tokens))))))
      : empty("No decision is remembered", "Send a request to ", h("code", null, `${view.state.data_url}/v1`), "; its reply carries the id in ", h("code", null, "x-specroute-request-id"), "."),
  ];
}
