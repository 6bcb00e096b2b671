// What pages ask for beside the state: asked for again while somebody looks, forgotten when nobody does.

import { ask } from "./feed.js";

const KEPT_MS = 60_000;
const answers = new Map(); // by path

// What a path answered last: {value, error}; it is asked for again where that is older than `every` ms.
export function polled(view, path, every) {
  const now = performance.now();
  let known = answers.get(path);
  if (!known) {
    known = { value: null, error: null, at: -Infinity, loading: false };
    answers.set(path, known);
  }
  known.wanted = now;
  if (!known.loading && now - known.at > every) load(view, path, known);
  for (const [other, of] of answers) if (now - of.wanted > KEPT_MS) answers.delete(other);
  return known;
}

// Asks another address now, and keeps its answer as that of the path.
export function again(view, path, address) {
  const known = answers.get(path);
  if (known && !known.loading) load(view, address, known);
}

async function load(view, address, known) {
  known.loading = true;
  try {
    known.value = await ask(address);
    known.error = null;
  } catch (error) {
    known.error = error.message;
  }
  known.at = performance.now();
  known.loading = false;
  view.refresh();
}

// Something was ordered: what paths beginning so told is old.
export function outdated(start) {
  for (const [path, known] of answers) if (path.startsWith(start)) known.at = -Infinity;
}
