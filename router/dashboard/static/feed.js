// The state as the server tells it: whole at first, then the pieces that change.

const STALE_MS = 5000;

export class Feed {
  constructor({ onState, onStale, onRefused }) {
    this.state = null;
    this.heard = 0;
    this.onState = onState;
    this.onStale = onStale;
    this.onRefused = onRefused;
    this.source = null;
    setInterval(() => this.onStale(this.stale()), 1000);
    // A page in the background asks for nothing, and catches up when it is looked at.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
  }

  stale() {
    return this.heard === 0 || performance.now() - this.heard > STALE_MS;
  }

  open() {
    this.close();
    this.source = new EventSource("api/events");
    this.source.addEventListener("state", (event) => this.take(JSON.parse(event.data)));
    this.source.addEventListener("change", (event) => this.change(JSON.parse(event.data)));
    this.source.addEventListener("error", () => this.onError());
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  take(state) {
    this.state = state;
    this.tell();
  }

  change({ time, parts }) {
    if (!this.state) return;
    this.state.time = time;
    for (const { path, value } of parts) {
      let holder = this.state;
      for (const step of path.slice(0, -1)) holder = holder[step];
      holder[path.at(-1)] = value;
    }
    this.tell();
  }

  tell() {
    this.heard = performance.now();
    this.onState(this.state);
  }

  async onError() {
    this.onStale(this.stale());
    // EventSource tells no status, and gives up for good on a refusal.
    if (this.source?.readyState !== EventSource.CLOSED) return;
    this.close();
    const status = await fetch("api/state", { cache: "no-store" }).then((reply) => reply.status, () => 0);
    if (status === 401) this.onRefused();
    else setTimeout(() => { if (!this.source && !document.hidden) this.open(); }, 2000);
  }
}

export async function ask(path, options = {}) {
  const reply = await fetch(path, { cache: "no-store", ...options });
  const body = reply.headers.get("content-type")?.startsWith("application/json") ? await reply.json() : null;
  if (!reply.ok) throw new Error(body?.error ?? `${path}: status ${reply.status}`);
  return body;
}

export const order = (path, body) => ask(path, {
  method: "POST",
  headers: { "x-specroute-csrf": "1", ...(body ? { "content-type": "application/json" } : {}) },
  body: body ? JSON.stringify(body) : undefined,
});
