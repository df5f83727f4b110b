// What every table shares: 200,000 lines without building any that nobody looks at, its frame, scrolling and keys.

import { copy, download, h } from "./dom.js";

const TALLEST = 8_000_000; // pixels a browser scrolls exactly; past that, positions are scaled
const SPARE = 6; // lines drawn above and below what is seen
const PRINTED = 400; // lines on paper

/**
 * @typedef {{filter: string, sort: [string, number], scroll: number, row: any, [more: string]: any}} Chosen
 * What the reader chose.
 */

/**
 * A table by lines. A subclass sets `length`, and has the methods that say they are its own.
 */
export class Grid {
  /** @type {[string, string][]} key and label of each column */ columns = [];
  /** @type {Chosen} */ ui = { filter: "", sort: ["", 1], scroll: 0, row: null };
  /** @type {number} lines that are shown */ length = 0;
  /** @type {number} lines seen at once */ lines = 0;
  /** @type {string} what is wrong with the filter */ mistake = "";
  /** @type {number} */ rowHeight = 0;
  /** @type {number} table pixels a scrolled pixel */ scale = 1;
  printing = false;
  frame = 0;
  id = "wb" + Math.random().toString(36).slice(2, 8);

  /** The subclass's own: one line as an element. @param {number} at @param {boolean} selected @returns {HTMLElement} */
  lineAt(at, selected) {
    throw new Error(`no line ${at} ${selected}`);
  }

  /** Its own: the selected line, or -1 where it is not shown. @returns {number} */
  selectedLine() {
    return -1;
  }

  /** Its own: select a line. @param {number} at */
  choose(at) {
    throw new Error(`no line ${at}`);
  }

  /** Its own: a click on a line. @param {number} at */
  clicked(at) {
    this.choose(at);
  }

  /** Its own: keep what the reader chose, and draw. @param {Partial<Chosen>} part */
  change(part) {
    Object.assign(this.ui, part);
  }

  /** Its own: the chips and the words above the table. */
  drawAbove() {}

  /** Its own: what "Show everything" sets back, beside the filter. @returns {Partial<Chosen>} */
  unfiltered() {
    return {};
  }

  /** Its own: the name that Ctrl+C copies. @param {number} line @returns {string} */
  nameAt(line) {
    return String(line);
  }

  /** Its own: more keys; one that returns false did nothing. @param {number} line @returns {Record<string, () => unknown>} */
  keys(line) {
    return { Escape: () => line >= 0 && this.change({ row: null }) };
  }

  /**
   * Build the frame.
   *
   * @param {{title: string, label: string, role: string, kind?: string, tools: Node[], below?: Node[]}} words
   */
  build({ title, label, role, kind = "", tools, below = [] }) {
    this.filterBox = /** @type {HTMLInputElement} */ (h("input", {
      class: "wb-filter", type: "search", placeholder: "Filter names: text or /regex/", spellcheck: "false",
      autocomplete: "off", "aria-label": "Filter names by text or /regular expression/",
      oninput: () => this.change({ filter: this.filterBox.value, scroll: 0 }),
      onkeydown: (event) => this.filterKey(event),
    }));
    this.chips = h("div", { class: "wb-chips", role: "group", "aria-label": "Show only" });
    this.told = h("p", { class: "wb-status", role: "status", "aria-live": "polite" });
    this.headers = this.columns.map(([key, text]) =>
      h("div", { role: "columnheader", class: `wb-cell wb-c-${key}` },
        h("button", { type: "button", class: "wb-sort", onclick: () => this.sortBy(key) }, text)));
    this.body = h("div", { class: "wb-rows", role: "rowgroup" });
    this.scroller = h("div", { class: "wb-scroll", role: "presentation", onscroll: () => this.scrolled() }, this.body);
    this.head = h("div", { class: "wb-row wb-row-head", role: "row", "aria-rowindex": "1" }, this.headers);
    this.grid = h("div", {
      class: `wb-grid ${kind}`, role, tabindex: "0", "aria-label": label, "aria-colcount": this.columns.length,
      onkeydown: (event) => this.gridKey(event),
    }, this.head, this.scroller);
    this.empty = h("div", { class: "wb-empty" });
    this.root = h("section", { class: "wb-table", "aria-label": title },
      h("h3", { class: "wb-h" }, title),
      h("div", { class: "wb-bar" }, this.filterBox, h("div", { class: "wb-tools" }, tools)),
      this.chips, this.told, this.grid, this.empty, below);
    this.body.addEventListener("click", (event) => {
      const line = /** @type {Element} */ (event.target).closest(".wb-row");
      if (line && !String(getSelection())) this.clicked(Number(/** @type {HTMLElement} */ (line).dataset.line));
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

  // Drawing.

  measure() {
    const width = this.root.clientWidth;
    if (!width) return;
    this.rowHeight = width < 860 ? 54 : 34; // as in view.css
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
    this.scale = tall > TALLEST ? (tall - seen) / (TALLEST - seen) : 1;
    this.grid.setAttribute("aria-rowcount", String(this.length + 1));
    const [sorted, direction] = this.ui.sort;
    this.columns.forEach(([key], at) => {
      if (key === sorted) this.headers[at].setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else this.headers[at].removeAttribute("aria-sort");
    });
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset?.chip;
    this.drawAbove();
    if (focused) /** @type {HTMLElement | null} */ (this.chips.querySelector(`[data-chip="${focused}"]`))?.focus();
    this.drawRows();
  }

  /** Say what is shown, or what is wrong with the filter; and what to do where nothing is. @param {string[]} parts @param {any[]} none */
  tell(parts, none) {
    this.told.textContent = this.mistake || parts.join(" · ");
    this.told.classList.toggle("wb-mistake", Boolean(this.mistake));
    this.empty.hidden = this.length > 0;
    this.empty.replaceChildren(...(this.length ? [] : none.filter(Boolean)));
  }

  everything() {
    return h("button", { type: "button", class: "wb-button", onclick: () => this.clear() }, "Show everything");
  }

  drawRows() {
    const height = this.rowHeight;
    const scrolled = this.scroller.scrollTop;
    const offset = scrolled - scrolled * this.scale;
    const top = this.printing ? 0 : Math.floor((scrolled - offset) / height);
    const seen = this.printing ? PRINTED : Math.ceil(this.scroller.clientHeight / height);
    const first = Math.max(0, top - SPARE);
    const last = Math.min(this.length, top + seen + SPARE + 1);
    const selected = this.selectedLine();
    const lines = [];
    for (let at = first; at < last; at++) {
      const line = this.lineAt(at, at === selected);
      line.style.transform = `translateY(${at * height + offset}px)`;
      lines.push(line);
    }
    this.body.replaceChildren(...lines);
    if (selected >= first && selected < last) this.grid.setAttribute("aria-activedescendant", `${this.id}-${selected}`);
    else this.grid.removeAttribute("aria-activedescendant");
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

  /** @param {number} y */
  scrollTo(y) {
    this.scroller.scrollTop = y;
    if (this.rowHeight) this.drawRows();
  }

  clear() {
    this.filterBox.value = "";
    this.change({ filter: "", scroll: 0, ...this.unfiltered() });
    this.filterBox.focus();
  }

  /** Up, down, and back to the order of importance. @param {string} key */
  sortBy(key) {
    const [sorted, direction] = this.ui.sort;
    this.change({ sort: sorted !== key ? [key, 1] : direction > 0 ? [key, -1] : ["", 1], scroll: 0 });
  }

  /** @param {KeyboardEvent} event */
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

  /** @param {KeyboardEvent} event */
  gridKey(event) {
    if (event.target !== this.grid || event.altKey || event.metaKey) return;
    const line = this.selectedLine();
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.rowHeight) - 1);
    /** @type {(() => unknown) | undefined} */
    const act = {
      ArrowDown: () => this.select(line + 1),
      ArrowUp: () => this.select(Math.max(0, line - 1)),
      PageDown: () => this.select(line + page),
      PageUp: () => this.select(line - page),
      Home: () => this.select(0),
      End: () => this.select(this.length - 1),
      "/": () => this.filterBox.focus(),
      c: () => (event.ctrlKey && line >= 0 && !String(getSelection()) ? copy(this.nameAt(line)) : false),
      ...this.keys(line),
    }[event.key];
    if (!act || (event.ctrlKey && event.key !== "c") || act() === false) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} at */
  select(at) {
    if (!this.length) return;
    const line = Math.min(this.length - 1, Math.max(0, at));
    const top = line * this.rowHeight;
    const room = this.scroller.clientHeight - this.rowHeight;
    const scrolled = this.scroller.scrollTop * this.scale;
    if (top < scrolled) this.scroller.scrollTop = top / this.scale;
    else if (top > scrolled + room) this.scroller.scrollTop = (top - room) / this.scale;
    this.choose(line);
  }

  /** Save rows as a CSV file. @param {string} name @param {string[]} columns @param {Iterable<unknown[]>} rows */
  save(name, columns, rows) {
    const lines = [columns.join(",")];
    for (const row of rows) lines.push(row.map(csvCell).join(","));
    download(name, lines.join("\r\n") + "\r\n", "text/csv");
  }
}

/** @param {unknown} value */
function csvCell(value) {
  let text = String(value ?? "");
  if (/^[=+\-@\t\r]/.test(text) && typeof value !== "number") text = "'" + text; // a spreadsheet would run it as a formula
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
