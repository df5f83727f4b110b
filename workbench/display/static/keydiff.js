// The view of a KeyDiff: lost keys beside the parameters they would fill, then every key.

import { h, nameOf, number, plural, prose, sign } from "./dom.js";
import { findingsOf, verdictOf } from "./head.js";
import { Table } from "./table.js";

const MOST = 12; // pairs shown before the table takes over

export function keydiff(payload, context) {
  const table = new Table(payload.table, context);
  return {
    nodes: [
      verdictOf(payload, context.glyphs),
      findingsOf(payload.findings, context.glyphs),
      pairsOf(payload, context.glyphs),
      table.root,
    ],
    table,
  };
}

function pairsOf({ renames, table }, glyphs) {
  const dropped = table.groups.filter((g) => g.status === "dropped");
  const missing = table.groups.filter((g) => g.status === "missing" || g.status === "partial");
  if (!renames.length && !(dropped.length && missing.length)) return null;
  const pairs = dropped.map((g) => ({ lost: g, found: g.rename }));
  return h(
    "section",
    { class: "wb-pairs", "aria-label": "Lost keys and unfilled parameters" },
    h("h3", { class: "wb-h" }, renames.length > 1 && !renames.some((r) => r.chosen)
      ? `${renames.length} renames are possible; none is chosen` : renames.length ? "The rename that mends it" : "Lost, and left unfilled"),
    renames.map((rename) => ruleOf(rename, glyphs)),
    h("div", { class: "wb-sides" },
      h("div", { class: "wb-side" },
        h("h4", {}, sign("dropped", glyphs), `${plural(total(dropped), "key")} of the checkpoint, dropped`),
        list(pairs.map(({ lost, found }) => [lost, found]), MOST)),
      missing.length > 0 && h("div", { class: "wb-side" },
        h("h4", {}, sign("missing", glyphs), `${plural(total(missing), "parameter")} of the engine, left unfilled`),
        list(missing.map((g) => [g, null]), MOST))),
  );
}

const total = (groups) => groups.reduce((sum, g) => sum + g.count, 0);

function list(entries, most) {
  return h("ul", { class: "wb-list" },
    entries.slice(0, most).map(([group, rename]) =>
      h("li", {}, h("span", { class: "wb-li" }, nameOf(group.text), group.count > 1 && h("span", { class: "wb-many" }, `${number(group.count)}×`)),
        rename && h("span", { class: "wb-li wb-to" }, h("span", { class: "wb-arrow", "aria-label": "becomes" }, "→"), nameOf(rename)))),
    entries.length > most && h("li", { class: "wb-more" }, `and ${plural(entries.length - most, "group")} more in the table`));
}

function ruleOf(rename, glyphs) {
  const state = rename.proved ? "ok" : "unsure";
  const [before, after] = rename.example;
  return h(
    "div",
    { class: "wb-rule", "data-state": state },
    h("div", { class: "wb-rule-head" },
      h("div", { class: "wb-steps" }, rename.rule.map(([from, to]) =>
        h("div", { class: "wb-step" }, h("code", { title: "regular expression" }, from), h("span", { class: "wb-arrow", "aria-label": "becomes" }, "→"),
          h("code", {}, to === "" ? "(nothing)" : to)))),
      h("span", { class: "wb-proof", "data-state": state }, sign(state, glyphs),
        `${rename.proved ? "proved" : "partly proved"} · ${plural(rename.renamed, "key")}${rename.chosen ? "" : " · not chosen"}`)),
    h("p", { class: "wb-example" }, nameOf(before), h("span", { class: "wb-arrow" }, "→"), nameOf(after)),
    rename.proof && h("p", { class: "wb-detail" }, prose(rename.proof)),
    left("It leaves these keys lost", rename.leaves_keys),
    left("It leaves these parameters unfilled", rename.leaves_parameters),
  );
}

function left(title, names) {
  if (!names.length) return null;
  return h("details", { class: "wb-evidence" }, h("summary", {}, `${title} (${number(names.length)})`),
    h("ul", { class: "wb-list" }, names.slice(0, 200).map((name) => h("li", {}, nameOf(name))),
      names.length > 200 && h("li", { class: "wb-more" }, `and ${number(names.length - 200)} more`)));
}
