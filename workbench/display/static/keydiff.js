// The view of a KeyDiff: lost keys next to the parameters that they would fill, then every key.

import { h, nameOf, number, plural, prose, sign } from "./dom.js";
import { findingsOf, verdictOf } from "./head.js";
import { Table } from "./table.js";

const MOST = 24; // pairs shown before the table takes over

export function keydiff(payload, context) {
  // Where all is well the table is for reference: less of it at once.
  const table = new Table(payload.table, { ...context, lines: payload.verdict.ok ? 8.5 : 13.5 });
  return {
    nodes: [
      verdictOf(payload, context.glyphs),
      findingsOf(payload.findings, context.glyphs),
      renamesOf(payload, context.glyphs),
      table.root,
    ].filter(Boolean),
    life: table,
  };
}

function renamesOf({ renames, table }, glyphs) {
  if (!renames.length) return null;
  const proved = renames.filter((rename) => rename.proved).length;
  const title = proved > 1 ? `${proved} renames fit equally well: none is chosen`
    : proved ? "The rename that repairs it" : "Renames that repair a part";
  return h("section", { class: "wb-renames", "aria-label": "Proposed renames" },
    h("h3", { class: "wb-h" }, title),
    renames.map((rename, at) => ruleOf(rename, table.groups, glyphs, at === 0)));
}

function ruleOf(rename, groups, glyphs, open) {
  const state = rename.proved ? "ok" : "unsure";
  const pairs = rename.pairs ?? [];
  const [before, after] = rename.example;
  return h(
    "div",
    { class: "wb-rule" },
    h("div", { class: "wb-rule-head" },
      h("div", { class: "wb-steps" },
        rename.rule.map(([from, to]) => step(from, to === "" ? "(nothing)" : to)),
        (rename.fuses ?? []).map(([parts, whole]) => step(parts, whole, "fused into"))),
      h("span", { class: "wb-proof", "data-state": state }, sign(state, glyphs),
        `${rename.proved ? "proved" : "proved in part"} · ${plural(rename.renamed, "key")}`)),
    rename.proof && h("p", { class: "wb-detail" }, prose(rename.proof)),
    left("These keys stay lost", rename.leaves_keys),
    left("These parameters stay unfilled", rename.leaves_parameters),
    !pairs.length ? h("p", { class: "wb-example" }, nameOf(before), arrow(), nameOf(after))
      : open ? pairsOf(pairs, groups, glyphs)
        : h("details", { class: "wb-evidence" }, h("summary", {}, "Key by key"), pairsOf(pairs, groups, glyphs)),
  );
}

const arrow = (label = "becomes") => h("span", { class: "wb-arrow", role: "img", "aria-label": label }, "→");

function step(from, to, how = "becomes") {
  return h("div", { class: "wb-step" }, h("code", {}, from),
    how === "becomes" ? arrow() : h("span", { class: "wb-arrow" }, how), h("code", {}, to));
}

/** Lost keys at the left, their new names, and at the right the parameter that several may share. */
function pairsOf(pairs, groups, glyphs) {
  const count = Object.fromEntries(groups.map((group) => [group.text, group.count]));
  const byParameter = new Map();
  for (const [old, fresh, parameter] of pairs.slice(0, MOST)) {
    if (!byParameter.has(parameter)) byParameter.set(parameter, []);
    byParameter.get(parameter).push([old, fresh]);
  }
  const lines = [];
  let line = 2;
  for (const [parameter, sharing] of byParameter) {
    lines.push(h("div", { class: "wb-lands", style: `grid-row:${line} / span ${sharing.length}` }, nameOf(parameter)));
    for (const [old, fresh] of sharing) {
      const many = count[old] > 1 && h("span", { class: "wb-many" }, `${number(count[old])}×`);
      lines.push(
        h("div", { class: "wb-old", style: `grid-row:${line}` }, nameOf(old), many),
        h("div", { class: "wb-new", style: `grid-row:${line}` }, arrow(), nameOf(fresh)));
      line++;
    }
  }
  const more = pairs.length > MOST && h("p", { class: "wb-more" }, `and ${plural(pairs.length - MOST, "group")} more in the table`);
  return h("div", { class: "wb-pairs" },
    h("div", { class: "wb-pairs-grid", role: "group", "aria-label": "Lost keys, their new names, and where they land" },
      h("div", { class: "wb-pairs-head wb-old" }, sign("dropped", glyphs), "Lost key"),
      h("div", { class: "wb-pairs-head wb-new" }, "New name"),
      h("div", { class: "wb-pairs-head wb-lands" }, sign("missing", glyphs), "Fills the parameter"),
      lines),
    more);
}

function left(title, names) {
  if (!names.length) return null;
  return h("details", { class: "wb-evidence" }, h("summary", {}, `${title} (${number(names.length)})`),
    h("ul", { class: "wb-list" }, names.slice(0, 200).map((name) => h("li", {}, nameOf(name))),
      names.length > 200 && h("li", { class: "wb-more" }, `and ${number(names.length - 200)} more`)));
}
