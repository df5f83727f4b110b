// The merged stacks of all ranks as an icicle: roots at the top, a frame as wide as the ranks that pass it.

import { h, number, plural, sign } from "./dom.js";

const ROW = 26; // pixels of a frame
const NARROWEST = 64; // pixels that a branch gets where there is room
const MOST = 2000; // frames shown at once
const RUN = 4; // frames with the same ranks that are shown; a longer run is folded

const count = (ranges) => ranges.reduce((sum, [a, b]) => sum + b - a + 1, 0);
const holds = (ranges, rank) => ranges.some(([a, b]) => rank >= a && rank <= b);

/** All ranks that any of several sets has, as ranges. */
export function union(sets) {
  const found = [];
  for (const [a, b] of sets.flat().sort((x, y) => x[0] - y[0])) {
    const last = found.at(-1);
    if (last && a <= last[1] + 1) last[1] = Math.max(last[1], b);
    else found.push([a, b]);
  }
  return found;
}

/** The ranks of `all` that are not in `some`. */
function without(all, some) {
  const left = [];
  for (let [a, b] of all) {
    for (const [c, d] of some) {
      if (d < a || c > b) continue;
      if (c > a) left.push([a, c - 1]);
      a = d + 1;
    }
    if (a <= b) left.push([a, b]);
  }
  return left;
}

/** Ranges as text; with one kind of name (TP0, TP1, …) in its spelling. */
export function spell(ranges, names) {
  const text = ranges.map(([a, b]) => (a === b ? a : `${a}-${b}`)).join(",");
  if (!ranges.length) return "none";
  const kinds = new Set(ranges.flat().map((rank) => (names.get(rank) === `TP${rank}` ? "TP" : "rank ")));
  return kinds.size === 1 ? [...kinds][0] + text : `rank ${text}`;
}

export class Icicle {
  constructor({ payload, glyphs, choice, standing, names }) {
    this.payload = payload;
    this.glyphs = glyphs;
    this.choice = choice;
    this.standing = standing;
    this.names = names;
    this.id = "wbi" + Math.random().toString(36).slice(2, 8);
    this.read(payload.tree);
    this.build();
    choice.drawers.push(() => this.draw());
  }

  read({ nodes, sets }) {
    this.sets = sets.map((each) => ({ each, all: union(each) }));
    const top = { depth: -1, children: [], at: -1 };
    const path = [top];
    this.nodes = nodes.map(([depth, frame, set, moving], at) => {
      path.length = depth + 1;
      const parent = path[depth] ?? path.at(-1);
      const node = { at, depth, frame: this.payload.frames[frame], set, moving: Boolean(moving), parent, children: [], ...this.sets[set] };
      node.size = count(node.all);
      node.state = this.stateOf(node.all);
      parent.children.push(node);
      path[depth + 1] = node;
      return node;
    });
    this.top = top;
    top.all = union(top.children.map((node) => node.all));
    top.size = count(top.all);
  }

  /** What the ranks are that pass a frame, where all are alike. */
  stateOf(ranges) {
    let found = null;
    for (const [a, b] of ranges) {
      for (let rank = a; rank <= b; rank++) {
        const state = this.standing.get(rank) ?? "quiet";
        if (found !== null && found !== state) return "quiet";
        found = state;
      }
    }
    return found ?? "quiet";
  }

  build() {
    this.search = h("input", {
      class: "wb-filter", type: "search", placeholder: "Search frames", spellcheck: "false", "aria-label": "Search frames by function or file",
      oninput: () => this.choice.change({ search: this.search.value }),
      onkeydown: (event) => this.searchKey(event),
    });
    this.whole = h("button", { type: "button", class: "wb-button", onclick: () => this.choice.change({ node: null }) }, "Whole tree");
    this.every = h("button", { type: "button", class: "wb-button", onclick: () => this.choice.change({ all: !this.choice.ui.all }) }, "All frames");
    this.told = h("p", { class: "wb-status", role: "status", "aria-live": "polite" });
    this.canvas = h("div", {
      class: "wb-icicle", role: "tree", tabindex: "0", "aria-label": "Merged stacks. Arrow keys move, Enter zooms, Escape shows the whole tree, / searches.",
      onkeydown: (event) => this.key(event), onclick: (event) => this.clicked(event),
    });
    this.scroll = h("div", { class: "wb-icicle-scroll" }, this.canvas);
    this.detail = h("aside", { class: "wb-about", "aria-live": "polite", "aria-label": "About the chosen frame" });
    this.root = h("section", { class: "wb-stacks", "aria-label": "Merged stacks" },
      h("h3", { class: "wb-h" }, "Merged stacks"),
      h("div", { class: "wb-bar" }, this.search, h("div", { class: "wb-tools" }, this.whole, this.every)),
      this.told, this.scroll, this.detail);
  }

  measure() {
    const width = this.canvas.clientWidth;
    if (!width || width === this.width) return;
    this.width = width;
    this.draw();
  }

  // Layout: cells {node, x, y, width, run, ends}

  layout() {
    const { node, all } = this.choice.ui;
    const start = this.nodes[node] ?? this.top;
    this.cells = [];
    this.rows = 0;
    this.cut = false;
    const todo = start === this.top ? this.share(start, 0, this.width, 0) : [{ node: start, x: 0, width: this.width, y: 0 }];
    for (const ancestor of this.ancestors(start)) this.cells.push({ node: ancestor, x: 0, y: 0, width: this.width, above: true });
    this.cells.forEach((cell, at) => (cell.y = at));
    for (const item of todo) item.y += this.cells.length;
    while (todo.length) {
      const { node: first, x, width, y } = todo.shift();
      if (this.cells.length > MOST) {
        this.cut = true;
        break;
      }
      const run = [first];
      while (run.at(-1).children.length === 1 && run.at(-1).children[0].set === first.set) run.push(run.at(-1).children[0]);
      const folded = !all && run.length > RUN ? run.length - 3 : 0;
      const shown = folded ? [run[0], null, ...run.slice(-2)] : run;
      shown.forEach((one, at) => this.cells.push({ node: one ?? run[1], x, y: y + at, width, folded: one ? 0 : folded, first: at === 0 }));
      this.rows = Math.max(this.rows, y + shown.length);
      todo.push(...this.share(run.at(-1), x, width, y + shown.length));
    }
  }

  ancestors(node) {
    const found = [];
    for (let at = node.parent; at && at !== this.top; at = at.parent) found.unshift(at);
    return found.slice(-2); // the way back, one click a step
  }

  /** Divide a frame's width among its children, and the ranks that go no further. */
  share(node, x, width, y) {
    if (!node.children.length) return [];
    const ends = without(node.all, union(node.children.map((child) => child.all)));
    const parts = node.children.map((child) => ({ child, weight: Math.log2(1 + child.size) }));
    if (ends.length && node !== this.top) parts.push({ ends, weight: Math.log2(1 + count(ends)) });
    const whole = parts.reduce((sum, part) => sum + part.weight, 0);
    const floor = Math.min(NARROWEST, width / parts.length);
    const spare = width - floor * parts.length;
    const items = [];
    for (const { child, ends: stop, weight } of parts) {
      const wide = floor + (spare * weight) / whole;
      if (child) items.push({ node: child, x, width: wide, y });
      else this.cells.push({ node, x, y, width: wide, ends: stop });
      if (!child) this.rows = Math.max(this.rows, y + 1);
      x += wide;
    }
    return items;
  }

  // Drawing

  draw() {
    if (!this.width) return;
    const { ui } = this.choice;
    if (this.search.value !== ui.search) this.search.value = ui.search;
    this.layout();
    const wanted = ui.search.trim().toLowerCase();
    this.hits = wanted ? this.nodes.filter((node) => matches(node, wanted)) : [];
    const chosen = ui.ranks;
    this.canvas.style.height = `${this.rows * ROW}px`;
    this.canvas.replaceChildren(...this.cells.map((cell, at) => this.cell(cell, at, wanted, chosen)));
    const cursor = this.cursorAt();
    if (cursor >= 0) this.canvas.setAttribute("aria-activedescendant", `${this.id}-${cursor}`);
    else this.canvas.removeAttribute("aria-activedescendant");
    this.whole.disabled = ui.node === null;
    this.every.setAttribute("aria-pressed", String(ui.all));
    this.every.textContent = ui.all ? "Fold long runs" : "All frames";
    this.drawTold(wanted);
    this.drawDetail(cursor >= 0 ? this.cells[cursor] : null);
  }

  cursorAt = () => this.cells.findIndex((cell) => cell.node.at === this.choice.ui.cursor && !cell.ends);

  cell(cell, at, wanted, chosen) {
    const { node, ends, folded } = cell;
    const label = ends ? `${spell(ends, this.names)} ${count(ends) > 1 ? "end" : "ends"} here` : folded ? `… ${plural(folded, "frame")}` : shortName(node.frame[0]);
    const ranks = ends ?? node.all;
    const dim = (chosen.length && !chosen.some((rank) => holds(ranks, rank))) || (wanted && (ends || folded ? !folded || !this.inFold(node, wanted) : !matches(node, wanted)));
    const state = ends ? this.stateOf(ends) : node.state;
    const branch = cell.first && node.parent !== undefined && node.size < this.top.size;
    return h("div", {
      class: ["wb-frame", dim && "wb-dim", wanted && !dim && "wb-hit", node.moving && !ends && "wb-moving", ends && "wb-ends", folded && "wb-folded", cell.above && "wb-above",
        node.at === this.choice.ui.cursor && !ends && "wb-selected"].filter(Boolean).join(" "),
      id: `${this.id}-${at}`, role: "treeitem", "data-at": at, "data-state": state, "aria-level": node.depth + 1,
      "aria-selected": String(node.at === this.choice.ui.cursor && !ends),
      title: ends ? label : `${node.frame[0]}\n${placeText(node.frame)}\nhas ${spell(node.all, this.names)}`,
      style: `left:${cell.x}px;top:${cell.y * ROW}px;width:${Math.max(cell.width - 2, 2)}px`,
    }, cell.width > 34 && [
      (branch || ends) && sign(state, this.glyphs), node.moving && !ends && h("span", { class: "wb-moves", title: "differs between the snapshots" }, "≈"),
      h("span", { class: "wb-frame-name" }, label),
      branch && cell.width > 150 && h("span", { class: "wb-frame-ranks" }, spell(node.all, this.names)),
    ]);
  }

  inFold(first, wanted) {
    for (let node = first; node && node.set === first.set; node = node.children[0]) {
      if (matches(node, wanted)) return true;
      if (node.children.length !== 1) return false;
    }
    return false;
  }

  drawTold(wanted) {
    const { times } = this.payload;
    const parts = [`${plural(this.top.size, "rank")}, ${plural(this.nodes.length, "frame")}`];
    if (wanted) parts.push(`${plural(this.hits.length, "frame")} ${this.hits.length === 1 ? "matches" : "match"}`);
    if (times.length > 1) parts.push(this.nodes.some((node) => node.moving) ? "≈ differs between the snapshots" : `no stack moved in ${plural(times.length, "snapshot")}`);
    if (this.cut) parts.push(`the first ${number(MOST)} are shown: zoom in for the rest`);
    parts.push("wider: more ranks (by their logarithm)");
    this.told.textContent = parts.join(" · ");
  }

  drawDetail(cell) {
    this.detail.hidden = !cell;
    if (!cell) return;
    const { node } = cell;
    const lacks = without(this.top.all, node.all);
    const differ = new Set(node.each.map((one) => JSON.stringify(one))).size > 1;
    const facts = [
      ["Has", `${spell(node.all, this.names)} (${node.size} of ${this.top.size})`],
      ["Lacks", lacks.length ? spell(lacks, this.names) : "none"],
      ...(differ ? node.each.map((one, at) => [`In snapshot ${at + 1}`, spell(one, this.names)]) : []),
      ["Where", placeText(node.frame)],
    ].filter(([, value]) => value);
    this.detail.replaceChildren(
      h("div", { class: "wb-about-head" }, sign(node.state, this.glyphs), h("span", { class: "wb-about-name" }, node.frame[0]),
        h("button", { type: "button", class: "wb-button wb-copy", onclick: () => this.choice.toggle(node.all.flatMap(([a, b]) => Array.from({ length: b - a + 1 }, (_, i) => a + i))) }, "Choose its ranks")),
      h("dl", { class: "wb-about-facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
  }

  // What the reader does

  clicked(event) {
    const cell = this.cells[event.target.closest("[data-at]")?.dataset.at];
    if (cell && !cell.ends) this.open(cell);
  }

  /** First a frame is chosen, then zoomed into; a folded run opens. */
  open(cell) {
    if (cell.folded) this.choice.change({ all: true, cursor: cell.node.at });
    else if (cell.above || cell.node.at === this.choice.ui.cursor) this.choice.change({ node: cell.node.at === this.choice.ui.node || cell.node.parent === this.top ? null : cell.node.at, cursor: cell.node.at });
    else this.choice.change({ cursor: cell.node.at });
  }

  searchKey(event) {
    if (event.key === "Escape") this.choice.change({ search: "" });
    if (event.key !== "Enter" || !this.hits.length) return;
    const at = this.hits.findIndex((node) => node.at === this.choice.ui.cursor);
    const hit = this.hits[(at + 1) % this.hits.length];
    this.choice.change({ cursor: hit.at, node: null, all: true });
    if (this.cursorAt() >= 0) return;
    let first = hit; // among very many branches it is not shown: zoom into its own
    while (first.parent !== this.top && first.parent.set === hit.set) first = first.parent;
    this.choice.change({ node: first.at });
  }

  key(event) {
    const at = this.cursorAt();
    const cell = this.cells[at];
    if (event.key === "/") this.search.focus();
    else if (event.key === "Escape") this.choice.change({ node: null, search: "" });
    else if ((event.key === "Enter" || event.key === " ") && cell) this.open(cell);
    else {
      const next = this.beside(cell, event.key);
      if (!next) return;
      this.choice.change({ cursor: next.node.at });
      this.canvas.querySelector(".wb-selected")?.scrollIntoView({ block: "nearest" });
    }
    event.preventDefault();
  }

  beside(cell, key) {
    const real = this.cells.filter((one) => !one.ends);
    if (!["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home"].includes(key)) return null;
    if (!cell || key === "Home") return real[0];
    const middle = cell.x + cell.width / 2;
    const row = cell.y + { ArrowUp: -1, ArrowDown: 1 }[key];
    if (key === "ArrowUp") return real.find((one) => one.y === row && one.x <= middle && middle <= one.x + one.width);
    if (key === "ArrowDown") return real.find((one) => one.y === row && one.x + 1 >= cell.x && one.x < cell.x + cell.width);
    const beside = real.filter((one) => one.y === cell.y).sort((a, b) => a.x - b.x);
    return beside[beside.indexOf(cell) + (key === "ArrowRight" ? 1 : -1)];
  }
}

const matches = (node, wanted) => node.frame[0].toLowerCase().includes(wanted) || node.frame[1].toLowerCase().includes(wanted);
const placeText = ([, file, line, module]) => (file ? `${file}${line ? ":" + line : ""}` : module);
const shortName = (name) => (name.length > 80 ? name.slice(0, 48) + "…" + name.slice(-28) : name);
