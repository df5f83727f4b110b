// The view of a Replay: what is accepted, and the step player, one round at a time.

import { h, number, plural, sign } from "./dom.js";
import { findingsOf, verdictOf } from "./head.js";
import { Course, positionsOf } from "./replay_charts.js";
import { stateOf, tokenOf, Tree } from "./replay_tree.js";

const BEFORE = 420; // tokens of the text so far
const NEAR = 0.25; // logits: a smaller lead of the target's choice is a near tie

/** Kinds of rejections, the first that holds counts: what it is called, and whether a round is one. */
const KINDS = {
  nan: ["the draft's logits are NaN", ({ fell }) => fell[3] < 0],
  near: ["near ties of the target", ({ margin }) => margin !== null && margin < NEAR],
  outside: ["not in the draft's vocabulary", ({ fell }) => fell[5] < 0],
  close: ["the draft's second to fifth choice", ({ fell }) => fell[5] > 1 && fell[5] <= 5],
  far: ["further down in the draft's order", ({ fell }) => fell[5] > 5],
  other: ["of unknown rank", () => true],
};

export function replay(payload, { glyphs, ui, keep }) {
  const player = payload.rounds.length ? new Player(payload, glyphs, ui, keep) : null;
  const charts = [positionsOf(payload), player?.course.root].filter(Boolean);
  const nodes = [
    verdictOf(payload, glyphs),
    lengthsOf(payload),
    player ? player.root : charts.length > 0 && h("section", {}, charts),
    findingsOf(payload.findings, glyphs),
  ].filter(Boolean);
  player?.side.append(...charts);
  return { nodes, life: player ?? {} };
}

/** The acceptance lengths in a row, and the line that the version prints. */
function lengthsOf(payload) {
  if (!payload.lengths.length) return null;
  return h("section", { "aria-label": "Acceptance lengths", class: "wb-lengths-section" },
    h("div", { class: "wb-lengths" }, payload.lengths.map(([name, value, source]) =>
      h("div", { class: "wb-length" }, h("span", { class: "wb-muted" }, name), h("b", {}, value), h("span", { class: "wb-muted wb-length-source" }, source)))),
    payload.printed && h("p", { class: "wb-muted" }, "This version prints ", h("code", {}, payload.printed)));
}

class Player {
  constructor(payload, glyphs, ui, keep) {
    this.payload = payload;
    this.glyphs = glyphs;
    this.keep = keep;
    this.words = (token) => payload.words[token] ?? `#${token}`;
    this.firsts = payload.requests.map((_, at) => payload.rounds.findIndex((round) => round[0] === at));
    const button = (label, title, act) => h("button", { type: "button", class: "wb-button", title, onclick: act }, label);
    this.back = button("←", "The round before (←)", () => this.step(-1));
    this.forth = button("→", "The next round (→)", () => this.step(1));
    this.next = button("Next rejection", "The next round that rejects a draft (n)", () => this.jump(1));
    this.kinds = payload.rounds.map(kindOf);
    this.sorted = h("select", { class: "wb-select wb-kind", "aria-label": "Kind of rejection", onchange: () => this.sortBy(this.sorted.value) }, this.choices());
    this.picker = h("select", { class: "wb-select", "aria-label": "Request", onchange: () => this.goTo(this.firsts[Number(this.picker.value)]) },
      payload.requests.map((request, at) => this.firsts[at] >= 0 && h("option", { value: at }, `request ${request[0]}`)));
    this.where = h("span", { class: "wb-where" });
    this.said = h("p", { class: "wb-round-text", "aria-live": "polite" });
    this.text = h("pre", { class: "wb-so-far", tabindex: 0, "aria-label": "The text so far" });
    this.tree = new Tree(this.words, glyphs, (node) => this.change({ node: this.ui.node === node ? null : node }));
    this.course = new Course(payload, (row) => this.goTo(row));
    this.side = h("aside", { class: "wb-side-rounds", "aria-label": "Acceptance" });
    this.stage = h("div", { class: "wb-stage", tabindex: 0, role: "group", "aria-label": "Step player: arrow keys go from round to round, n to the next rejection" },
      h("div", { class: "wb-player-bar" }, this.back, this.forth, this.where, this.next, this.sorted, this.picker),
      this.said, this.text, h("div", { class: "wb-text-keys" }, keysOf(glyphs)), this.tree.root,
      h("p", { class: "wb-muted wb-hint" }, "← → rounds, n and p rejections, Home and End, [ and ] requests. ◂ marks a choice of the target that was drafted, and in the draft's list what the target chose; ∉ what the draft's vocabulary does not have.",
        payload.left_out > 0 && ` ${plural(payload.left_out, "round")} of ${number(payload.total)} ${payload.left_out === 1 ? "is" : "are"} left out here.`));
    this.root = h("section", { class: "wb-player", "aria-label": "Round by round" },
      h("h3", { class: "wb-h" }, "Round by round"), h("div", { class: "wb-player-grid" }, this.stage, this.side));
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.resize = new ResizeObserver(() => this.measure());
    this.resize.observe(this.stage);
    this.restore(ui);
  }

  destroy() {
    this.resize.disconnect();
  }

  restore(ui) {
    this.ui = { row: -1, node: null, kind: "", ...ui };
    if (!this.kinds.includes(this.ui.kind)) this.ui.kind = "";
    if (this.ui.row < 0) this.ui.row = this.rejection(-1, 1);
    this.ui.row = Math.min(Math.max(0, this.ui.row), this.payload.rounds.length - 1);
    this.draw();
  }

  change(part) {
    Object.assign(this.ui, part);
    this.draw();
    this.keep({ ...this.ui });
  }

  goTo(row) {
    const last = this.payload.rounds.length - 1;
    this.change({ row: Math.min(Math.max(row, 0), last), node: null });
  }

  /** The kinds that there are, with their counts. */
  choices() {
    const count = (kind) => this.kinds.filter((own) => own === kind).length;
    const all = this.kinds.filter(Boolean).length;
    const kinds = Object.keys(KINDS).filter(count);
    return [["", `all ${plural(all, "rejection")}`], ...kinds.map((kind) => [kind, `${number(count(kind))}: ${KINDS[kind][0]}`])]
      .map(([kind, label]) => h("option", { value: kind }, label));
  }

  /** Go to the first rejection of a kind, unless this round is one. */
  sortBy(kind) {
    const here = this.kinds[this.ui.row];
    this.ui.kind = kind;
    const row = here && (!kind || here === kind) ? this.ui.row : this.rejection(-1, 1);
    this.change({ row: Math.max(0, row), node: null });
  }

  step(by) {
    this.goTo(this.ui.row + by);
  }

  jump(by) {
    const found = this.rejection(this.ui.row, by);
    if (found >= 0) this.goTo(found);
  }

  rejection(from, by) {
    for (let row = from + by; row >= 0 && row < this.payload.rounds.length; row += by)
      if (this.kinds[row] && (!this.ui.kind || this.kinds[row] === this.ui.kind)) return row;
    return -1;
  }

  key(event) {
    if (event.target.closest("select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const request = this.payload.rounds[this.ui.row][0];
    const act = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), Home: () => this.goTo(0), End: () => this.goTo(this.payload.rounds.length - 1),
      n: () => this.jump(1), p: () => this.jump(-1), "]": () => this.request(request + 1), "[": () => this.request(request - 1),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  request(at) {
    if (this.firsts[at] >= 0) this.goTo(this.firsts[at]);
  }

  measure() {
    const width = this.stage.clientWidth - 34;
    if (width > 0 && width !== this.width) {
      this.width = width;
      this.draw();
    }
  }

  draw() {
    const { row } = this.ui;
    const round = this.payload.rounds[row];
    const [request, index, prefix, , , , , nodes, tops, , own, beside] = round;
    const focused = [this.back, this.forth, this.next].find((button) => button.contains(button.getRootNode().activeElement));
    const here = this.payload.rounds.filter((other) => other[0] === request).length;
    this.where.replaceChildren(h("b", {}, `Round ${number(row + 1)}`), ` of ${number(this.payload.rounds.length)}`, h("span", { class: "wb-muted" }, ` · ${index + 1} of ${here} here`));
    this.back.disabled = row === 0;
    this.forth.disabled = row === this.payload.rounds.length - 1;
    this.next.disabled = this.rejection(row, 1) < 0;
    // A button that is turned off loses the focus, and the keys with it: the stage takes it over.
    if (focused?.disabled) this.stage.focus({ preventScroll: true });
    this.sorted.value = this.ui.kind;
    this.picker.value = String(request);
    this.said.replaceChildren(...this.sentence(round));
    this.text.replaceChildren(...this.soFar(row));
    this.text.scrollTop = this.text.scrollHeight;
    this.course.draw(row);
    const chosen = this.ui.node !== null && this.ui.node < nodes.length ? this.ui.node : null;
    const changed = beside && { name: this.payload.beside[0], accepted: beside[0], drafts: beside[1] };
    this.tree.draw({ nodes, tops, own, changed, root: this.payload.requests[request][1][prefix - 1], chosen }, this.width || 720);
  }

  /** What happened, in a sentence or two. */
  sentence([, , , bonus, observed, margin, stop, nodes, , wanted, , beside]) {
    const path = nodes.filter((node) => node[4]);
    const deep = nodes.reduce((most, node) => Math.max(most, node[2]), 0);
    const state = path.length ? "accepted" : "rejected";
    const out = [sign(state, this.glyphs), h("b", {}, `${path.length} of ${deep} drafts accepted.`), " "];
    const fell = fellOf(nodes);
    if (stop === "rejected" && fell && bonus >= 0)
      out.push("The target chose ", tokenOf(this.words(bonus)), " where the draft had ", tokenOf(this.words(fell[0])), fell[3] < 0 ? "; its logits are NaN. " : fell[5] > 0 ? `; that was number ${number(fell[5])} in the draft's own order. ` : fell[5] < 0 ? "; the draft's vocabulary does not have it. " : ". ");
    else out.push(`${capital(this.payload.stops[stop] ?? stop)}. `);
    if (margin !== null && margin < NEAR) out.push(h("span", { class: "wb-tag", title: "The target's two best choices are this many logits apart: bfloat16 may decide otherwise" }, `near tie, ${margin}`));
    if (observed >= 0) {
      const same = observed === path.length + 1 && (wanted.at(-1) === bonus || bonus < 0);
      out.push(h("span", { class: "wb-tag", "data-differs": String(!same) }, same ? "the engine did the same" : `the engine accepted ${observed - 1}`));
    }
    if (beside) out.push(" ", h("span", { class: "wb-tag wb-changed-tag", title: this.payload.beside[1] }, `with “${this.payload.beside[0]}”: ${beside[0]} of ${beside[1].length / 2} accepted`));
    return out;
  }

  /** The text up to this round, what it accepted and rejected, and the target's own token. */
  soFar(row) {
    const [request, , prefix, bonus, , , , nodes] = this.payload.rounds[row];
    const [, tokens, prompt] = this.payload.requests[request];
    const start = Math.max(0, prefix - BEFORE);
    const kinds = this.kindsOf(request, row, prompt);
    const out = start > 0 ? [h("span", { class: "wb-muted" }, "… ")] : [];
    for (let at = start; at < prefix; at++) out.push(this.piece(tokens[at], kinds.get(at) ?? (at < prompt ? "prompt" : "own")));
    nodes.forEach((node) => node[4] && out.push(this.piece(node[0], "accepted", true)));
    const end = nodes.findLastIndex((node) => node[4]);
    let fell = nodes.findIndex((node, at) => node[1] === end && stateOf(nodes, at) === "rejected");
    for (; fell >= 0; fell = nodes.findIndex((node) => node[1] === fell)) out.push(this.piece(nodes[fell][0], "rejected", true));
    if (bonus >= 0) out.push(this.piece(bonus, "bonus", true));
    return out;
  }

  /** Which tokens of the answer were drafts that were accepted, by the rounds before. */
  kindsOf(request, row, prompt) {
    const kinds = new Map();
    for (let at = row - 1; at >= 0 && this.payload.rounds[at][0] === request; at--) {
      const [from, to] = [this.payload.rounds[at][2], this.payload.rounds[at + 1][2]];
      for (let place = from; place < to - 1; place++) kinds.set(place, "taken");
    }
    return kinds;
  }

  piece(token, kind, now = false) {
    const word = this.words(token);
    const text = this.payload.words[token] === undefined ? `${word} ` : word;
    // In the round itself a line break is shown as one, so that a token cannot hide.
    const shown = now ? text.replaceAll("\n", "⏎\n").replaceAll("\t", "⇥") : text;
    return h(kind === "rejected" ? "del" : "span", { class: `wb-piece${now ? " wb-now-piece" : ""}`, "data-kind": kind, title: TITLES[kind] }, shown || "∅");
  }
}

const TITLES = {
  prompt: "prompt", own: "the target's own token", taken: "a draft that was accepted", accepted: "accepted in this round", rejected: "drafted and rejected", bonus: "the target's own token of this round",
};

function keysOf(glyphs) {
  return [["accepted", "accepted draft"], ["rejected", "rejected draft"], ["bonus", "the target's own token"]].map(([kind, word]) =>
    h("span", { class: "wb-key" }, sign(kind, glyphs), h(kind === "rejected" ? "del" : "span", { class: "wb-piece wb-now-piece", "data-kind": kind }, word)));
}

/** The first draft that fell at the end of the accepted path. */
function fellOf(nodes) {
  const end = nodes.findLastIndex((node) => node[4]);
  return nodes.find((node) => node[1] === end && !node[4]);
}

/** Which kind of rejection a round ends with, "" for none. */
function kindOf([, , , , , margin, stop, nodes]) {
  const fell = fellOf(nodes);
  if (stop !== "rejected" || !fell) return "";
  return Object.keys(KINDS).find((kind) => KINDS[kind][1]({ fell, margin }));
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
