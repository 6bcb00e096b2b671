// What was found and still stands.

import { empty, h } from "../dom.js";
import { eventItem, newestFirst } from "../words.js";
import { moment } from "../format.js";

export const title = "Events";

export function render(view) {
  const { route, state } = view;
  const last = state.config?.last_reload;
  return [
    route.events.length
      ? h("section", { class: "panel", "data-key": "events" }, h("ul", { class: "plain" }, newestFirst(route.events).map((event) => eventItem(view, event))))
      : empty("Nothing was found", "Drifts of acceptance or cost, segments unlike their class and classes that are two kinds of work appear here, for as long as they stand."),
    h("div", { class: "grid", "data-key": "space" }),
    state.config ? h("section", { class: "panel", "data-key": "config" }, h("h2", null, "Configuration"),
      h("dl", { class: "facts" },
        h("dt", null, "File"), h("dd", { class: "mono" }, state.config.path),
        h("dt", null, "Content"), h("dd", { class: "mono" }, state.config.hash),
        h("dt", null, "Serves since"), h("dd", null, moment(state.config.since)),
        h("dt", null, "Last reload"), h("dd", null, last ? `${last.result} (${last.trigger}), ${moment(last.time ?? state.config.since)}${last.why ? `: ${last.why}` : ""}` : "none"),
        h("dt", null, "Workers"), h("dd", null, state.workers.map((worker) => `${worker.number}: ${worker.answers ? `pid ${worker.pid}, ${worker.requests} requests, ${worker.restarts} restarts` : worker.not_ready}`).join(" · "))),
      h("p", null, h("button", { type: "button", "data-act": "reload" }, "Read the configuration again"))) : null,
  ];
}

export const acts = {
  reload(_, view) {
    view.order("api/reload");
  },
};
