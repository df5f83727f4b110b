// The view of scanned and of compared weights: layers down, kinds across, one tensor at a time below.

import { copyButton, h, nameOf, number, plural, prose, sign, svg } from "./dom.js";
import { findingsOf, verdictOf } from "./head.js";
import { CALM, WeightMap } from "./weights_map.js";
import { TensorTable } from "./weights_table.js";

export function weights(payload, context) {
  const view = new WeightView(payload, context);
  return {
    nodes: [verdictOf(payload, context.glyphs), findingsOf(payload.findings, context.glyphs), view.root].filter(Boolean),
    life: view,
  };
}

class WeightView {
  constructor(payload, { glyphs, ui, keep }) {
    this.payload = payload;
    this.glyphs = glyphs;
    this.keep = keep;
    this.data = new Tensors(payload);
    this.maps = payload.maps.map((map) => new WeightMap(map, payload, glyphs, (cell) => this.choose(cell)));
    this.table = new TensorTable(payload, this.data, glyphs, {
      change: (part) => this.change(part),
      clearCell: () => this.change({ only: null, scroll: 0 }),
    });
    this.modes = payload.modes.map((mode) =>
      h("button", { type: "button", class: "wb-mode", onclick: () => this.change({ mode: mode.key }) }, mode.label));
    this.legend = h("div", { class: "wb-legend" });
    this.detail = h("aside", { class: "wb-tensor", "aria-live": "polite", "aria-label": "The selected tensor" });
    this.root = h("div", {},
      h("section", { class: "wb-map", "aria-label": "Layers and kinds of tensor" },
        h("div", { class: "wb-map-bar" },
          h("h3", { class: "wb-h" }, "Layer by layer"),
          h("div", { class: "wb-modes", role: "group", "aria-label": "Colour by" }, this.modes)),
        this.legend,
        (this.body = h("div", { class: "wb-map-body" }, h("div", { class: "wb-maps" }, this.maps.map((map) => map.root)), this.detail))),
      this.table.root);
    this.resize = new ResizeObserver(() => this.measure());
    this.resize.observe(this.root);
    // A canvas holds colours, not names of colours: draw it again when the theme changes.
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.themed = () => this.maps.forEach((map) => map.recolour());
    this.system.addEventListener("change", this.themed);
    this.watched = new MutationObserver(this.themed);
    for (const node of [document.documentElement, document.body])
      this.watched.observe(node, { attributes: true, attributeFilter: ["data-wb-theme", "data-jp-theme-light", "class"] });
    this.restore(ui);
  }

  destroy() {
    this.resize.disconnect();
    this.watched.disconnect();
    this.system.removeEventListener("change", this.themed);
    this.table.destroy();
  }

  restore(ui) {
    // The worst tensor is shown first, if it is one to look at.
    const first = this.data.length && !CALM.has(this.data.state(0)) ? { row: 0, cell: this.payload.tensors.cell[0] } : { row: null, cell: null };
    this.ui = { mode: this.payload.modes[0].key, ...first, only: null, filter: "", states: [], sort: ["", 1], scroll: 0, ...ui };
    this.draw();
    this.table.restore(this.ui);
    this.measure();
  }

  change(part) {
    Object.assign(this.ui, part);
    const scrolledOnly = "scroll" in part && Object.keys(part).length === 1;
    if (!scrolledOnly) this.draw();
    this.table.update(this.ui, part);
    this.keep({ ...this.ui });
  }

  /** A cell was chosen: show its worst tensor; where it has several, the table lists them alone. */
  choose(cell) {
    const rows = this.data.rowsOf(cell);
    const several = rows.length > 1;
    this.change({ cell, row: rows[0] ?? null, ...((several || this.ui.only !== null) && { only: several ? cell : null, scroll: 0 }) });
  }

  measure() {
    const width = this.root.clientWidth;
    if (!width) return;
    if (width !== this.width) {
      this.width = width;
      // Beside the maps the selected tensor has its place, where there is room for both.
      const beside = width >= 980;
      this.body.classList.toggle("wb-beside", beside);
      this.maps.forEach((map) => map.layout(beside ? Math.floor(width * 0.56) : width));
      this.draw();
    }
    this.table.measure();
  }

  scrollTo(y) {
    this.table.scrollTo(y);
  }

  draw() {
    const mode = this.payload.modes.find((m) => m.key === this.ui.mode) ?? this.payload.modes[0];
    this.modes.forEach((button, at) => button.setAttribute("aria-pressed", String(this.payload.modes[at] === mode)));
    this.legend.replaceChildren(...legendOf(mode, this.payload, this.glyphs));
    this.maps.forEach((map) => map.draw(mode, this.ui.cell));
    this.detail.replaceChildren(...this.detailOf());
  }

  detailOf() {
    const { row, cell } = this.ui;
    if (row === null && cell === null) {
      return [h("p", { class: "wb-muted" }, "Choose a cell, or a row of the table, to see one ", this.payload.noun, ". Arrow keys move in the map; n goes to the next odd one.")];
    }
    const members = cell === null ? [] : this.data.rowsOf(cell);
    const nodes = [];
    if (members.length > 1 || (cell !== null && !members.length)) nodes.push(this.membersOf(cell, members, row));
    if (row !== null && row < this.data.length) nodes.push(tensorOf(this.data, row, this.payload, this.glyphs));
    return nodes;
  }

  membersOf(cell, members, row) {
    const map = this.payload.maps.findLast((m) => m.first <= cell);
    const at = cell - map.first;
    const count = map.count[at];
    const state = this.payload.states[map.state[at]];
    const where = [map.layers[map.row[at]] >= 0 && `${map.stack}.${map.layers[map.row[at]]}`, map.kinds[map.column[at]]].filter(Boolean).join(".");
    const most = 12;
    return h("div", { class: "wb-members" },
      h("p", {}, h("b", {}, `${number(map.odd[at])} of ${plural(count, this.payload.noun)} ${map.odd[at] === 1 ? "is" : "are"} ${this.payload.words[state] ?? state}`), " in ", h("code", {}, where)),
      h("div", { class: "wb-member-list" },
        members.slice(0, most).map((member) =>
          h("button", {
            type: "button", class: "wb-chip", "data-state": this.data.state(member), "aria-pressed": String(member === row),
            title: this.data.name(member), onclick: () => this.change({ row: member }),
          }, sign(this.data.state(member), this.glyphs), this.data.indexText(member))),
        members.length > most && h("span", { class: "wb-muted" }, `and ${number(members.length - most)} more, listed below`)),
      members.length < count && h("p", { class: "wb-muted" }, `${number(count - members.length)} of them are left out here; result.to_html(path) writes all.`));
  }
}

/** The columns of the table, and names built on demand. */
class Tensors {
  constructor({ tensors: table, states }) {
    this.table = table;
    this.states = states;
    this.length = table.template.length;
    this.literals = table.templates.map((text) => text.split("{}"));
    this.cells = null;
  }

  state = (row) => this.states[this.table.state[row]];
  shape = (row) => this.table.shapes[this.table.shape[row]];
  dtype = (row) => this.table.dtypes[this.table.dtype[row]];
  value = (key, row) => this.table.numbers[key][row];
  detail = (row) => this.table.details[row];

  name(row) {
    const literals = this.literals[this.table.template[row]];
    const index = this.table.index[row];
    if (!index.length) return this.table.templates[this.table.template[row]];
    let name = literals[0];
    for (let at = 0; at < index.length; at++) name += index[at] + literals[at + 1];
    return name;
  }

  /** What tells a tensor apart within its cell: its last number, or its name. */
  indexText(row) {
    const index = this.table.index[row];
    return index.length > 1 ? String(index.slice(1).join(".")) : this.name(row).split(".").slice(-2).join(".");
  }

  rowsOf(cell) {
    if (!this.cells) {
      this.cells = new Map();
      this.table.cell.forEach((at, row) => {
        if (!this.cells.has(at)) this.cells.set(at, []);
        this.cells.get(at).push(row);
      });
    }
    return this.cells.get(cell) ?? [];
  }
}

function legendOf(mode, payload, glyphs) {
  if (mode.kind === "state") {
    const found = new Set(payload.maps.flatMap((map) => map.state));
    return payload.states.filter((_, at) => found.has(at)).map((state) =>
      h("span", { class: "wb-key", "data-state": state }, h("span", { class: "wb-swatch", "data-loud": String(!CALM.has(state)) }, CALM.has(state) ? "" : glyphs[state]), payload.words[state] ?? state));
  }
  const ends = [mode.low, mode.high].map((value) => nice(unscaled(value, mode.kind)));
  return [h("span", { class: "wb-key" }, ends[0], h("span", { class: "wb-ramp", style: `background:linear-gradient(90deg,${payload.ramp.join(",")})` }), ends[1]),
    h("span", { class: "wb-muted" }, mode.note ?? "A sign marks what is not trained; several tensors in a cell show their median.")];
}

function unscaled(value, kind) {
  return kind === "log" ? 10 ** value : Math.sign(value) * 0.1 * (10 ** Math.abs(value) - 1);
}

function nice(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-4) return value.toExponential(1).replace("e+", "e");
  return String(Number(value.toPrecision(3)));
}

// One tensor.

function tensorOf(data, row, payload, glyphs) {
  const state = data.state(row);
  const detail = data.detail(row);
  const name = data.name(row);
  const shape = `[${data.shape(row).join(", ")}]`;
  const facts = detail ? [
    ["Why", detail.reason],
    ["Also", detail.corroboration?.join("; ")],
    ["Not seen", detail.power],
    ["Read", detail.seen],
    ...(detail.more ?? []),
    ["Shape and type", [shape, data.dtype(row), detail.layout].filter(Boolean).join(" · ")],
  ].filter(([, value]) => value) : [["Shape and type", `${shape} · ${data.dtype(row)}`]];
  return h("div", { class: "wb-one" },
    h("div", { class: "wb-about-head" }, sign(state, glyphs),
      h("span", { class: "wb-about-name" }, name, h("span", { class: "wb-tag", "data-state": state }, payload.words[state] ?? state)),
      copyButton("Copy name", () => name, "wb-copy")),
    h("dl", { class: "wb-about-facts" }, facts.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, prose(value))))),
    !detail && h("p", { class: "wb-muted" }, "Its details are left out here; result.to_html(path) writes all."),
    detail?.facts && h("dl", { class: "wb-numbers" }, detail.facts.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, typeof value === "number" ? nice(value) : "–")))),
    detail && h("div", { class: "wb-charts" }, histogramOf(detail), stripsOf(detail.statistics ?? [], payload.noise)));
}

function erf(x) {
  // Abramowitz and Stegun 7.1.26, to 1.5e-7
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const y = 1 - ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
  return x < 0 ? -y : y;
}
const phi = (z) => (1 + erf(z / Math.SQRT2)) / 2;

/** The share of a family between two values; `mean` and `std` are those of the tensor. */
const SHARE = {
  normal: (a, b, mean, std) => phi((b - mean) / std) - phi((a - mean) / std),
  uniform: (a, b, mean, std) => {
    const half = std * Math.sqrt(3);
    return Math.max(0, Math.min(b, mean + half) - Math.max(a, mean - half)) / (2 * half);
  },
  truncated: (a, b, mean, std) => {
    const wide = std / 0.8796257; // a normal cut at two of its sigmas has this share of its sigma left
    const z = (x) => Math.max(-2, Math.min(2, (x - mean) / wide));
    return (phi(z(b)) - phi(z(a))) / 0.9544997;
  },
};

function histogramOf({ bins, family, mean, std }) {
  if (!bins) return null;
  const { counts } = bins;
  const total = counts.reduce((sum, n) => sum + n, 0);
  if (!total || !(std > 0)) return null;
  const edges = bins.edges.length > 2 ? bins.edges : Array.from({ length: counts.length + 1 }, (_, at) => bins.edges[0] + (bins.edges[1] - bins.edges[0]) * at / counts.length);
  const [width, height, left, base] = [460, 190, 8, 166];
  const top = Math.log10(1 + Math.max(...counts)) * 1.06;
  const x = (value) => left + (value - edges[0]) / (edges.at(-1) - edges[0]) * (width - 2 * left);
  const y = (count) => base - Math.log10(1 + count) / top * (base - 12);
  const bars = counts.map((count, at) => svg("rect", { class: "wb-bin", x: x(edges[at]), y: y(count), width: Math.max(x(edges[at + 1]) - x(edges[at]) - 0.6, 0.6), height: base - y(count) }));
  const fitted = SHARE[family] ? family : "normal";
  const points = counts.map((_, at) => `${((x(edges[at]) + x(edges[at + 1])) / 2).toFixed(1)},${y(total * SHARE[fitted](edges[at], edges[at + 1], mean, std)).toFixed(1)}`);
  const label = (value, anchor, at) => svg("text", { class: "wb-tick", x: at, y: base + 16, "text-anchor": anchor }, nice(value));
  return h("figure", { class: "wb-chart" },
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Histogram of the values from ${nice(edges[0])} to ${nice(edges.at(-1))} with a fitted ${fitted} law` },
      bars, svg("polyline", { class: "wb-fit", points: points.join(" ") }),
      svg("line", { class: "wb-axis", x1: left, x2: width - left, y1: base, y2: base }),
      label(edges[0], "start", left), label(edges.at(-1), "end", width - left), edges[0] < 0 && edges.at(-1) > 0 ? label(0, "middle", x(0)) : null),
    h("figcaption", {}, h("span", { class: "wb-key-bin" }), "values, log counts", h("span", { class: "wb-key-fit" }), `${fitted} law of the same mean and std`));
}

const STRIPS = {
  tracy_widom: "Largest singular value past the Marchenko–Pastur edge", gram: "Squared cosines between rows",
  kurtosis_z: "Kurtosis, distance to the nearest random law", ks: "Kolmogorov–Smirnov distance × √n to that law",
  row_dispersion: "Spread of row norms", column_dispersion: "Spread of column norms",
  row_scale: "Norms of neighbouring rows", column_scale: "Norms of neighbouring columns",
  row_means: "Means of rows", column_means: "Means of columns", mean: "Mean of all values",
  row_neighbours: "Correlation with the next row", column_neighbours: "Correlation with the next column",
};

/** Each statistic on one scale of standard deviations: what noise gives, and where this tensor is. */
function stripsOf(statistics, limit) {
  const shown = statistics.filter(([name, value]) => STRIPS[name] && value !== null);
  if (!shown.length) return null;
  const squash = (z) => Math.sign(z) * Math.log10(1 + Math.abs(z));
  const end = Math.max(2, ...shown.map(([, z]) => Math.abs(squash(z)))) * 1.04;
  const low = Math.min(-1.1, ...shown.map(([, z]) => squash(z) * 1.04));
  const at = (z) => ((squash(z) - low) / (end - low)) * 100;
  return h("figure", { class: "wb-chart wb-strips" },
    shown.map(([name, value]) => {
      return h("div", { class: "wb-strip" }, h("span", { class: "wb-strip-label" }, STRIPS[name]),
        h("span", { class: "wb-strip-value" }, nice(value)),
        h("span", { class: "wb-strip-line" },
          h("i", { class: "wb-noise", style: `left:${Math.max(at(-limit), 0)}%;right:${100 - at(limit)}%` }),
          h("i", { class: "wb-mark", style: `left:${at(value)}%`, "data-out": String(Math.abs(value) > limit) })));
    }),
    h("figcaption", {}, h("span", { class: "wb-key-noise" }), "where random values lie (z, log scale)"));
}
