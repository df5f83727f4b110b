// Names grouped by template, built on demand, and what the filter box asks of them.

/**
 * One group as the payload has it (views/keydiff.py). `index` has a row of numbers for each name, which fill the
 * template; a group without a template has `names`, or its one `text`.
 *
 * @typedef {{
 *   status: string, side: string, text: string, count: number, shape?: number[], dtype?: string,
 *   template?: string, index?: number[][], names?: string[],
 *   parameter?: string, rename?: string, reason?: string, place?: string,
 * }} GroupData
 */

/** One group of the payload, with its names built on demand. */
export class Group {
  /** @type {string[] | undefined} one text for each part of an index */ ranges;
  /** @type {string[] | undefined} */ built;
  /** @type {string[] | undefined} */ lowered;

  /** @param {GroupData} data @param {number} at @param {string[]} order */
  constructor(data, at, order) {
    this.status = data.status;
    this.side = data.side;
    this.text = data.text;
    this.count = data.count;
    this.shape = data.shape;
    this.dtype = data.dtype;
    this.template = data.template;
    this.index = data.index;
    this.names = data.names;
    this.parameter = data.parameter;
    this.rename = data.rename;
    this.reason = data.reason;
    this.place = data.place;
    this.at = at;
    this.rank = order.indexOf(data.status);
    this.literals = data.index ? data.template.split("{}") : null;
  }

  /** A long group may come as its one line, without its rows (`left_out` counts them). */
  get hasRows() {
    return Boolean(this.index ?? this.names);
  }

  name(row) {
    return this.names?.[row] ?? (this.index ? fill(this.template, this.index[row]) : this.text);
  }

  /** A pattern over the group's indices, such as the parameter's, for one row. */
  filled(pattern, row) {
    return pattern && this.index ? fill(pattern, this.index[row]) : pattern ?? "";
  }

  /** The proposed name of one row; the payload has it for the whole group: midlayer.{0...3}.mlp */
  renamed(row) {
    if (!this.rename || !this.index) return this.rename ?? "";
    this.ranges ??= (this.index[0] ?? []).map((_, at) => ranges(this.index.map((r) => r[at])));
    let name = this.rename;
    this.ranges.forEach((text, at) => text.startsWith("{") && (name = name.replace(text, String(this.index[row][at]))));
    return name;
  }

  /** The same pattern for all rows at once: model.layers.{0...23}.mlp */
  wide(pattern) {
    if (!pattern || !this.index) return pattern ?? "";
    this.ranges ??= (this.index[0] ?? []).map((_, at) => ranges(this.index.map((r) => r[at])));
    return fill(pattern, this.ranges);
  }

  get all() {
    // Concatenation, not `fill`: five times as fast, and this is the reader's wait at the first filter.
    this.built ??= this.names ?? this.index.map((row) => {
      let name = this.literals[0];
      for (let at = 0; at < row.length; at++) name += row[at] + this.literals[at + 1];
      return name;
    });
    return this.built;
  }

  get lower() {
    const small = !this.names && this.template === this.template.toLowerCase();
    this.lowered ??= small ? this.all : this.all.map((name) => name.toLowerCase());
    return this.lowered;
  }

  get where() {
    if (this.side === "parameter" || this.status === "ignored") return this.reason || this.parameter || "";
    return this.rename || this.parameter || this.reason || "";
  }

  /** Which rows match: null for all of them, else their numbers in order. */
  matching(test) {
    if (!test || test.text(this.parameter ?? "") || test.text(this.rename ?? "") || test.text(this.text)) return null;
    if (test.plain) {
      // Indices are digits, so what has no digit can only lie between them.
      if (this.literals?.some((part) => test.text(part))) return null;
      if (this.literals && !/\d/.test(test.plain)) return [];
    }
    if (!this.hasRows) return [];
    // Text that spans no more than one index depends on that index alone: a few hundred values to try, and no
    // name is built. Text that spans two must hold all that lies between them.
    if (test.plain && this.literals && !this.literals.slice(1, -1).some((part) => test.holds(part))) {
      const found = this.literals.slice(1).map((after, column) => {
        const values = new Set(this.index.map((row) => row[column]));
        return new Set([...values].filter((value) => test.text(this.literals[column] + value + after)));
      });
      const hits = [];
      this.index.forEach((row, at) => row.some((value, column) => found[column].has(value)) && hits.push(at));
      return hits.length === this.count ? null : hits;
    }
    const names = test.plain && !test.exact ? this.lower : this.all;
    const rows = [];
    for (let row = 0; row < names.length; row++) if (test.name(names[row])) rows.push(row);
    return rows.length === names.length ? null : rows;
  }
}

function fill(pattern, index) {
  let next = 0;
  return pattern.replace(/\{(\d*)\}/g, (_, column) => index[column === "" ? next++ : Number(column)]);
}

/** Whole numbers as text, as Python's spans(): 0...23, 40 */
function ranges(values) {
  const runs = [];
  for (const value of [...new Set(values)].sort((a, b) => a - b)) {
    if (runs.length && value === runs.at(-1)[1] + 1) runs.at(-1)[1] = value;
    else runs.push([value, value]);
  }
  const text = runs.map(([a, b]) => (a === b ? a : `${a}...${b}`)).join(", ");
  return runs.length === 1 && runs[0][0] === runs[0][1] ? text : `{${text}}`;
}

/** Read the filter box: text, or /regular expression/flags. Lower-case text ignores case. */
export function reading(filter) {
  if (!filter || filter === "/") return null;
  const regex = filter.match(/^\/(.+?)(?:\/([imsu]*))?$/s); // not closed yet: still being typed
  if (regex) {
    const test = new RegExp(regex[1], regex[2] ?? "");
    return { name: (s) => test.test(s), text: (s) => s !== "" && test.test(s) };
  }
  const exact = /[A-Z]/.test(filter);
  const has = (s) => s.includes(filter);
  const holds = (part) => filter.includes(exact ? part : part.toLowerCase());
  return { plain: filter, exact, holds, name: has, text: exact ? has : (s) => s.toLowerCase().includes(filter) };
}
