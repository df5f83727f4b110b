// One stack of layers as a picture: an SVG, or a canvas where there are too many cells for one.

import { h, number, plural, shown, svg } from "./dom.js";

const MOST_SVG = 5000; // cells; beyond, each element costs more than it shows
// States that need no sign: nothing to look at.
export const CALM = new Set(["trained", "not_weights", "identical", ""]);

export class WeightMap {
  constructor(map, payload, glyphs, choose) {
    this.map = map;
    this.payload = payload;
    this.glyphs = glyphs;
    this.choose = choose;
    this.cells = map.row.length;
    this.onCanvas = this.cells > MOST_SVG;
    this.at = new Map(map.row.map((row, cell) => [row * map.labels.length + map.column[cell], cell]));
    this.told = h("p", { class: "wb-status wb-map-status", "aria-live": "polite" });
    this.frame = h("div", {
      class: "wb-map-frame", tabindex: "0", role: "application", "aria-roledescription": "map of layers",
      "aria-label": `${map.stack || "Outside of layers"}: ${plural(map.layers.length, "layer")}, ${plural(map.labels.length, "kind")}; arrow keys move`,
      onkeydown: (event) => this.key(event), onclick: (event) => this.clicked(event),
      onmousemove: (event) => this.hover(event), onmouseleave: () => this.tell(this.chosen),
    });
    this.root = h("div", { class: "wb-stack" },
      h("h4", { class: "wb-stack-name" }, map.stack ? h("code", {}, map.stack) : "Outside of layers"), this.frame, this.told);
  }

  /** Lay the picture out for a width; a column never gets so narrow that its sign does not fit. */
  layout(width) {
    const { layers, labels, stack } = this.map;
    this.left = stack ? 10 + 8 * Math.max(...layers.map((n) => String(n).length)) : 0;
    const longest = Math.max(...labels.map((text) => text.length)) * 7;
    this.turned = longest + 16 > (width - this.left) / labels.length;
    // Turned labels lean over the right edge by as much as they rise.
    const lean = this.turned ? longest * 0.62 : 0;
    this.column = Math.max(26, Math.min(this.turned ? 64 : 150, Math.floor((width - this.left - lean - 2) / labels.length)));
    this.line = layers.length > 48 ? 16 : layers.length > 16 ? 20 : 30;
    this.top = this.turned ? longest * 0.78 + 14 : 26;
    this.width = this.left + this.column * labels.length + lean + 2;
    this.height = this.top + this.line * layers.length + 2;
    this.build();
  }

  build() {
    this.picture = this.onCanvas ? h("canvas", { class: "wb-picture" }) : svg("svg", { class: "wb-picture", width: this.width, height: this.height, "aria-hidden": "true" });
    if (this.onCanvas) {
      const dense = globalThis.devicePixelRatio || 1;
      Object.assign(this.picture, { width: this.width * dense, height: this.height * dense });
      this.picture.style.cssText = `width:${this.width}px;height:${this.height}px`;
    } else {
      this.marks = svg("g");
      this.cursor = svg("rect", { class: "wb-cursor", rx: 3, width: this.column + 1, height: this.line + 1, visibility: "hidden" });
      this.picture.append(...this.axis(), this.marks, this.cursor);
    }
    this.frame.replaceChildren(this.picture);
    this.drawn = "";
  }

  axis() {
    const { layers, labels, kinds } = this.map;
    const names = labels.map((text, at) => {
      const x = this.left + this.column * (at + 0.5);
      const node = svg("text", { class: "wb-tick", x, y: this.top - 8, "text-anchor": this.turned ? "start" : "middle" });
      if (this.turned) node.setAttribute("transform", `rotate(-52 ${x} ${this.top - 8})`);
      node.textContent = text;
      const title = svg("title");
      title.textContent = shown(kinds[at]);
      node.append(title);
      return node;
    });
    if (!this.map.stack) return names;
    return [...names, ...layers.map((layer, at) => {
      const node = svg("text", { class: "wb-tick", x: this.left - 7, y: this.top + this.line * (at + 0.5) + 4, "text-anchor": "end" });
      node.textContent = layer;
      return node;
    })];
  }

  draw(mode, chosen) {
    this.mode = mode;
    this.chosen = chosen !== null && chosen >= this.map.first && chosen < this.map.first + this.cells ? chosen - this.map.first : null;
    if (!this.picture) return;
    if (this.onCanvas) this.paint();
    else {
      if (this.drawn !== mode.key) this.marks.replaceChildren(...this.map.row.flatMap((_, cell) => this.mark(cell)));
      this.drawn = mode.key;
      this.cursor.setAttribute("visibility", this.chosen === null ? "hidden" : "visible");
      if (this.chosen !== null) {
        const { x, y } = this.place(this.chosen);
        this.cursor.setAttribute("x", String(x - 0.5));
        this.cursor.setAttribute("y", String(y - 0.5));
      }
    }
    this.tell(this.chosen);
  }

  recolour() {
    if (this.onCanvas && this.picture) this.paint();
  }

  place(cell) {
    return { x: this.left + this.column * this.map.column[cell], y: this.top + this.line * this.map.row[cell] };
  }

  state = (cell) => this.payload.states[this.map.state[cell]];
  value = (cell) => this.map.numbers[this.mode.key]?.[cell];

  /** Where a number stands on the ramp, 0 to 1; null where there is none. */
  share(cell) {
    const value = this.value(cell);
    if (value === null || value === undefined) return null;
    const { kind, low, high } = this.mode;
    if (kind === "log" && value <= 0) return null;
    const scaled = kind === "log" ? Math.log10(value) : Math.sign(value) * Math.log10(1 + Math.abs(value) / 0.1);
    return Math.max(0, Math.min(1, (scaled - low) / (high - low || 1)));
  }

  ramp(share) {
    const { ramp } = this.payload;
    return ramp[Math.round(share * (ramp.length - 1))];
  }

  /** The sign of a cell that is not calm, with the number of tensors where they are not all alike. */
  text(cell) {
    const state = this.state(cell);
    if (CALM.has(state)) return "";
    if (this.mode.kind !== "state" && state === "changed") return "";
    const { odd, count } = this.map;
    return this.glyphs[state] + (count[cell] > 1 && odd[cell] < count[cell] && this.column >= 34 ? ` ${odd[cell]}` : "");
  }

  mark(cell) {
    const { x, y } = this.place(cell);
    const state = this.state(cell);
    const box = svg("rect", { class: "wb-box", x: x + 1, y: y + 1, width: this.column - 2, height: this.line - 2, rx: 2.5, "data-state": state });
    const title = svg("title");
    title.textContent = this.describe(cell);
    box.append(title);
    if (this.mode.kind === "state") box.dataset.loud = String(!CALM.has(state));
    else {
      const share = this.share(cell);
      if (share === null) box.dataset.none = "";
      else box.style.fill = this.ramp(share);
    }
    const text = this.text(cell);
    if (!text) return [box];
    const sign = svg("text", { class: "wb-box-sign", x: x + this.column / 2, y: y + this.line / 2 + 4.5, "text-anchor": "middle", "data-state": state, "data-on": this.mode.kind === "state" ? "state" : "ramp" });
    sign.textContent = text;
    return [box, sign];
  }

  paint() {
    const dense = this.picture.width / this.width;
    const pen = this.picture.getContext("2d");
    const tones = {};
    const probe = h("span", { style: "display:none" });
    this.frame.append(probe);
    const colour = (name) => {
      probe.style.color = `var(--wb-${name})`;
      return (tones[name] ??= getComputedStyle(probe).color);
    };
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    for (let cell = 0; cell < this.cells; cell++) {
      const { x, y } = this.place(cell);
      const state = this.state(cell);
      const share = this.mode.kind === "state" ? null : this.share(cell);
      const calm = CALM.has(state);
      pen.globalAlpha = this.mode.kind !== "state" ? 1 : calm ? 0.24 : 1;
      pen.fillStyle = this.mode.kind === "state" ? colour(state || "quiet") : share === null ? colour("line") : this.ramp(share);
      pen.fillRect(x + 1, y + 1, this.column - 2, this.line - 2);
      pen.globalAlpha = 1;
      const text = this.text(cell);
      if (!text) continue;
      if (this.mode.kind !== "state") {
        pen.fillStyle = colour("page");
        pen.fillRect(x + this.column / 2 - 9, y + 2, 18, this.line - 4);
      }
      pen.fillStyle = this.mode.kind === "state" ? colour("on") : colour(state);
      pen.fillText(text, x + this.column / 2, y + this.line / 2 + 4.5);
    }
    this.paintAxis(pen, colour("muted"));
    if (this.chosen !== null) {
      const { x, y } = this.place(this.chosen);
      pen.strokeStyle = colour("text");
      pen.lineWidth = 2;
      pen.strokeRect(x, y, this.column, this.line);
    }
    probe.remove();
  }

  paintAxis(pen, colour) {
    pen.fillStyle = colour;
    this.map.labels.forEach((text, at) => {
      pen.save();
      pen.translate(this.left + this.column * (at + 0.5), this.top - 8);
      if (this.turned) pen.rotate((-52 * Math.PI) / 180);
      pen.textAlign = this.turned ? "start" : "center";
      pen.fillText(text, 0, 0);
      pen.restore();
    });
    if (!this.map.stack) return;
    pen.textAlign = "end";
    this.map.layers.forEach((layer, at) => pen.fillText(layer, this.left - 7, this.top + this.line * (at + 0.5) + 4));
  }

  describe(cell) {
    const { map, payload } = this;
    const state = this.state(cell);
    const layer = map.layers[map.row[cell]];
    const where = `${layer >= 0 ? `${map.stack}.${layer}.` : ""}${map.kinds[map.column[cell]]}`;
    const word = payload.words[state] ?? state;
    const said = map.count[cell] > 1 ? `${number(map.odd[cell])} of ${number(map.count[cell])} ${word}` : word;
    const numbers = payload.modes.filter((mode) => mode.kind !== "state").map((mode) => {
      const value = map.numbers[mode.key][cell];
      return value === null ? null : `${mode.label.toLowerCase()} ${value}`;
    });
    return shown([where, said, ...numbers].filter(Boolean).join(" · "));
  }

  tell(cell) {
    this.told.textContent = cell === null || cell === undefined ? "\u00a0" : this.describe(cell);
  }

  under(event) {
    const box = this.picture.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.column);
    const row = Math.floor((event.clientY - box.top - this.top) / this.line);
    if (column < 0 || column >= this.map.labels.length || row < 0 || row >= this.map.layers.length) return null;
    return this.at.get(row * this.map.labels.length + column) ?? null;
  }

  hover(event) {
    this.tell(this.under(event) ?? this.chosen);
  }

  clicked(event) {
    const cell = this.under(event);
    if (cell !== null) this.choose(this.map.first + cell);
  }

  key(event) {
    const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    let next = null;
    if (event.key === "Home") next = 0;
    else if (event.key === "End") next = this.cells - 1;
    else if (event.key === "n") next = this.nextOdd();
    else if (!step) return;
    else next = this.chosen === null ? 0 : this.walk(...step);
    event.preventDefault();
    event.stopPropagation();
    if (next !== null) this.choose(this.map.first + next);
  }

  walk(down, across) {
    const wide = this.map.labels.length;
    let [row, column] = [this.map.row[this.chosen], this.map.column[this.chosen]];
    for (;;) {
      row += down;
      column += across;
      if (row < 0 || column < 0 || row >= this.map.layers.length || column >= wide) return null;
      const cell = this.at.get(row * wide + column);
      if (cell !== undefined) return cell;
    }
  }

  /** The next cell after the chosen one that is not calm. */
  nextOdd() {
    const from = this.chosen ?? -1;
    for (let step = 1; step <= this.cells; step++) {
      const cell = (from + step + this.cells) % this.cells;
      if (!CALM.has(this.state(cell))) return cell;
    }
    return null;
  }
}
