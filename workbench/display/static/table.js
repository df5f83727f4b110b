// The table: names grouped by template, 200,000 rows without building any that nobody looks at.

import { copy, download, h, nameOf, number, plural, sign } from "./dom.js";
import { Group, reading } from "./groups.js";

const COLUMNS = [
  ["status", "Status"],
  ["name", "Name"],
  ["shape", "Shape"],
  ["dtype", "Type"],
  ["parameter", "Goes to, or why not"],
];
const TALLEST = 8_000_000; // pixels a browser scrolls exactly; past that, positions are scaled
const SPARE = 6; // rows drawn above and below what is seen

const collator = new Intl.Collator("en", { numeric: true });
const size = (shape) => (shape ?? []).reduce((product, n) => product * n, 1);
const KEYS = {
  status: (a, b) => a.rank - b.rank,
  name: (a, b) => collator.compare(a.text, b.text),
  shape: (a, b) => size(a.shape) - size(b.shape),
  dtype: (a, b) => collator.compare(a.dtype ?? "", b.dtype ?? ""),
  parameter: (a, b) => collator.compare(a.where, b.where),
};

export class Table {
  constructor(table, { glyphs, order, ui, keep, lines }) {
    this.groups = table.groups.map((data, at) => new Group(data, at, order));
    Object.assign(this, { table, glyphs, order, keep, lines });
    this.states = order.filter((state) => table.groups.some((g) => g.status === state));
    this.id = "wb" + Math.random().toString(36).slice(2, 8);
    this.build();
    this.restore(ui);
  }

  build() {
    this.filterBox = h("input", {
      class: "wb-filter", type: "search", placeholder: "Filter names: text or /regex/", spellcheck: "false",
      autocomplete: "off", "aria-label": "Filter names by text or /regular expression/",
      oninput: () => this.change({ filter: this.filterBox.value, scroll: 0, row: null }),
      onkeydown: (event) => this.filterKey(event),
    });
    this.chips = h("div", { class: "wb-chips", role: "group", "aria-label": "Show only" });
    this.told = h("p", { class: "wb-status", role: "status", "aria-live": "polite" });
    this.tools = h("div", { class: "wb-tools" },
      (this.folder = h("button", { type: "button", class: "wb-button", onclick: () => this.foldAll() }, "Expand all")),
      this.markdownButton(),
      h("button", { type: "button", class: "wb-button", title: "All rows that are shown, as a CSV file", onclick: () => this.csv() }, "CSV"));
    this.headers = COLUMNS.map(([key, label]) =>
      h("div", { role: "columnheader", class: `wb-cell wb-c-${key}` },
        h("button", { type: "button", class: "wb-sort", onclick: () => this.sortBy(key) }, label)));
    this.body = h("div", { class: "wb-rows", role: "rowgroup" });
    this.scroller = h("div", { class: "wb-scroll", role: "presentation", onscroll: () => this.scrolled() }, this.body);
    this.grid = h("div", {
      class: "wb-grid", role: "treegrid", tabindex: "0", "aria-label": "Keys and parameters",
      "aria-colcount": COLUMNS.length, onkeydown: (event) => this.gridKey(event),
    }, (this.head = h("div", { class: "wb-row wb-row-head", role: "row", "aria-rowindex": "1" }, this.headers)), this.scroller);
    this.empty = h("div", { class: "wb-empty" });
    this.detail = h("aside", { class: "wb-about", "aria-live": "polite", "aria-label": "About the selected row" });
    this.root = h("section", { class: "wb-table", "aria-label": "Every key and parameter" },
      h("h3", { class: "wb-h" }, "Every key and parameter"),
      h("div", { class: "wb-bar" }, this.filterBox, this.tools), this.chips, this.told, this.grid, this.empty, this.detail);
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.resize = new ResizeObserver(() => this.measure());
    this.resize.observe(this.root);
    this.print = () => ((this.printing = true), this.draw());
    this.unprint = () => ((this.printing = false), this.draw());
    addEventListener("beforeprint", this.print);
    addEventListener("afterprint", this.unprint);
  }

  destroy() {
    this.resize.disconnect();
    removeEventListener("beforeprint", this.print);
    removeEventListener("afterprint", this.unprint);
  }

  // State: what the reader chose. It is kept in the model, so it outlives this element.

  restore(ui) {
    this.ui = { filter: "", statuses: [], sort: ["", 1], open: [], scroll: 0, row: null, ...ui };
    if (this.filterBox.value !== this.ui.filter) this.filterBox.value = this.ui.filter;
    this.opened = new Set(this.ui.open);
    this.compute();
    this.measure();
    this.scrollTo(this.ui.scroll);
  }

  change(part) {
    Object.assign(this.ui, part);
    if ("open" in part) this.opened = new Set(part.open);
    if (!("scroll" in part && Object.keys(part).length === 1)) {
      this.compute();
      this.draw();
    }
    if (part.scroll === 0) this.scrollTo(0);
    this.keep({ ...this.ui });
  }

  // What is shown, from the groups and the state.

  compute() {
    const { filter, statuses, sort } = this.ui;
    let test = null;
    this.mistake = "";
    if (filter !== this.matchedFor) {
      try {
        test = reading(filter);
      } catch (error) {
        this.mistake = `Not a regular expression: ${error.message.replace(/^Invalid regular expression: /, "")}`;
      }
      this.matches = this.groups.map((group) => group.matching(test));
      this.matchedFor = this.mistake ? undefined : filter;
    }
    const only = new Set(statuses);
    this.counts = Object.fromEntries(this.states.map((state) => [state, 0]));
    const shown = [];
    for (const group of this.groups) {
      const count = this.matches[group.at]?.length ?? group.count;
      this.counts[group.status] += count;
      if (count && (!only.size || only.has(group.status))) shown.push(group);
    }
    const [key, direction] = sort;
    if (KEYS[key]) shown.sort((a, b) => direction * KEYS[key](a, b) || a.at - b.at);
    this.shown = shown;
    this.starts = [];
    this.length = this.rows = 0;
    for (const group of shown) {
      this.starts.push(this.length);
      const rows = this.countOf(group);
      this.rows += rows;
      this.length += 1 + (this.isOpen(group) ? rows : 0);
    }
  }

  countOf = (group) => this.matches[group.at]?.length ?? group.count;
  canOpen = (group) => group.count > 1 && group.hasRows;
  isOpen = (group) => this.canOpen(group) && this.opened.has(group.at);

  /** The item on line `at`: its group, and its row, -1 for the group's own line. */
  item(at) {
    let low = 0, high = this.starts.length - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.starts[mid] <= at) low = mid;
      else high = mid - 1;
    }
    const group = this.shown[low];
    const below = at - this.starts[low] - 1;
    const row = below < 0 ? (group.count === 1 ? 0 : -1) : this.matches[group.at]?.[below] ?? below;
    return { group, row };
  }

  /** The line of a selected row, or -1 where it is not shown. */
  lineOf(selected) {
    if (!selected) return -1;
    const at = this.shown.findIndex((group) => group.at === selected[0]);
    if (at < 0) return -1;
    const group = this.shown[at];
    if (selected[1] < 0 || group.count === 1) return this.starts[at];
    if (!this.isOpen(group)) return -1;
    const matched = this.matches[group.at];
    const below = matched ? matched.indexOf(selected[1]) : selected[1];
    return below < 0 ? -1 : this.starts[at] + 1 + below;
  }

  // Drawing.

  measure() {
    const width = this.root.clientWidth;
    if (!width) return;
    const narrow = width < 860; // as in view.css
    this.rowHeight = narrow ? 54 : 34;
    this.draw();
  }

  draw() {
    if (!this.rowHeight) return;
    const tall = this.length * this.rowHeight;
    this.body.style.height = `${Math.min(tall, TALLEST)}px`;
    this.scroller.style.height = this.printing ? "auto" : `${Math.min(tall, this.rowHeight * this.lines)}px`;
    this.grid.hidden = !this.length;
    // A scroll bar that takes room takes it from the rows only: keep the headings above their columns.
    this.head.style.paddingRight = `calc(16px + ${this.scroller.offsetWidth - this.scroller.clientWidth}px)`;
    const seen = this.scroller.clientHeight;
    this.scale = tall > TALLEST ? (tall - seen) / (TALLEST - seen) : 1; // table pixels a scrolled pixel
    this.grid.setAttribute("aria-rowcount", this.length + 1);
    for (const [at, [key]] of COLUMNS.entries()) {
      const [sorted, direction] = this.ui.sort;
      if (key === sorted) this.headers[at].setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else this.headers[at].removeAttribute("aria-sort");
    }
    this.drawChips();
    this.drawTold();
    this.drawRows();
    this.drawDetail();
  }

  drawChips() {
    const only = new Set(this.ui.statuses);
    const focused = document.activeElement?.dataset?.chip;
    this.chips.replaceChildren(...this.states.map((state) =>
      h("button", {
        type: "button", class: "wb-chip", "data-state": state, "data-chip": state,
        "aria-pressed": only.has(state) ? "true" : "false",
        onclick: () => {
          only.has(state) ? only.delete(state) : only.add(state);
          this.change({ statuses: [...only], scroll: 0, row: null });
        },
      }, sign(state, this.glyphs), state, h("span", { class: "wb-count" }, number(this.counts[state])))));
    if (focused) this.chips.querySelector(`[data-chip="${focused}"]`)?.focus();
  }

  drawTold() {
    const { filter, statuses } = this.ui;
    const left = this.table.left_out;
    const total = this.groups.reduce((sum, group) => sum + group.count, 0);
    const parts = [filter || statuses.length ? `${number(this.rows)} of ${plural(total, "row")}` : plural(total, "row"),
      plural(this.shown.length, "group")];
    if (left) parts.push(`${plural(left, "row")} left out here, result.to_html(path) writes all`);
    this.told.textContent = this.mistake || parts.join(" · ");
    this.told.classList.toggle("wb-mistake", Boolean(this.mistake));
    this.folder.textContent = this.shown.some((group) => this.isOpen(group)) ? "Collapse all" : "Expand all";
    this.folder.disabled = !this.shown.some(this.canOpen);
    this.empty.replaceChildren();
    this.empty.hidden = this.length > 0;
    if (this.length) return;
    if (!this.groups.length) this.empty.append("There are no keys and no parameters.");
    else this.empty.append(
      h("p", {}, "No key matches ", filter ? h("code", {}, filter) : "these states", "."),
      h("button", { type: "button", class: "wb-button", onclick: () => this.clear() }, "Show everything"));
  }

  drawRows() {
    const height = this.rowHeight;
    const scrolled = this.scroller.scrollTop;
    const offset = scrolled - scrolled * this.scale; // 0 unless scaled
    const top = this.printing ? 0 : Math.floor((scrolled - offset) / height);
    const seen = this.printing ? 400 : Math.ceil(this.scroller.clientHeight / height);
    const first = Math.max(0, top - SPARE);
    const last = Math.min(this.length, top + seen + SPARE + 1);
    const selected = this.lineOf(this.ui.row);
    const lines = [];
    for (let at = first; at < last; at++) {
      const line = this.row(at, at === selected);
      line.style.transform = `translateY(${at * height + offset}px)`;
      lines.push(line);
    }
    this.body.replaceChildren(...lines);
    if (selected >= first && selected < last) this.grid.setAttribute("aria-activedescendant", `${this.id}-${selected}`);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  row(at, selected) {
    const { group, row } = this.item(at);
    const whole = row < 0;
    const child = !whole && group.count > 1;
    const matched = this.countOf(group);
    const text = whole ? group.text : group.name(row);
    const where = group.rename ? (whole ? group.rename : group.renamed(row)) : whole ? group.wide(group.where) : group.filled(group.where, row);
    const open = this.isOpen(group);
    const path = group.side === "key" && (group.rename || group.parameter) && group.status !== "ignored";
    return h(
      "div",
      {
        class: `wb-row${child ? " wb-child" : ""}${selected ? " wb-selected" : ""}`, role: "row", id: `${this.id}-${at}`,
        "data-line": at, "data-state": group.status, "aria-rowindex": at + 2, "aria-level": child ? 2 : 1,
        "aria-expanded": whole && group.hasRows ? String(open) : null, "aria-selected": String(selected),
      },
      h("div", { role: "gridcell", class: "wb-cell wb-c-status" }, sign(group.status, this.glyphs), h("span", {}, group.status)),
      h("div", { role: "gridcell", class: "wb-cell wb-c-name" },
        h("span", { class: "wb-twist", "aria-hidden": "true" }, whole && group.hasRows ? (open ? "▾" : "▸") : ""),
        nameOf(text),
        whole && h("span", { class: "wb-many" }, matched === group.count ? `${number(matched)}×` : `${number(matched)} of ${number(group.count)}`)),
      h("div", { role: "gridcell", class: "wb-cell wb-c-shape", title: shapeText(group.shape) }, shapeText(group.shape)),
      h("div", { role: "gridcell", class: "wb-cell wb-c-dtype" }, group.dtype ?? ""),
      h("div", { role: "gridcell", class: "wb-cell wb-c-parameter" },
        path && group.rename && h("span", { class: "wb-arrow", "aria-label": "proposed name" }, "→"),
        path ? nameOf(where) : h("span", { class: "wb-reason", title: where }, where)),
    );
  }

  drawDetail() {
    const line = this.lineOf(this.ui.row);
    this.detail.hidden = line < 0;
    this.detail.replaceChildren();
    if (line < 0) return;
    const { group, row } = this.item(line);
    const whole = row < 0;
    const text = whole ? group.text : group.name(row);
    const at = (pattern) => (whole ? group.wide(pattern) : group.filled(pattern, row));
    const facts = [
      ["Goes to", group.side === "key" ? at(group.parameter) : ""],
      ["Proposed name", whole ? group.rename : group.renamed(row)],
      ["Why", group.reason],
      ["Shape and type", [shapeText(group.shape), group.dtype].filter(Boolean).join(" · ")],
      ["In the engine", group.place],
    ].filter(([, value]) => value);
    this.detail.append(
      h("div", { class: "wb-about-head" }, sign(group.status, this.glyphs),
        h("span", { class: "wb-about-name" }, h("span", { class: "wb-sr" }, group.status + " "), text),
        h("button", { type: "button", class: "wb-button wb-copy", onclick: () => copy(text) }, "Copy name")),
      h("dl", { class: "wb-about-facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
  }

  // What the reader does.

  scrolled() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      // Detached elements report 0: not the reader's doing.
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
    this.change({ filter: "", statuses: [], scroll: 0, row: null });
    this.filterBox.focus();
  }

  sortBy(key) {
    const [sorted, direction] = this.ui.sort;
    // Up, down, and back to the order of importance.
    const next = sorted !== key ? [key, 1] : direction > 0 ? [key, -1] : ["", 1];
    this.change({ sort: next, scroll: 0 });
  }

  foldAll() {
    const any = this.shown.some((group) => this.isOpen(group));
    this.change({ open: any ? [] : this.shown.filter(this.canOpen).map((g) => g.at), scroll: 0 });
  }

  toggle(group, open = !this.isOpen(group)) {
    open &&= this.canOpen(group);
    const opened = new Set(this.opened);
    open ? opened.add(group.at) : opened.delete(group.at);
    this.change({ open: [...opened], row: [group.at, -1] });
  }

  clicked(event) {
    const line = event.target.closest(".wb-row");
    if (!line || String(getSelection())) return;
    const { group, row } = this.item(Number(line.dataset.line));
    if (row < 0) this.toggle(group);
    else this.change({ row: [group.at, row] });
  }

  filterKey(event) {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      if (this.ui.filter) this.clear();
      else this.grid.focus();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      this.grid.focus();
      this.select(0);
    }
  }

  gridKey(event) {
    if (event.target !== this.grid || event.altKey || event.metaKey) return;
    const line = this.lineOf(this.ui.row);
    const item = line < 0 ? null : this.item(line);
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.rowHeight) - 1);
    const act = {
      ArrowDown: () => this.select(line + 1),
      ArrowUp: () => this.select(Math.max(0, line - 1)),
      PageDown: () => this.select(line + page),
      PageUp: () => this.select(line - page),
      Home: () => this.select(0),
      End: () => this.select(this.length - 1),
      ArrowRight: () => item?.row === -1 && (this.isOpen(item.group) ? this.select(line + 1) : this.toggle(item.group, true)),
      ArrowLeft: () => item && (item.row === -1 ? this.isOpen(item.group) && this.toggle(item.group, false)
        : item.group.count > 1 && this.select(this.lineOf([item.group.at, -1]))),
      Enter: () => item?.row === -1 && this.toggle(item.group),
      " ": () => item?.row === -1 && this.toggle(item.group),
      "/": () => this.filterBox.focus(),
      Escape: () => (this.ui.row ? this.change({ row: null }) : this.clear()),
      c: () => (event.ctrlKey ? item && !String(getSelection()) && copy(item.row < 0 ? item.group.text : item.group.name(item.row)) : false),
    }[event.key];
    if (!act || (event.ctrlKey && event.key !== "c") || act() === false) return;
    event.preventDefault();
    event.stopPropagation();
  }

  select(line) {
    if (!this.length) return;
    line = Math.min(this.length - 1, Math.max(0, line));
    const { group, row } = this.item(line);
    const top = line * this.rowHeight;
    const room = this.scroller.clientHeight - this.rowHeight;
    const scrolled = this.scroller.scrollTop * this.scale;
    if (top < scrolled) this.scroller.scrollTop = top / this.scale;
    else if (top > scrolled + room) this.scroller.scrollTop = (top - room) / this.scale;
    this.change({ row: [group.at, row] });
  }

  // Taking it away.

  markdownButton() {
    const button = h("button", {
      type: "button", class: "wb-button", title: "The groups that are shown, as a Markdown table",
      onclick: async () => {
        button.textContent = (await copy(this.markdown())) ? "Copied" : "Not copied";
        setTimeout(() => (button.textContent = "Copy Markdown"), 1600);
      },
    }, "Copy Markdown");
    return button;
  }

  markdown() {
    const cell = (text) => String(text).replace(/[\\|<>`]/g, (c) => `\\${c}`).replace(/\s+/g, " ");
    const code = (text) => (/[`|\n]/.test(text) ? cell(text) : `\`${text}\``);
    const lines = ["| | Status | Name | Count | Shape | Type | Goes to, or why not |", "|---|---|---|---:|---|---|---|"];
    for (const group of this.shown) {
      lines.push(`| ${[this.glyphs[group.status] ?? "", group.status, code(group.text), this.countOf(group),
        shapeText(group.shape), group.dtype ?? "", cell(group.rename ? `→ ${group.rename}` : group.wide(group.where))].join(" | ")} |`);
    }
    return lines.join("\n") + "\n";
  }

  csv() {
    const cell = (value) => {
      let text = String(value ?? "");
      if (/^[=+\-@\t\r]/.test(text)) text = "'" + text; // a spreadsheet would run it as a formula
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = ["side,status,name,shape,dtype,parameter,rename,reason,place"];
    for (const group of this.shown) {
      const rows = this.matches[group.at] ?? Array.from({ length: group.hasRows ? group.count : 1 }, (_, row) => row);
      for (const row of rows) {
        lines.push([group.side, group.status, group.name(row), group.shape?.join("x"), group.dtype,
          group.filled(group.parameter, row), group.renamed(row), group.reason, group.place].map(cell).join(","));
      }
    }
    download("keys.csv", lines.join("\r\n") + "\r\n", "text/csv");
  }
}

const shapeText = (shape) => (shape ? `[${shape.join(", ")}]` : "");
