// Every tensor in a table.

import { h, nameOf, number, plural, sign } from "./dom.js";
import { Grid } from "./grid.js";
import { reading } from "./groups.js";

const order = new Intl.Collator("en", { numeric: true });

export class TensorTable extends Grid {
  /** @type {number[]} */ rows = [];
  /** @type {number[]} */ counts = [];
  lines = 9.5;

  constructor(payload, data, glyphs, { change, clearCell }) {
    super();
    this.payload = payload;
    this.data = data;
    this.glyphs = glyphs;
    this.changed = change;
    this.columns = [["state", payload.stateLabel || "Verdict"], ["name", "Name"], ["shape", "Shape"], ["dtype", "Type"],
      ...payload.tensors.columns.map((column) => [column.key, column.label])];
    /** @type {import("./grid.js").Chosen} */
    this.ui = { filter: "", states: [], sort: ["", 1], only: null, row: null, scroll: 0 };
    this.cellChip = h("button", { type: "button", class: "wb-chip wb-cell-chip", onclick: clearCell }, "One cell only", h("span", { "aria-hidden": "true" }, " ✕"));
    this.build({
      title: "Every tensor", label: "Every tensor", role: "grid", kind: "wb-tensors",
      tools: [h("button", { type: "button", class: "wb-button", title: "All rows that are shown, as a CSV file", onclick: () => this.csv() }, "CSV")],
    });
    this.grid.style.setProperty("--wb-more", String(this.columns.length - 4));
  }

  /** The view keeps what the reader chose: the map shows it too. */
  change(part) {
    this.changed(part);
  }

  restore(ui) {
    this.ui = ui;
    if (this.filterBox.value !== ui.filter) this.filterBox.value = ui.filter;
    this.compute();
    this.draw();
    this.scrollTo(ui.scroll);
  }

  update(ui, part) {
    this.ui = ui;
    if ("scroll" in part && Object.keys(part).length === 1) return;
    if (["filter", "states", "sort", "only"].some((key) => key in part)) this.compute();
    this.draw();
    if (part.scroll === 0) this.scrollTo(0);
  }

  compute() {
    const { filter, states, sort, only } = this.ui;
    const { tensors: table } = this.payload;
    this.mistake = "";
    let test = null;
    try {
      test = reading(filter);
    } catch (error) {
      this.mistake = `Not a regular expression: ${error.message.replace(/^Invalid regular expression: /, "")}`;
    }
    let rows = only === null ? Array.from({ length: this.data.length }, (_, row) => row) : this.data.rowsOf(only);
    if (test) {
      const plain = test.plain && !test.exact;
      rows = rows.filter((row) => (plain ? this.data.name(row).toLowerCase().includes(test.plain) : test.name(this.data.name(row))));
    }
    this.counts = this.payload.states.map(() => 0);
    for (const row of rows) this.counts[table.state[row]]++;
    if (states.length) {
      const wanted = new Set(states);
      rows = rows.filter((row) => wanted.has(this.data.state(row)));
    }
    this.rows = this.sorted(rows, sort);
    this.length = this.rows.length;
  }

  /** @param {number[]} rows @param {[string, number]} sort */
  sorted(rows, [key, direction]) {
    if (!key) return rows;
    const { tensors: table } = this.payload;
    const size = (row) => this.data.shape(row).reduce((product, n) => product * n, 1);
    const by = key === "name" ? (row) => this.data.name(row) : key === "shape" ? size : key === "dtype" ? (row) => this.data.dtype(row)
      : key === "state" ? (row) => table.state[row] : (row) => table.numbers[key][row];
    const keyed = rows.map((row) => [by(row), row]);
    const compare = typeof (keyed[0]?.[0] ?? 0) === "string" ? (a, b) => order.compare(a, b) : (a, b) => a - b;
    keyed.sort(([a, i], [b, j]) => (a === null || b === null ? Number(a === null) - Number(b === null) : direction * compare(a, b)) || i - j);
    return keyed.map(([, row]) => row);
  }

  drawAbove() {
    this.drawChips();
    this.drawTold();
  }

  drawChips() {
    const { states, words } = this.payload;
    const chosen = new Set(this.ui.states);
    const present = states.map((_, at) => at).filter((at) => this.payload.maps.some((map) => map.state.includes(at)) || this.counts[at]);
    this.chips.replaceChildren(...present.map((at) => h("button", {
      type: "button", class: "wb-chip", "data-state": states[at], "data-chip": states[at], "aria-pressed": String(chosen.has(states[at])),
      onclick: () => {
        chosen.has(states[at]) ? chosen.delete(states[at]) : chosen.add(states[at]);
        this.change({ states: [...chosen], scroll: 0 });
      },
    }, sign(states[at], this.glyphs), words[states[at]] ?? states[at], h("span", { class: "wb-count" }, number(this.counts[at])))));
    if (this.ui.only !== null) this.chips.append(this.cellChip);
  }

  drawTold() {
    const { tensors: table, noun } = this.payload;
    const all = plural(table.rows, noun);
    const parts = [this.rows.length === table.rows ? all : `${number(this.rows.length)} of ${all}`];
    if (table.left_out) parts.push(`${number(table.left_out)} left out here, result.to_html(path) writes all`);
    else if (table.details_left_out) parts.push(`details of ${number(table.details_left_out)} left out here, result.to_html(path) writes all`);
    this.tell(parts, [h("p", {}, table.rows ? "No tensor matches." : "There are no tensors."), table.rows > 0 && this.everything()]);
  }

  selectedLine() {
    return this.rows.indexOf(this.ui.row);
  }

  lineAt(at, selected) {
    const row = this.rows[at];
    const state = this.data.state(row);
    const shape = `[${this.data.shape(row).join(", ")}]`;
    const cell = (key, ...content) => h("div", { role: "gridcell", class: `wb-cell wb-c-${key}` }, content);
    return h("div", {
      class: `wb-row${selected ? " wb-selected" : ""}`, role: "row", id: `${this.id}-${at}`, "data-line": at, "data-state": state,
      "aria-rowindex": at + 2, "aria-selected": String(selected),
    },
    cell("state", sign(state, this.glyphs), h("span", {}, this.payload.words[state] ?? state)),
    cell("name", nameOf(this.data.name(row))), cell("shape", shape), cell("dtype", this.data.dtype(row)),
    this.payload.tensors.columns.map(({ key }) => cell(key, shownNumber(this.data.value(key, row)))));
  }

  unfiltered() {
    return { states: [], only: null };
  }

  nameAt(line) {
    return this.data.name(this.rows[line]);
  }

  keys() {
    return { Escape: () => this.change({ row: null, cell: null }) };
  }

  /** Show one tensor, and where it lies in the map. */
  choose(at) {
    const row = this.rows[at];
    this.change({ row, cell: this.payload.tensors.cell[row] });
  }

  csv() {
    const keys = this.payload.tensors.columns.map(({ key }) => key);
    this.save("tensors.csv", ["state", "name", "shape", "dtype", ...keys, "reason"], this.rows.map((row) => [
      this.data.state(row), this.data.name(row), this.data.shape(row).join("x"), this.data.dtype(row),
      ...keys.map((key) => this.data.value(key, row)), this.data.detail(row)?.reason]));
  }
}

function shownNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e5 || size < 1e-4) ? value.toExponential(1) : String(value);
}
