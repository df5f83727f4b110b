// The start-up as its log has it: each phase of each rank on one axis of time, and where silence began.

import { h, plural, sign } from "./dom.js";
import { spell, union } from "./icicle.js";

const SEPARATE = 16; // ranks that get a line each; more share one with those that went the same way
const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 86400];

/** Seconds as 0.2 s, 31 s, 8 min 5 s, 2 h 3 min. */
function duration(seconds) {
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 119.5) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 120) return whole % 60 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const clock = (seconds) => {
  const moment = new Date(seconds * 1000);
  return Number.isNaN(moment.getTime()) ? "" : moment.toISOString().slice(11, 19);
};

export class StartUp {
  constructor({ payload, glyphs, choice, standing, names }) {
    this.glyphs = glyphs;
    this.choice = choice;
    this.standing = standing;
    this.names = names;
    this.line = payload.timeline;
    this.well = payload.verdict.ok === true;
    this.whole = Math.max(this.line.end - this.line.start, 1e-6);
    this.tracks = this.tracksOf(this.line.spans);
    this.root = this.build();
    choice.drawers.push(({ ranks }) => {
      for (const { node, track } of this.drawn) node.classList.toggle("wb-dim", ranks.length > 0 && !ranks.some((rank) => track.ranks.includes(rank)));
    });
  }

  /** One track a rank; with many ranks, one for all that went the same way and are alike. */
  tracksOf(spans) {
    const byRank = new Map();
    for (const [rank, phase, label, begin, end] of spans) {
      if (!byRank.has(rank)) byRank.set(rank, []);
      byRank.get(rank).push({ phase, label, begin, end, last: begin });
    }
    const tracks = [...byRank].sort((a, b) => (a[0] ?? -1) - (b[0] ?? -1))
      .map(([rank, parts]) => ({ ranks: rank === null ? [] : [rank], state: this.standing.get(rank) ?? "quiet", parts }));
    if (tracks.length <= SEPARATE) return tracks;
    const alike = new Map();
    for (const track of tracks) {
      const key = JSON.stringify([track.state, track.ranks.length, track.parts.map((part) => [part.label, part.end === null])]);
      const first = alike.get(key);
      if (!first) alike.set(key, track);
      else {
        first.ranks.push(...track.ranks);
        first.parts.forEach((part, at) => merge(part, track.parts[at]));
      }
    }
    return [...alike.values()];
  }

  build() {
    const { start, end, silent_for: silent } = this.line;
    const at = (moment) => `${((Math.min(Math.max(moment, start), end) - start) / this.whole) * 100}%`;
    this.drawn = this.tracks.map((track) => ({ track, node: this.trackOf(track, at) }));
    const step = STEPS.find((one) => this.whole / one <= 8) ?? this.whole;
    const ticks = Array.from({ length: Math.floor(this.whole / step) + 1 }, (_, n) => n * step).filter((tick) => tick <= this.whole * 0.94);
    return h("section", { class: "wb-startup", "aria-label": "Start-up by the log" },
      h("h3", { class: "wb-h" }, "Start-up by the log"),
      h("p", { class: "wb-status" }, `from ${clock(start)} on the log's clock`, silent > 0 && " · silence is counted to the last snapshot", " · hatched: begun, never ended"),
      h("div", { class: "wb-lanes" },
        silent > 0 && end - silent > start && h("div", { class: "wb-lane wb-axis" }, h("span", {}),
          h("div", { class: "wb-track" }, h("span", { class: "wb-silent", style: `left:${at(end - silent)}` }, h("span", {}, `silent for ${duration(silent)}`)))),
        this.drawn.map(({ node }) => node),
        h("div", { class: "wb-lane wb-axis", "aria-hidden": "true" }, h("span", {}),
          h("div", { class: "wb-track" }, ticks.map((tick) => h("span", { class: "wb-tick", style: `left:${(tick / this.whole) * 100}%` }, tick ? `+${duration(tick)}` : "0"))))),
      this.table());
  }

  nameOf(track) {
    return track.ranks.length ? spell(union([track.ranks.map((rank) => [rank, rank])]), this.names) : "server";
  }

  /** The name where room is short. */
  shortName(track, name) {
    return name.length > 12 && track.ranks.length > 1 ? plural(track.ranks.length, "rank") : name;
  }

  trackOf(track, at) {
    const { start, end } = this.line;
    const name = this.nameOf(track);
    return h("div", { class: "wb-lane", "data-state": track.state },
      h("button", { type: "button", class: "wb-link wb-lane-name", title: name, onclick: () => track.ranks.length && this.choice.toggle([...track.ranks]) }, sign(track.state, this.glyphs), h("span", {}, this.shortName(track, name))),
      h("div", { class: "wb-track" },
        track.parts.map((part, n) => h("div", {
          class: `wb-phase${part.end === null ? " wb-open" : ""}${n % 2 ? " wb-odd-phase" : ""}`, title: wordsOf(part, start),
          style: `left:${at(part.begin)};right:calc(100% - ${at(part.end ?? end)})`,
        }, h("span", { class: "wb-phase-name" }, part.label))),
        this.nothingMore(track, at)));
  }

  /** The rest of a rank's axis, where its last phase ended and no other began though the server never served. */
  nothingMore(track, at) {
    const last = Math.max(...track.parts.map((part) => part.end ?? Infinity));
    if (!track.ranks.length || this.well || this.line.end - last < Math.max(5, this.whole * 0.05)) return null;
    const text = `no further phase for ${duration(this.line.end - last)}`;
    return h("div", { class: "wb-nothing-more", title: text, style: `left:${at(last)}` }, h("span", {}, text));
  }

  /** The same in words and numbers. */
  table() {
    const { start } = this.line;
    const rows = this.tracks.flatMap((track) => track.parts.map((part) => [this.nameOf(track), part.label, clock(part.begin), `+${duration(part.begin - start)}`, part.end === null ? "never ended" : duration(part.end - part.begin)]));
    return h("details", { class: "wb-evidence" }, h("summary", {}, `As a table (${plural(rows.length, "row")})`),
      h("table", { class: "wb-plain" }, h("thead", {}, h("tr", {}, ["Rank", "Phase", "Began", "After", "Took"].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, row.map((text) => h("td", {}, text)))))));
  }
}

function merge(part, other) {
  part.begin = Math.min(part.begin, other.begin);
  if (part.end !== null) part.end = Math.max(part.end, other.end);
}

const wordsOf = (part, start) => `${part.label}: ${clock(part.begin)} (+${duration(part.begin - start)}), ${part.end === null ? "never ended" : duration(part.end - part.begin)}`;
