// Figures as text. What was not measured is a dash, never a zero.

export const UNKNOWN = "–";
const WIDEST = 2; // a wider interval says nothing

const known = (value) => value !== null && value !== undefined;

export function percent(value, { sign = false, digits = 0 } = {}) {
  if (!known(value)) return UNKNOWN;
  const text = (Math.abs(value) * 100).toFixed(digits);
  if (Number(text) === 0) return `${text} %`;
  return `${value < 0 ? "−" : sign ? "+" : ""}${text} %`;
}

export const figure = (value, digits = 2) => (known(value) ? value.toFixed(digits).replace("-", "−") : UNKNOWN);

export const count = (value) => (known(value) ? Math.round(value).toLocaleString("en") : UNKNOWN);

export function seconds(value) {
  if (!known(value)) return UNKNOWN;
  if (value < 0.0995) return `${(value * 1000).toFixed(1)} ms`;
  if (value < 0.9995) return `${(value * 1000).toFixed(0)} ms`;
  if (value < 100) return `${value.toFixed(2)} s`;
  return `${value.toFixed(0)} s`;
}

export function span(value) {
  if (!known(value)) return UNKNOWN;
  if (value < 90) return `${Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  if (value < 129_600) return `${(value / 3600).toFixed(1)} h`;
  return `${(value / 86_400).toFixed(1)} days`;
}

export const bracket = (low, high, of) =>
  (known(low) || known(high) ? `[${known(low) ? of(low) : "?"}, ${known(high) ? of(high) : "?"}]` : "");

export const signed = (value) => percent(value, { sign: true });

export const tellsSomething = (gain) => known(gain) && gain.high - gain.low <= WIDEST;

export const gainText = (gain) => (tellsSomething(gain)
  ? `${signed(gain.value)} ${bracket(gain.low, gain.high, signed)}` : UNKNOWN);

export const clock = (time) => new Date(time * 1000).toLocaleTimeString([], { hour12: false });

export const day = (time) => new Date(time * 1000).toLocaleString([], {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false,
});

export const minute = (time) => new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });

export const moment = (time) => new Date(time * 1000).toLocaleString([], {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
});

export const MARKS = { gain: "▲", loss: "▼", "no difference": "≈", "not enough data": "·" };

// A pool may save time on the whole and still lose, because a tail is worse than the baseline's.
export const byTail = (cell) => cell.verdict === "loss" && tellsSomething(cell.gain) && cell.gain.high >= 0;

// One of seven steps of colour for a gain that is known; the mark says the verdict without colour.
export function tint(cell) {
  if (cell.verdict === null) return "base";
  if (!tellsSomething(cell.gain) || cell.verdict === "not enough data") return "open";
  const steps = Math.min(3, Math.ceil(Math.abs(cell.gain.value) / 0.2));
  if (cell.verdict === "no difference") return "same";
  if (byTail(cell)) return "loss1";
  return (cell.verdict === "gain" ? "gain" : "loss") + Math.max(1, steps);
}
