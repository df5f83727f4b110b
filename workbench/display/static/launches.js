// The view of a LaunchLedger: each launch, what came of it, and what exactly it changed.

import { h, plural, prose, sign } from "./dom.js";
import { findingsOf, verdictOf } from "./head.js";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

export function launches(payload, { glyphs }) {
  return {
    nodes: [
      verdictOf(payload, glyphs),
      payload.launches.length > 0 && h("section", { "aria-label": "Launches" }, h("h3", { class: "wb-h" }, "Launches"),
        payload.left_out > 0 && h("p", { class: "wb-status" }, `${plural(payload.left_out, "earlier launch", "earlier launches")} left out here; to_html(path) writes all.`),
        h("ol", { class: "wb-launches" }, payload.launches.map((launch) => launchOf(launch, glyphs)))),
      findingsOf(payload.findings, glyphs),
    ].filter(Boolean),
  };
}

function launchOf(launch, glyphs) {
  const { changed, unsure, harmless } = launch;
  const letter = LETTERS[launch.configuration] ?? String(launch.configuration + 1);
  const same = launch.against && !changed.length && !unsure.length;
  return h("li", { class: "wb-launch", "data-state": launch.state },
    h("div", { class: "wb-launch-mark" }, sign(launch.state, glyphs)),
    h("div", { class: "wb-launch-body" },
      h("div", { class: "wb-launch-head" }, h("b", { class: "wb-launch-name" }, launch.name),
        h("span", { class: "wb-launch-outcome" }, launch.outcome),
        h("span", { class: "wb-tag", title: "Launches with the same letter differ in nothing that matters" }, `configuration ${letter}`),
        launch.log && h("span", { class: "wb-launch-log" }, launch.log)),
      launch.hypothesis && h("p", { class: "wb-launch-why" }, "Hypothesis: ", prose(launch.hypothesis)),
      launch.change && h("p", { class: "wb-launch-why" }, "Tries: ", prose(launch.change)),
      same && h("p", { class: "wb-launch-same" }, `The same launch as ${launch.against}`),
      changed.length > 0 && h("div", { class: "wb-changes" }, changed.map(changeOf)),
      unsure.length > 0 && fold(`${plural(unsure.length, "possible difference")}`, unsure),
      harmless.length > 0 && fold(`${plural(harmless.length, "difference")} taken as without effect`, harmless),
      launch.command && h("details", { class: "wb-evidence" }, h("summary", {}, "Command and environment"), h("pre", { class: "wb-command" }, [...launch.environment, launch.command].join("\n")))));
}

const fold = (title, items) => h("details", { class: "wb-evidence" }, h("summary", {}, title), h("div", { class: "wb-changes" }, items.map(changeOf)));

const valueOf = (value) => (value ? h("code", {}, value) : h("span", { class: "wb-nothing" }, "not given"));

function changeOf([kind, name, before, after, why]) {
  return h("div", { class: "wb-change" }, h("span", { class: "wb-change-name" }, kind === "flag" ? `--${name}` : name),
    h("span", { class: "wb-change-values" }, valueOf(before), h("span", { class: "wb-arrow", role: "img", "aria-label": "becomes" }, " → "), valueOf(after)),
    why && h("span", { class: "wb-change-why" }, prose(why)));
}
