// The view of Ablations: one bar a change, its interval, what it restores, and its profile by position.

import { h, number, plural, sign } from "./dom.js";
import { findingsOf, verdictOf } from "./head.js";

const SHOWN = 12;
const ENOUGH = 0.8; // of the lost acceptance: the line that a cause must reach

export function ablations(payload, { glyphs, ui, keep }) {
  const state = { all: false, ...ui };
  const root = h("section", { class: "wb-ablations", "aria-label": "What each change restores" });
  const draw = () => root.replaceChildren(...tableOf(payload, glyphs, state, () => {
    state.all = !state.all;
    draw();
    keep({ ...state });
    root.querySelector(".wb-more-changes")?.focus();
  }));
  draw();
  return {
    nodes: [verdictOf(payload, glyphs), root, findingsOf(payload.findings, glyphs)].filter(Boolean),
    life: { restore: (fresh) => { Object.assign(state, fresh); draw(); } },
  };
}

function tableOf(payload, glyphs, state, more) {
  const [served, ...changes] = payload.bars;
  const singles = changes.filter((bar) => !bar.name.includes(" + "));
  const pairs = changes.filter((bar) => bar.name.includes(" + "));
  const cause = changes.find((bar) => bar.cause);
  const scale = new Scale(payload, served);
  const shown = state.all ? singles : singles.slice(0, SHOWN);
  const row = (bar) => rowOf(bar, payload, scale, glyphs, bar === served ? "served" : bar.cause ? "cause" : "");
  return [
    h("h3", { class: "wb-h" }, "One change at a time"),
    h("div", { class: "wb-abls", role: "table" },
      headOf(scale), row(served), shown.map(row),
      pairs.length > 0 && h("h4", { class: "wb-abls-title" }, "Two changes together"), pairs.map(row)),
    singles.length > SHOWN && h("button", { type: "button", class: "wb-button wb-more-changes", onclick: more }, state.all ? `Only the best ${SHOWN}` : `All ${number(singles.length)} changes`),
    h("p", { class: "wb-muted wb-abls-note" },
      "A bar is the acceptance length with this one change on the same texts, its whisker the bootstrap's 95 % interval; the small bars are the share of rounds with at least 1, 2 … drafts accepted, the outlines before them are what is expected.",
      payload.idle.length > 0 && ` No effect here: ${payload.idle.join(", ")}.`,
      payload.left_out > 0 && ` ${plural(payload.left_out, "change")} left out here; result.to_html(path) writes all.`,
      !cause && scale.line !== null && " No change reaches the line."),
  ].filter(Boolean);
}

/** From an accept length of 1 to the best, in percent of the picture's width. */
class Scale {
  constructor({ bars, expected }, served) {
    this.expected = expected?.accept_length ?? null;
    const ends = bars.flatMap((bar) => [bar.accept_length, bar.interval[1]]).filter((value) => value !== null);
    this.top = Math.max(1.1, this.expected ?? 0, ...ends) * 1.01;
    const lost = this.expected === null ? 0 : this.expected - served.accept_length;
    this.line = lost > 0 ? served.accept_length + ENOUGH * lost : null;
  }

  at(value) {
    return Math.min(Math.max(((value - 1) / (this.top - 1)) * 100, 0), 100);
  }
}

function headOf(scale) {
  const mark = (value, word, kind, side) => h("span", { class: `wb-line-label wb-line-${kind}`, "data-side": side, style: `left:${scale.at(value)}%` }, word);
  return h("div", { class: "wb-abl wb-abl-head", role: "row" },
    h("span", { role: "columnheader" }, "Change"),
    h("span", { class: "wb-abl-track", role: "columnheader" }, h("span", { class: "wb-line-label", style: "left:0" }, "1.00"),
      scale.line !== null && mark(scale.line, "80 %", "enough", "left"), scale.expected !== null && mark(scale.expected, `expected ${scale.expected.toFixed(2)}`, "expected", "right")),
    h("span", { class: "wb-num", role: "columnheader" }, "Length"),
    h("span", { class: "wb-num", role: "columnheader" }, "Restores"),
    h("span", { role: "columnheader" }, "By position"));
}

function rowOf(bar, payload, scale, glyphs, kind) {
  const served = { true: "ok", false: "wrong", null: "unsure" }[payload.verdict.ok];
  const state = kind === "cause" ? "ok" : kind === "served" ? served : "quiet";
  const length = bar.accept_length ?? 1;
  const [low, high] = bar.interval.map((value) => value ?? length);
  // Where nothing is lost, nothing can be restored.
  const restored = bar.restored === null || payload.verdict.ok === true ? "" : `${Math.round(100 * Math.min(Math.max(bar.restored, -9.99), 9.99))} %`;
  const few = !bar.confirmed && bar.requests ? `first pass, ${plural(bar.requests, "request")}` : "";
  return h("div", { class: "wb-abl", role: "row", "data-state": state, "data-kind": kind, title: [`${low.toFixed(2)} to ${high.toFixed(2)}`, few].filter(Boolean).join("; ") },
    h("div", { class: "wb-abl-name", role: "cell" }, kind ? sign(state, glyphs) : h("span", { class: "wb-sign" }), h("div", {}, h("b", {}, bar.name), bar.words && bar.words !== bar.name && h("span", { class: "wb-muted" }, bar.words))),
    h("div", { class: "wb-abl-track", role: "cell" },
      h("i", { class: "wb-abl-bar", style: `width:${scale.at(length)}%` }),
      h("i", { class: "wb-whisker", style: `left:${scale.at(low)}%;width:${Math.max(scale.at(high) - scale.at(low), 0.3)}%` }),
      scale.line !== null && h("i", { class: "wb-abl-rule wb-line-enough", style: `left:${scale.at(scale.line)}%` }),
      scale.expected !== null && h("i", { class: "wb-abl-rule wb-line-expected", style: `left:${scale.at(scale.expected)}%` })),
    h("span", { class: "wb-num", role: "cell" }, bar.accept_length === null ? "?" : length.toFixed(2)),
    h("span", { class: "wb-num", role: "cell" }, restored, kind === "cause" && h("span", { class: "wb-sr" }, " this is the cause")),
    profileOf(bar.per_position, payload.expected?.per_position ?? []));
}

function profileOf(shares, wanted) {
  return h("div", { class: "wb-profile", role: "cell", "aria-label": shares.map((share, at) => `position ${at + 1}: ${Math.round(100 * (share ?? 0))} %`).join(", ") },
    shares.map((share, at) => h("span", { class: "wb-pillar", title: `position ${at + 1}: ${Math.round(100 * (share ?? 0))} %${wanted[at] === undefined || wanted[at] === null ? "" : `, expected ${Math.round(100 * wanted[at])} %`}` },
      wanted[at] > 0 && h("i", { class: "wb-pillar-wanted", style: `height:${100 * wanted[at]}%` }),
      h("i", { class: "wb-pillar-is", style: `height:${100 * (share ?? 0)}%` }))));
}
