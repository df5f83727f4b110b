// Every tensor in a table: 200,000 rows without building any that nobody looks at.

import { copy, download, h, nameOf, number, plural, sign } from "./dom.js";
import { reading } from "./groups.js";

const TALLEST = 8_000_000; // pixels a browser scrolls exactly; past that, positions are scaled
const SPARE = 6;
const order = new Intl.Collator("en", { numeric: true });

export class TensorTable {
  constructor(payload, data, glyphs, { change, clearCell }) {
    Object.assign(this, { payload, data, glyphs, change });
    this.columns = [["state", "Verdict"], ["name", "Name"], ["shape", "Shape"], ["dtype", "Type"],
      ...payload.tensors.columns.map((column) => [column.key, column.label])];
    if (payload.stateLabel) this.columns[0][1] = payload.stateLabel;
    this.id = "wt" + Math.random().toString(36).slice(2, 8);
    this.ui = { filter: "", states: [], sort: ["", 1], only: null, row: null, scroll: 0 };
    this.build(clearCell);
  }

  build(clearCell) {
    this.filterBox = h("input", {
      class: "wb-filter", type: "search", placeholder: "Filter names: text or /regex/", spellcheck: "false", autocomplete: "off",
      "aria-label": "Filter names by text or /regular expression/",
      oninput: () => this.change({ filter: this.filterBox.value, scroll: 0 }), onkeydown: (event) => this.filterKey(event),
    });
    this.chips = h("div", { class: "wb-chips", role: "group", "aria-label": "Show only" });
    this.told = h("p", { class: "wb-status", role: "status", "aria-live": "polite" });
    this.cellChip = h("button", { type: "button", class: "wb-chip wb-cell-chip", onclick: clearCell }, "One cell only", h("span", { "aria-hidden": "true" }, " ✕"));
    this.headers = this.columns.map(([key, label]) => h("div", { role: "columnheader", class: `wb-cell wb-c-${key}` },
      h("button", { type: "button", class: "wb-sort", onclick: () => this.sortBy(key) }, label)));
    this.body = h("div", { class: "wb-rows", role: "rowgroup" });
    this.scroller = h("div", { class: "wb-scroll", role: "presentation", onscroll: () => this.scrolled() }, this.body);
    this.head = h("div", { class: "wb-row wb-row-head", role: "row" }, this.headers);
    this.grid = h("div", { class: "wb-grid wb-tensors", role: "grid", tabindex: "0", "aria-label": "Every tensor", onkeydown: (event) => this.gridKey(event) }, this.head, this.scroller);
    this.grid.style.setProperty("--wb-more", this.columns.length - 4);
    this.empty = h("div", { class: "wb-empty" });
    this.root = h("section", { class: "wb-table", "aria-label": "Every tensor" },
      h("h3", { class: "wb-h" }, "Every tensor"),
      h("div", { class: "wb-bar" }, this.filterBox,
        h("div", { class: "wb-tools" },
          h("button", { type: "button", class: "wb-button", title: "All rows that are shown, as a CSV file", onclick: () => this.csv() }, "CSV"))),
      this.chips, this.told, this.grid, this.empty);
    this.body.addEventListener("click", (event) => {
      const line = event.target.closest(".wb-row");
      if (line && !String(getSelection())) this.choose(this.rows[Number(line.dataset.line)]);
    });
    this.print = () => ((this.printing = true), this.draw());
    this.unprint = () => ((this.printing = false), this.draw());
    addEventListener("beforeprint", this.print);
    addEventListener("afterprint", this.unprint);
  }

  destroy() {
    removeEventListener("beforeprint", this.print);
    removeEventListener("afterprint", this.unprint);
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
  }

  sorted(rows, [key, direction]) {
    if (!key) return rows;
    const { tensors: table } = this.payload;
    const size = (row) => this.data.shape(row).reduce((product, n) => product * n, 1);
    const by = key === "name" ? (row) => this.data.name(row) : key === "shape" ? size : key === "dtype" ? (row) => this.data.dtype(row)
      : key === "state" ? (row) => table.state[row] : (row) => table.numbers[key][row];
    const keyed = rows.map((row) => [by(row), row]);
    const compare = typeof (keyed[0]?.[0] ?? 0) === "string" ? (a, b) => order.compare(a, b) : (a, b) => a - b;
    keyed.sort(([a, i], [b, j]) => (a === null || b === null ? (a === null) - (b === null) : direction * compare(a, b)) || i - j);
    return keyed.map(([, row]) => row);
  }

  measure() {
    const width = this.root.clientWidth;
    if (!width) return;
    this.rowHeight = width < 860 ? 54 : 34; // as in view.css
    this.draw();
  }

  draw() {
    if (!this.rowHeight) return;
    const tall = this.rows.length * this.rowHeight;
    this.body.style.height = `${Math.min(tall, TALLEST)}px`;
    this.scroller.style.height = this.printing ? "auto" : `${Math.min(tall, this.rowHeight * 9.5)}px`;
    this.grid.hidden = !this.rows.length;
    this.head.style.paddingRight = `calc(16px + ${this.scroller.offsetWidth - this.scroller.clientWidth}px)`;
    const seen = this.scroller.clientHeight;
    this.scale = tall > TALLEST ? (tall - seen) / (TALLEST - seen) : 1;
    this.columns.forEach(([key], at) => {
      const [sorted, direction] = this.ui.sort;
      if (key === sorted) this.headers[at].setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else this.headers[at].removeAttribute("aria-sort");
    });
    this.drawChips();
    this.drawTold();
    this.drawRows();
  }

  drawChips() {
    const { states, words } = this.payload;
    const focused = document.activeElement?.dataset?.chip;
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
    if (focused) this.chips.querySelector(`[data-chip="${focused}"]`)?.focus();
  }

  drawTold() {
    const { tensors: table, noun } = this.payload;
    const all = plural(table.rows, noun);
    const parts = [this.rows.length === table.rows ? all : `${number(this.rows.length)} of ${all}`];
    if (table.left_out) parts.push(`${number(table.left_out)} left out here, result.to_html(path) writes all`);
    else if (table.details_left_out) parts.push(`details of ${number(table.details_left_out)} left out here, result.to_html(path) writes all`);
    this.told.textContent = this.mistake || parts.join(" · ");
    this.told.classList.toggle("wb-mistake", Boolean(this.mistake));
    this.empty.hidden = this.rows.length > 0;
    this.empty.replaceChildren(...(this.rows.length ? [] : [
      h("p", {}, table.rows ? "No tensor matches." : "There are no tensors."),
      table.rows > 0 && h("button", { type: "button", class: "wb-button", onclick: () => this.clear() }, "Show everything")].filter(Boolean)));
  }

  drawRows() {
    const scrolled = this.scroller.scrollTop;
    const offset = scrolled - scrolled * this.scale;
    const top = this.printing ? 0 : Math.floor((scrolled - offset) / this.rowHeight);
    const seen = this.printing ? 400 : Math.ceil(this.scroller.clientHeight / this.rowHeight);
    const first = Math.max(0, top - SPARE);
    const last = Math.min(this.rows.length, top + seen + SPARE + 1);
    const lines = [];
    for (let at = first; at < last; at++) {
      const line = this.line(at);
      line.style.transform = `translateY(${at * this.rowHeight + offset}px)`;
      lines.push(line);
    }
    this.body.replaceChildren(...lines);
    const chosen = this.rows.indexOf(this.ui.row);
    if (chosen >= first && chosen < last) this.grid.setAttribute("aria-activedescendant", `${this.id}-${chosen}`);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  line(at) {
    const row = this.rows[at];
    const state = this.data.state(row);
    const shape = `[${this.data.shape(row).join(", ")}]`;
    const cell = (key, ...content) => h("div", { role: "gridcell", class: `wb-cell wb-c-${key}` }, content);
    return h("div", {
      class: `wb-row${row === this.ui.row ? " wb-selected" : ""}`, role: "row", id: `${this.id}-${at}`, "data-line": at, "data-state": state,
      "aria-rowindex": at + 2, "aria-selected": String(row === this.ui.row),
    },
    cell("state", sign(state, this.glyphs), h("span", {}, this.payload.words[state] ?? state)),
    cell("name", nameOf(this.data.name(row))), cell("shape", shape), cell("dtype", this.data.dtype(row)),
    this.payload.tensors.columns.map(({ key }) => cell(key, shownNumber(this.data.value(key, row)))));
  }

  scrolled() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.root.isConnected || !this.scroller.clientHeight) return;
      this.drawRows();
      if (this.ui.scroll !== this.scroller.scrollTop) this.change({ scroll: this.scroller.scrollTop });
    });
  }

  scrollTo(y) {
    this.scroller.scrollTop = y;
    if (this.rowHeight) this.drawRows();
  }

  clear() {
    this.filterBox.value = "";
    this.change({ filter: "", states: [], only: null, scroll: 0 });
    this.filterBox.focus();
  }

  sortBy(key) {
    const [sorted, direction] = this.ui.sort;
    this.change({ sort: sorted !== key ? [key, 1] : direction > 0 ? [key, -1] : ["", 1], scroll: 0 });
  }

  filterKey(event) {
    if (event.key === "Escape") {
      if (this.ui.filter) this.clear();
      else this.grid.focus();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      this.grid.focus();
      this.select(0);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  gridKey(event) {
    if (event.target !== this.grid || event.altKey || event.metaKey) return;
    const at = this.rows.indexOf(this.ui.row);
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.rowHeight) - 1);
    const act = {
      ArrowDown: () => this.select(at + 1), ArrowUp: () => this.select(Math.max(0, at - 1)),
      PageDown: () => this.select(at + page), PageUp: () => this.select(at - page),
      Home: () => this.select(0), End: () => this.select(this.rows.length - 1),
      "/": () => this.filterBox.focus(), Escape: () => this.change({ row: null, cell: null }),
      c: () => (event.ctrlKey && at >= 0 && !String(getSelection()) ? copy(this.data.name(this.ui.row)) : false),
    }[event.key];
    if (!act || (event.ctrlKey && event.key !== "c") || act() === false) return;
    event.preventDefault();
    event.stopPropagation();
  }

  select(at) {
    if (!this.rows.length) return;
    at = Math.min(this.rows.length - 1, Math.max(0, at));
    const top = at * this.rowHeight;
    const room = this.scroller.clientHeight - this.rowHeight;
    const scrolled = this.scroller.scrollTop * this.scale;
    if (top < scrolled) this.scroller.scrollTop = top / this.scale;
    else if (top > scrolled + room) this.scroller.scrollTop = (top - room) / this.scale;
    this.choose(this.rows[at]);
  }

  /** Show one tensor, and where it lies in the map. */
  choose(row) {
    this.change({ row, cell: this.payload.tensors.cell[row] });
  }

  csv() {
    const cell = (value) => {
      let text = String(value ?? "");
      if (/^[=+\-@\t\r]/.test(text) && typeof value !== "number") text = "'" + text; // a spreadsheet would run it as a formula
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const keys = this.payload.tensors.columns.map(({ key }) => key);
    const lines = [["state", "name", "shape", "dtype", ...keys, "reason"].join(",")];
    for (const row of this.rows) {
      lines.push([this.data.state(row), this.data.name(row), this.data.shape(row).join("x"), this.data.dtype(row),
        ...keys.map((key) => this.data.value(key, row)), this.data.detail(row)?.reason].map(cell).join(","));
    }
    download("tensors.csv", lines.join("\r\n") + "\r\n", "text/csv");
  }
}

function shownNumber(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e5 || size < 1e-4) ? value.toExponential(1) : String(value);
}
