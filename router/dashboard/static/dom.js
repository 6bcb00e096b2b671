// Elements from values, and the page brought up to date without losing focus, scroll or hover.
// Every text goes in as text: names of models, pools, classes and tenants may be anything.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(4)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

// A name from outside, kept apart from the direction of the text around it.
export const name = (text) => h("bdi", { dir: "auto", class: "name" }, text);

// Controls whose state is the user's; charts, which draw themselves.
const KEPT = new Set(["INPUT", "SELECT", "TEXTAREA"]);

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName &&
    (one.nodeType !== Node.ELEMENT_NODE ||
      (one.dataset?.key === other.dataset?.key && one.dataset?.keep === other.dataset?.keep));
}

function patch(from, to) {
  if (from.nodeType === Node.TEXT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.dataset?.keep !== undefined || KEPT.has(from.nodeName)) return;
  for (const { name: key, value } of [...to.attributes]) {
    if (from.getAttribute(key) !== value) from.setAttribute(key, value);
  }
  for (const { name: key } of [...from.attributes]) {
    if (!to.hasAttribute(key) && !(from.nodeName === "DETAILS" && key === "open")) {
      from.removeAttribute(key);
    }
  }
  morph(from, [...to.childNodes]);
}

export function morph(parent, wanted) {
  let at = parent.firstChild;
  for (const node of wanted) {
    if (at && alike(at, node)) {
      patch(at, node);
      at = at.nextSibling;
      continue;
    }
    const key = node.dataset?.keep ?? node.dataset?.key;
    let found = null;
    if (key !== undefined) {
      for (let next = at; next; next = next.nextSibling) {
        if (alike(next, node)) { found = next; break; }
      }
    }
    if (found) {
      parent.insertBefore(found, at);
      patch(found, node);
    } else {
      parent.insertBefore(node, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

export function table(caption, heads, rows, attributes = {}) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", attributes,
      h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, heads.map((head) =>
        h("th", { scope: "col", class: head.numeric ? "number" : null, title: head.title },
          head.text ?? head)))),
      h("tbody", null, rows)));
}

export const empty = (title, ...advice) =>
  h("div", { class: "empty" }, h("p", { class: "what" }, title), h("p", null, ...advice));

export function download(blob, filename) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: filename });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
