// Which page is shown, for which route and time range, and how fresh it is.

import { sweep } from "./chart.js";
import { empty, h, morph, name } from "./dom.js";
import { Feed, ask, order } from "./feed.js";
import { clock, span } from "./format.js";
import { troubles } from "./words.js";
import * as classes from "./pages/classes.js";
import * as events from "./pages/events.js";
import * as experiments from "./pages/experiments.js";
import * as explain from "./pages/explain.js";
import * as fleet from "./pages/fleet.js";
import * as overview from "./pages/overview.js";
import * as policy from "./pages/policy.js";
import * as recommend from "./pages/recommend.js";

const PAGES = { overview, classes, policy, experiments, recommend, fleet, explain, events };
const RANGES = [["15 min", 900], ["1 h", 3600], ["6 h", 21_600], ["24 h", 86_400], ["7 d", 604_800]];
const HISTORY_MS = 5000;
const HOURS_MS = 60_000; // points of an hour change slowly

const view = {
  state: null, route: null, model: null, page: "overview", args: [], range: 900, stale: false,
  history: new Map(), // by class, "" for all together
  wanted: new Set(),
  refresh: () => render(),
};

function readAddress() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  view.page = Object.hasOwn(PAGES, parts[0]) ? parts[0] : "overview";
  view.args = parts.slice(1);
}

view.link = (page, ...args) => `#/${[page, ...args].map(encodeURIComponent).join("/")}`;

// Columns of the past, of a class or of all together; asked for again while a page wants them.
view.past = (className = "") => {
  view.wanted.add(className);
  const known = view.history.get(className);
  if (!known) loadHistory(className);
  const route = known?.routes?.find((of) => of.model === view.route.model);
  return route?.times ? route : null;
};

view.order = async (path, body) => {
  try {
    await order(path, body);
    view.failure = null;
  } catch (error) {
    view.failure = error.message;
  }
  render();
};

const loading = new Set();
async function loadHistory(className) {
  if (loading.has(className) || !view.state) return;
  loading.add(className);
  const { range } = view;
  try {
    const query = new URLSearchParams({ since: String(view.state.time - range) });
    if (className) query.set("class", className);
    const told = await ask(`api/history?${query}`);
    if (range === view.range) view.history.set(className, { ...told, at: performance.now() });
    view.historyError = told.routes.find((of) => of.error)?.error ?? null;
  } catch (error) {
    view.historyError = error.message;
  } finally {
    loading.delete(className);
  }
  if (range !== view.range) loadHistory(className);
  else render();
}

setInterval(() => {
  if (document.hidden) return;
  for (const key of view.history.keys()) if (!view.wanted.has(key)) view.history.delete(key);
  for (const key of view.wanted) {
    const known = view.history.get(key);
    const slow = known?.routes.every((route) => route.step_s >= 3600);
    if (!known || performance.now() - known.at > (slow ? HOURS_MS : 0)) loadHistory(key);
  }
}, HISTORY_MS);

const title = (page) => PAGES[page].title;

function rangePicker() {
  return h("div", { class: "range", role: "group", "aria-label": "Time range of the charts" }, RANGES.map(([text, range]) =>
    h("button", { type: "button", "data-act": "range", "data-range": range, "aria-pressed": String(range === view.range) }, text)));
}

function routePicker() {
  if (view.state.routes.length < 2) return null;
  return h("label", { "data-key": "routes" }, "Model ", h("select", { id: "model" }, view.state.routes.map((route) =>
    h("option", { value: route.model, selected: route.model === view.route.model }, route.model))));
}

function heading() {
  const page = PAGES[view.page];
  return h("div", { class: "head" },
    h("h1", null, page.title),
    h("span", { class: "quiet" }, name(view.route.model), " · policy ", name(view.route.policy)),
    h("div", { class: "controls" }, routePicker(), page.ranged ? rangePicker() : null));
}

function renderNav() {
  morph(document.getElementById("nav"), Object.keys(PAGES).map((page) =>
    h("a", { href: `#/${page}`, "aria-current": page === view.page ? "page" : null }, title(page))));
}

function renderFeed() {
  const holder = document.getElementById("feed");
  const { state, stale } = view;
  holder.classList.toggle("stale", stale);
  const text = !state ? "connecting …"
    : stale ? `No news since ${clock(state.time)}: what is shown is old`
      : `${state.ready ? "serving" : state.not_ready} · up ${span(state.uptime_s)}`;
  morph(holder, [h("span", { class: "lamp", "aria-hidden": "true" }), h("span", null, text),
    view.loggedIn ? h("button", { type: "button", class: "small", "data-act": "logout" }, "Log out") : null].filter(Boolean));
  // The connection's state is announced; the seconds that pass are not.
  holder.setAttribute("aria-live", stale ? "polite" : "off");
}

function renderAlerts() {
  const lines = view.state ? troubles(view.state) : [];
  if (view.failure) lines.unshift({ text: [`That did not work: ${view.failure}`] });
  if (view.historyError) lines.push({ text: [`No charts: ${view.historyError}`], mild: true });
  morph(document.getElementById("alerts"), lines.slice(0, 6).map((line) =>
    h("p", { class: line.mild ? "alert warn" : "alert" }, line.text)));
}

function render() {
  readAddress();
  renderNav();
  renderFeed();
  renderAlerts();
  document.title = `${title(view.page)} · Specroute`;
  if (!view.state || view.login) return;
  view.route = view.state.routes.find((route) => route.model === view.model) ?? view.state.routes[0];
  const main = document.getElementById("main");
  if (!view.route) {
    morph(main, [empty("No worker answers", "Look at the proxy's log; pages fill by themselves once one serves.")]);
    return;
  }
  view.wanted = new Set();
  const page = PAGES[view.page];
  morph(main, [heading(), ...[page.render(view)].flat(3).filter(Boolean)]);
  sweep();
  page.draw?.(view);
}

function login(message) {
  view.login = true;
  const input = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  const form = h("form", null, input, h("button", { class: "primary" }, "Open"));
  const said = h("p", { role: "alert" }, message ?? "");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await order("api/login", { token: input.value });
      view.login = false;
      view.loggedIn = true;
      feed.open();
    } catch (error) {
      said.textContent = error.message;
      input.focus();
    }
  });
  document.getElementById("main").replaceChildren(h("div", { class: "panel login" }, h("h1", null, "Specroute"),
    h("p", null, h("label", { for: "token" }, "Token (", h("code", null, "admin.token"), " of the configuration)")), form, said));
  input.focus();
}

const acts = {
  range({ range }) {
    view.range = Number(range);
    view.history.clear();
    render();
  },
  async logout() {
    await order("api/logout");
    location.reload();
  },
};

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-act]");
  if (!target) return;
  const act = acts[target.dataset.act] ?? PAGES[view.page].acts?.[target.dataset.act];
  act?.({ ...target.dataset }, view);
});
document.addEventListener("change", (event) => {
  if (event.target.id === "model") {
    view.model = event.target.value;
    render();
  }
});
addEventListener("hashchange", () => {
  const before = view.page;
  render();
  if (before !== view.page) {
    document.querySelector("nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    scrollTo(0, 0);
    document.getElementById("main").focus({ preventScroll: true });
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});

const feed = new Feed({
  onState(state) {
    view.state = state;
    view.stale = false;
    render();
  },
  onStale(stale) {
    if (!view.state || stale === view.stale) return;
    view.stale = stale;
    renderFeed();
  },
  onRefused: () => login(),
});
render();
feed.open();
