// What every result begins with: the verdict, what it rests on, and the findings.

import { copyButton, h, plural, prose, sign } from "./dom.js";

const COMMAND = /^(workbench|python3?|pip|sglang|jupyter|make|git) /;
const SURE = { certain: "", likely: "likely, not certain", possible: "possible, not proved", unknown: "how sure is not known" };

export function verdictOf(payload, glyphs) {
  const { ok, line } = payload.verdict;
  const state = ok === null ? "unsure" : ok ? "ok" : "wrong";
  // The first sentence is understood in a second; what follows it is read afterwards.
  const [, first, rest] = line.match(/^(.{12,}?[.!?])\s+(.*)$/s) ?? [null, line, ""];
  return h(
    "header",
    { class: "wb-head", "data-state": state },
    h("div", { class: "wb-verdict", role: "status" }, sign(state, glyphs, "wb-sign-big"),
      h("div", { class: "wb-said" }, h("p", { class: "wb-line" }, prose(first)), rest && h("p", { class: "wb-rest" }, prose(rest)))),
    doubtsOf(payload.verdict),
    payload.facts.length > 0 &&
      h("dl", { class: "wb-facts" },
        payload.facts.map(([name, value]) =>
          h("div", { class: value.length > 64 && "wb-wide" }, h("dt", {}, name), h("dd", {}, prose(value))))),
    payload.versions?.length > 0 &&
      h("ul", { class: "wb-versions", "aria-label": "By version" },
        payload.versions.map(([version, fine, text]) => {
          const said = fine === null ? "unsure" : fine ? "ok" : "wrong";
          return h("li", { "data-state": said }, sign(said, glyphs), h("b", {}, version), h("span", {}, prose(text)));
        })),
  );
}

const DOUBTS = 6; // open items that are shown before the reader asks for the rest

// What the verdict does not cover, and what would overturn it: never folded away as a whole.
function doubtsOf(verdict) {
  // Notebooks of version 0.1 hold no coverage.
  const { checked = [], unchecked = ["what the checks covered was not recorded"], overturned_by: against = [] } = verdict;
  const rows = [
    ...(verdict.sure ? [["Confidence", verdict.sure]] : []),
    ...(checked.length ? [["Checked", checked.join(", ")]] : []),
    ...unchecked.slice(0, DOUBTS).map((text) => ["Not checked", text]),
    ...against.map((text) => ["Overturned by", text]),
  ];
  const rest = unchecked.slice(DOUBTS);
  return [
    verdict.next_step && nextStep(verdict.next_step),
    rows.length > 0 &&
      h("dl", { class: "wb-doubts" }, rows.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, prose(text))))),
    rest.length > 0 &&
      h("details", { class: "wb-doubts-more" }, h("summary", {}, `${plural(rest.length, "more item")} not checked`),
        h("ul", {}, rest.map((text) => h("li", {}, prose(text))))),
  ];
}

export function findingsOf(findings, glyphs) {
  if (!findings.length) return null;
  const loud = findings.filter((f) => f.severity !== "note");
  const quiet = findings.filter((f) => f.severity === "note");
  const notes = quiet.map((f) => finding(f, glyphs));
  return h(
    "section",
    { class: "wb-findings", "aria-label": "Findings" },
    h("h3", { class: "wb-h" }, "Findings"),
    loud.map((f) => finding(f, glyphs)),
    loud.length && quiet.length > 1
      ? h("details", { class: "wb-notes" }, h("summary", {}, plural(quiet.length, "note")), notes)
      : notes,
  );
}

function finding(item, glyphs) {
  return h(
    "article",
    { class: "wb-finding", "data-state": item.severity },
    sign(item.severity, glyphs),
    h(
      "div",
      { class: "wb-finding-body" },
      h("h4", { class: "wb-title" },
        h("span", { class: "wb-sr" }, item.severity + ": "), prose(item.title),
        SURE[item.confidence] && h("span", { class: "wb-tag" }, SURE[item.confidence])),
      item.detail && h("p", { class: "wb-detail" }, prose(item.detail)),
      evidence("Evidence", item.evidence_for, "for"),
      evidence("Evidence against it", item.evidence_against, "against"),
      item.experiment && experiment(item.experiment),
      item.next_step && nextStep(item.next_step),
      item.place && h("p", { class: "wb-place" }, item.place),
    ),
  );
}

function evidence(title, items, side) {
  if (!items.length) return null;
  return h(
    "details",
    { class: "wb-evidence", "data-side": side, open: side === "against" },
    h("summary", {}, `${title} (${items.length})`),
    h("ul", {}, items.map((text) => h("li", {}, prose(text)))),
  );
}

function experiment(item) {
  return h(
    "dl",
    { class: "wb-experiment" },
    [["Change", item.change], ["If right", item.if_right], ["If wrong", item.if_wrong], ["Cost", item.cost], ["Undo", item.undo]]
      .filter(([, value]) => value)
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, prose(value)))),
  );
}

function nextStep(text) {
  const command = COMMAND.test(text) && !/[.;:](\s|$)/.test(text) ? text : (text.match(/`((?:[^`\n])+)`/g) ?? []).map((c) => c.slice(1, -1)).find((c) => COMMAND.test(c));
  return h(
    "div",
    { class: "wb-next" },
    h("span", { class: "wb-next-label" }, "Next"),
    h("span", { class: "wb-next-text" }, command === text ? h("code", {}, text) : prose(text)),
    command && copyButton("Copy", () => command, "wb-copy"),
  );
}
