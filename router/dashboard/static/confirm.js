// Asks whether an order is meant, and who gives it and why: both stand in the audit.

import { h } from "./dom.js";

let who = "dashboard";

// Resolves to {who, why}, or to null where it was not meant.
export function confirmed({ title, says, act }) {
  return new Promise((resolve) => {
    const name = h("input", { id: "confirm-who", maxlength: 128, required: true, value: who, autocomplete: "name" });
    const why = h("input", { id: "confirm-why", maxlength: 2000, autocomplete: "off" });
    const cancel = h("button", { type: "button" }, "Cancel");
    const form = h("form", null,
      h("h2", { id: "confirm-title" }, title), h("p", null, says),
      h("label", { for: "confirm-who" }, "Your name"), name,
      h("label", { for: "confirm-why" }, "Reason, for the audit"), why,
      h("p", { class: "choices" }, cancel, h("button", { class: "primary" }, act)));
    const dialog = h("dialog", { class: "confirm", "aria-labelledby": "confirm-title" }, form);
    let answer = null;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      who = name.value.trim() || who;
      answer = { who, why: why.value.trim() };
      dialog.close();
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
    why.focus();
  });
}
