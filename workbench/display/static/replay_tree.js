// One round's tree: the drafts from left to right, and under each position what the target chose there.

import { h, sign, svg } from "./dom.js";

const [HIGH, GAP, MOST] = [32, 8, 20]; // of a node, between two, characters of a token
export const percent = (thousandths) => (thousandths < 0 ? "?" : thousandths < 100 ? `${(thousandths / 10).toFixed(1)} %` : `${Math.round(thousandths / 10)} %`);

/** A token with its spaces and line breaks to be seen. */
export function tokenOf(text, extra = "") {
  const visible = text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "·");
  const cut = visible.length > MOST ? `${visible.slice(0, MOST - 1)}…` : visible;
  return h("code", { class: `wb-token ${extra}`, title: visible }, cut === "" ? "∅" : cut);
}

export class Tree {
  constructor(words, glyphs, choose) {
    this.words = words;
    this.glyphs = glyphs;
    this.choose = choose;
    this.root = h("div", { class: "wb-tree-scroll" });
  }

  /**
   * round: {nodes, tops, own, changed, root, chosen}; a node is [token, parent, depth, probability, accepted, rank],
   * `changed` what another draft would have said: {name, accepted, drafts}.
   */
  draw(round, width) {
    const { nodes } = round;
    const deep = nodes.reduce((most, node) => Math.max(most, node[2]), 0);
    const column = Math.max(112, Math.min(200, Math.floor(width / (deep + 1))));
    const boxWide = column - 22;
    const places = layout(nodes);
    const rows = Math.max(1, ...places.map((y) => y + 1));
    const high = rows * (HIGH + GAP);
    const left = (depth) => depth * column;
    const middle = (y) => y * (HIGH + GAP) + HIGH / 2;
    const rootY = places.length ? (Math.min(...childrenOf(nodes, -1).map((n) => places[n])) + Math.max(...childrenOf(nodes, -1).map((n) => places[n]))) / 2 : 0;
    const edges = nodes.map((node, at) => {
      const from = node[1] < 0 ? rootY : places[node[1]];
      const [x1, y1, x2, y2] = [left(node[2] - 1) + (node[1] < 0 ? boxWide : boxWide), middle(from), left(node[2]), middle(places[at])];
      return svg("path", { class: "wb-edge", "data-state": stateOf(nodes, at), d: `M${x1},${y1} C${x1 + 12},${y1} ${x2 - 12},${y2} ${x2},${y2}` });
    });
    const boxes = nodes.map((node, at) => {
      const state = stateOf(nodes, at);
      const said = `${this.words(node[0])}: ${percent(node[3])}, ${WORDS[state]}`;
      return h("button", {
        type: "button", class: "wb-node", "data-state": state, title: said, "aria-label": said, tabindex: -1, "aria-pressed": String(round.chosen === at),
        style: `left:${left(node[2])}px;top:${places[at] * (HIGH + GAP)}px;width:${boxWide}px`, onclick: () => this.choose(at),
      }, sign(state, this.glyphs), tokenOf(this.words(node[0])), h("span", { class: "wb-p" }, percent(node[3])));
    });
    const root = h("div", { class: "wb-node wb-root-node", style: `left:0;top:${rootY * (HIGH + GAP)}px;width:${boxWide}px`, title: "The last verified token: the tree grows from it" }, tokenOf(this.words(round.root)));
    const heads = [h("span", { style: `left:0;width:${boxWide}px` }, "known")];
    for (let depth = 1; depth <= deep; depth++) heads.push(h("span", { style: `left:${left(depth)}px;width:${boxWide}px` }, `draft ${depth}`));
    const wide = left(deep) + boxWide;
    this.root.replaceChildren(
      h("div", { class: "wb-tree-heads", style: `width:${wide}px` }, heads),
      h("div", { class: "wb-tree", style: `width:${wide}px;height:${high}px` }, svg("svg", { width: wide, height: high, "aria-hidden": "true" }, edges), root, boxes),
      h("div", { class: "wb-answers", style: `grid-template-columns:${boxWide}px repeat(${deep + 1}, ${boxWide}px);column-gap:${column - boxWide}px` },
        h("div", { class: "wb-answers-head" }, h("b", {}, "The target"), h("span", { class: "wb-muted" }, "its best choices at the same place")),
        this.answers(round, deep, round.tops, "target"), h("span", {}),
        h("div", { class: "wb-answers-head" }, h("b", {}, "The draft"), h("span", { class: "wb-muted" }, "its own best there")),
        this.answers(round, deep, round.own, "draft"), ...this.changed(round.changed, deep)));
  }

  /** The chain that the draft would have made with one thing changed, a draft at each position. */
  changed(changed, deep) {
    if (!changed) return [];
    const cells = [];
    for (let depth = 0; depth < deep; depth++) {
      const [token, share] = changed.drafts.slice(2 * depth, 2 * depth + 2);
      const state = depth < changed.accepted ? "accepted" : depth === changed.accepted ? "rejected" : "beside";
      cells.push(token === undefined ? h("div", {}) : h("div", { class: "wb-choices", "data-whose": "changed", "data-beside": String(state === "beside") },
        h("div", { class: "wb-choice", "data-first": "true", title: `${this.words(token)}: ${percent(share)}, ${WORDS[state]}` },
          h("i", { style: `width:${Math.max(share, 0) / 10}%` }), sign(state, this.glyphs), tokenOf(this.words(token)), h("span", { class: "wb-p" }, percent(share)))));
    }
    return [h("span", {}), h("div", { class: "wb-answers-head" }, h("b", {}, "The changed draft"), h("span", { class: "wb-muted" }, changed.name)), ...cells];
  }

  /** The choices of target or draft at each position, along the accepted path and on from the chosen node. */
  answers(round, deep, tops, whose) {
    const { nodes } = round;
    const path = pathTo(nodes, round.chosen ?? lastOf(nodes));
    const out = [];
    for (let depth = 0; depth < deep; depth++) {
      const place = depth === 0 ? -1 : path[depth - 1];
      if (place === undefined) {
        out.push(h("div", {}));
        continue;
      }
      const beside = place >= 0 && !nodes[place][4];
      const children = childrenOf(nodes, place);
      const [chosen] = round.tops[place + 1] ?? [];
      const marks = new Map(whose === "draft" ? [[chosen, CHOSEN]] : children.map((n) => [nodes[n][0], DRAFTED]));
      if (whose === "target" && children.some((n) => nodes[n][5] < 0)) marks.set(chosen, OUTSIDE);
      out.push(choicesOf(tops[place + 1] ?? [], marks, beside, this.words, whose));
    }
    return out;
  }
}

const WORDS = { accepted: "accepted", rejected: "rejected", beside: "its parent was rejected", unknown: "not known" };

export function stateOf(nodes, at) {
  const [, parent, , , accepted] = nodes[at];
  if (accepted) return "accepted";
  return parent < 0 || nodes[parent][4] ? "rejected" : "beside";
}

// Marks of a choice, and what they mean.
const DRAFTED = ["◂", "drafted"];
const OUTSIDE = ["∉", "not in the draft's vocabulary"];
const CHOSEN = ["◂", "what the target chose"];

function choicesOf(flat, marks, beside, words, whose) {
  if (!flat.length) return h("div", { class: "wb-choices", "data-whose": whose }, h("span", { class: "wb-muted" }, "not known"));
  const rows = [];
  for (let at = 0; at < flat.length; at += 2) {
    const [token, share] = [flat[at], flat[at + 1]];
    const [mark, said] = marks.get(token) ?? ["", whose === "target" ? "not drafted" : "not what the target chose"];
    rows.push(h("div", { class: "wb-choice", "data-first": String(at === 0), title: said },
      h("i", { style: `width:${Math.max(share, 0) / 10}%` }), tokenOf(words(token)), mark && h("span", { class: "wb-drafted", "data-mark": mark, "aria-label": said }, mark), h("span", { class: "wb-p" }, percent(share))));
  }
  return h("div", { class: "wb-choices", "data-whose": whose, "data-beside": String(beside), title: beside ? "If the draft before it had been accepted" : null }, rows);
}

const childrenOf = (nodes, parent) => nodes.flatMap((node, at) => (node[1] === parent ? [at] : []));

/** The end of the accepted path, and on along the first drafts below it. */
function lastOf(nodes) {
  let end = nodes.findLastIndex((node) => node[4]);
  for (let next = childrenOf(nodes, end); next.length; next = childrenOf(nodes, end)) end = next[0];
  return end;
}

function pathTo(nodes, at) {
  const path = [];
  for (let n = at; n >= 0; n = nodes[n][1]) path.unshift(n);
  return path;
}

/** A row for each leaf; a parent is in the middle of its children. */
function layout(nodes) {
  const places = new Array(nodes.length).fill(0);
  let next = 0;
  const put = (at) => {
    const below = childrenOf(nodes, at);
    if (!below.length) places[at] = next++;
    else {
      below.forEach(put);
      places[at] = (places[below[0]] + places[below.at(-1)]) / 2;
    }
  };
  childrenOf(nodes, -1).forEach(put);
  return places;
}
