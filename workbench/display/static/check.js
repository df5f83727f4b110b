// The views of a LaunchCheck and of a Case: what fails or causes it, the line to paste, what was checked.

import { h, prose, sign } from "./dom.js";
import { findingsOf, verdictOf } from "./head.js";

/** @param {any} payload @param {any} tools */
export function launchcheck(payload, { glyphs }) {
  return {
    nodes: [
      verdictOf(payload, glyphs),
      payload.faults.length > 0 && section("What fails, and when", payload.faults.map(([moment, text, certain]) =>
        line(certain ? "wrong" : "unsure", text, moment, "", glyphs))),
      corrected(payload, "The line, corrected"),
      findingsOf(payload.findings, glyphs),
      section("What was checked", payload.items.map((item) => line(item.state, item.name, item.kind, item.how, glyphs))),
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

const section = (title, rows) => h("section", { "aria-label": title }, h("h3", { class: "wb-h" }, title), h("ul", { class: "wb-checks" }, rows));

const corrected = (payload, title) => payload.corrected
  && h("section", { "aria-label": title }, h("h3", { class: "wb-h" }, title), h("pre", { class: "wb-corrected" }, payload.corrected));

const line = (state, name, fact, detail, glyphs) => h("li", { class: "wb-check", "data-state": state },
  sign(state, glyphs), " ", h("b", {}, prose(name)), fact && h("span", { class: "wb-tag" }, fact), detail && h("p", {}, prose(detail)));
