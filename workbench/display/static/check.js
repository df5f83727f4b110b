// The views of a LaunchCheck, of a Gate and of a Case: what fails or causes it, the line to paste, what was checked.

import { copyButton, h, number, prose, sign } from "./dom.js";
import { findingsOf, verdictOf } from "./head.js";

// Of these kinds there are many: those that are healthy are counted, and shown when asked for.
const MANY = { key: "keys", parameter: "parameters", contract: "contracts", argument: "arguments", config: "configs", loader: "loaders" };

/** @param {any} payload @param {any} tools */
export function launchcheck(payload, { glyphs }) {
  return {
    nodes: [
      verdictOf(payload, glyphs),
      payload.faults.length > 0 && section("What fails, and when", payload.faults.map(([moment, text, certain]) =>
        line(certain ? "wrong" : "unsure", text, moment, "", glyphs))),
      corrected(payload, "The line, corrected"),
      findingsOf(payload.findings, glyphs),
      section("What was checked", rows(payload.items, glyphs)),
    ].filter(Boolean),
  };
}

/** @param {any} payload @param {any} tools */
export function gate(payload, { glyphs }) {
  return {
    nodes: [
      verdictOf(payload, glyphs),
      section("Releases", payload.ranges.map(([state, name, fact, text]) => line(state, name, fact, text, glyphs))),
      section("Weights and acceptance", payload.items.map((item) => line(item.state, item.name, "", item.how, glyphs))),
      findingsOf(payload.findings, glyphs),
      payload.badge && pasted("Badge", payload.badge, payload.badge),
    ].filter(Boolean),
  };
}

/** @param {any} payload @param {any} tools */
export function triage(payload, { glyphs }) {
  const state = (ok) => (ok === true ? "ok" : ok === false ? "wrong" : "unsure");
  return {
    nodes: [
      verdictOf(payload, glyphs),
      payload.causes.length > 0 && section("Causes, the most damaging first", payload.causes.map(([title, step, subject, certain]) =>
        line(certain ? "wrong" : "unsure", title, subject, step, glyphs))),
      corrected(payload, "The launch, corrected"),
      section("What was asked, and answered", payload.answers.map(([job, subject, ok, text]) => line(state(ok), job, subject, text, glyphs))),
      findingsOf(payload.findings, glyphs),
    ].filter(Boolean),
  };
}

const section = (title, lines) => h("section", { "aria-label": title }, h("h3", { class: "wb-h" }, title), h("ul", { class: "wb-checks" }, lines));

function corrected(payload, title) {
  return payload.corrected && pasted(title, payload.corrected, payload.broken ?? payload.corrected, payload.left ?? []);
}

/** A line to paste, as it is copied and as it is shown, with what is still wrong with it. */
function pasted(title, text, shown, left = []) {
  return h("section", { "aria-label": title },
    h("div", { class: "wb-paste-head" }, h("h3", { class: "wb-h" }, title), copyButton("Copy", () => text, "wb-copy")),
    h("pre", { class: "wb-corrected", tabindex: "0" }, shown),
    left.map((one) => h("p", { class: "wb-left" }, h("b", {}, "Still wrong: "), prose(one))));
}

function rows(items, glyphs) {
  const counted = (item) => item.state === "ok" && item.kind in MANY;
  const single = items.filter((item) => !counted(item)).map((item) => line(item.state, item.name, item.kind, item.how, glyphs));
  const groups = Object.entries(MANY).map(([kind, name]) => [name, items.filter((item) => item.kind === kind && counted(item))]).filter(([, all]) => all.length);
  return [...single, ...groups.map(([name, all]) => h("li", { class: "wb-check", "data-state": "ok" },
    h("details", {}, h("summary", {}, sign("ok", glyphs), " ", h("b", {}, `${number(all.reduce((sum, item) => sum + item.count, 0))} ${name}`), h("span", { class: "wb-tag" }, "healthy")),
      h("ul", { class: "wb-checks" }, all.map((item) => line(item.state, item.name, "", item.how, glyphs))))))];
}

const line = (state, name, fact, detail, glyphs) => h("li", { class: "wb-check", "data-state": state },
  sign(state, glyphs), " ", h("b", {}, prose(name)), fact && h("span", { class: "wb-tag" }, fact), detail && h("p", {}, prose(detail)));
