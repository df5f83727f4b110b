// The table of keys: names grouped by template, of which the reader opens some.

import { copy, h, nameOf, number, plural, sign } from "./dom.js";
import { Grid } from "./grid.js";
import { Group, reading } from "./groups.js";

/** @type {[string, string][]} */
const COLUMNS = [
  ["status", "Status"],
  ["name", "Name"],
  ["shape", "Shape"],
  ["dtype", "Type"],
  ["parameter", "Goes to, or why not"],
];
const collator = new Intl.Collator("en", { numeric: true });
const size = (shape) => (shape ?? []).reduce((product, n) => product * n, 1);
const KEYS = {
  status: (a, b) => a.rank - b.rank,
  name: (a, b) => collator.compare(a.text, b.text),
  shape: (a, b) => size(a.shape) - size(b.shape),
  dtype: (a, b) => collator.compare(a.dtype ?? "", b.dtype ?? ""),
  parameter: (a, b) => collator.compare(a.where, b.where),
};

export class Table extends Grid {
  /** @type {Record<number, number[] | null>} the rows of each group that match; null for all */ matches = [];
  /** @type {string | undefined} */ matchedFor;
  columns = COLUMNS;

  constructor(table, { glyphs, order, ui, keep, lines }) {
    super();
    this.groups = table.groups.map((data, at) => new Group(data, at, order));
    this.table = table;
    this.glyphs = glyphs;
    this.order = order;
    this.keep = keep;
    this.lines = lines;
    this.states = order.filter((state) => table.groups.some((g) => g.status === state));
    this.folder = /** @type {HTMLButtonElement} */ (
      h("button", { type: "button", class: "wb-button", onclick: () => this.foldAll() }, "Expand all"));
    this.detail = h("aside", { class: "wb-about", "aria-live": "polite", "aria-label": "About the selected row" });
    this.build({
      title: "Every key and parameter", label: "Keys and parameters", role: "treegrid",
      tools: [this.folder, this.markdownButton(),
        h("button", { type: "button", class: "wb-button", title: "All rows that are shown, as a CSV file", onclick: () => this.csv() }, "CSV")],
      below: [this.detail],
    });
    this.resize = new ResizeObserver(() => this.measure());
    this.resize.observe(this.root);
    this.restore(ui);
  }

  destroy() {
    this.resize.disconnect();
    super.destroy();
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
    // Another filter may hide the selected row.
    Object.assign(this.ui, "filter" in part ? { row: null } : {}, part);
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

  draw() {
    super.draw();
    if (this.rowHeight) this.drawDetail();
  }

  drawAbove() {
    this.drawChips();
    this.drawTold();
  }

  drawChips() {
    const only = new Set(this.ui.statuses);
    this.chips.replaceChildren(...this.states.map((state) =>
      h("button", {
        type: "button", class: "wb-chip", "data-state": state, "data-chip": state,
        "aria-pressed": only.has(state) ? "true" : "false",
        onclick: () => {
          only.has(state) ? only.delete(state) : only.add(state);
          this.change({ statuses: [...only], scroll: 0, row: null });
        },
      }, sign(state, this.glyphs), state, h("span", { class: "wb-count" }, number(this.counts[state])))));
  }

  drawTold() {
    const { filter, statuses } = this.ui;
    const left = this.table.left_out;
    const total = this.groups.reduce((sum, group) => sum + group.count, 0);
    const parts = [filter || statuses.length ? `${number(this.rows)} of ${plural(total, "row")}` : plural(total, "row"),
      plural(this.shown.length, "group")];
    if (left) parts.push(`${plural(left, "row")} left out here, result.to_html(path) writes all`);
    this.folder.textContent = this.shown.some((group) => this.isOpen(group)) ? "Collapse all" : "Expand all";
    this.folder.disabled = !this.shown.some(this.canOpen);
    this.tell(parts, !this.groups.length ? [h("p", {}, "There are no keys and no parameters.")]
      : [h("p", {}, "No key matches ", filter ? h("code", {}, filter) : "these states", "."), this.everything()]);
  }

  selectedLine() {
    return this.lineOf(this.ui.row);
  }

  lineAt(at, selected) {
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

  unfiltered() {
    return { statuses: [] };
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

  clicked(at) {
    const { group, row } = this.item(at);
    if (row < 0) this.toggle(group);
    else this.choose(at);
  }

  choose(at) {
    const { group, row } = this.item(at);
    this.change({ row: [group.at, row] });
  }

  nameAt(line) {
    const { group, row } = this.item(line);
    return row < 0 ? group.text : group.name(row);
  }

  keys(line) {
    const item = line < 0 ? null : this.item(line);
    return {
      ArrowRight: () => item?.row === -1 && (this.isOpen(item.group) ? this.select(line + 1) : this.toggle(item.group, true)),
      ArrowLeft: () => item && (item.row === -1 ? this.isOpen(item.group) && this.toggle(item.group, false)
        : item.group.count > 1 && this.select(this.lineOf([item.group.at, -1]))),
      Enter: () => item?.row === -1 && this.toggle(item.group),
      " ": () => item?.row === -1 && this.toggle(item.group),
      Escape: () => (this.ui.row ? this.change({ row: null }) : this.clear()),
    };
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
    this.save("keys.csv", ["side", "status", "name", "shape", "dtype", "parameter", "rename", "reason", "place"], this.csvRows());
  }

  *csvRows() {
    for (const group of this.shown) {
      const rows = this.matches[group.at] ?? Array.from({ length: group.hasRows ? group.count : 1 }, (_, row) => row);
      for (const row of rows) {
        yield [group.side, group.status, group.name(row), group.shape?.join("x"), group.dtype,
          group.filled(group.parameter, row), group.renamed(row), group.reason, group.place];
      }
    }
  }
}

const shapeText = (shape) => (shape ? `[${shape.join(", ")}]` : "");
