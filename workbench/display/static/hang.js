// The view of a HangDiagnosis: where each rank is, the one experiment, the merged stacks, the start-up.

import { copyButton, h, number, plural, prose, sign } from "./dom.js";
import { findingsOf, verdictOf } from "./head.js";
import { Icicle } from "./icicle.js";
import { StartUp } from "./startup.js";

const LABELLED = 64; // ranks that get a tile with words; more get a sign each
const THREADS = 60; // threads listed at once

const WORDS = { not_seen: "not seen", not_collected: "not collected" };
const wordOf = (standing) => WORDS[standing] ?? standing;

/** What the reader chose, and what shows it. */
class Choice {
  constructor(ui, keep) {
    this.keep = keep;
    this.drawers = [];
    this.ui = { ranks: [], search: "", node: null, cursor: null, all: false, thread: "", ...ui };
  }

  change(part) {
    Object.assign(this.ui, part);
    this.draw();
    this.keep({ ...this.ui });
  }

  /** Choose some ranks; the same ones again: none. */
  toggle(ranks) {
    const same = ranks.length === this.ui.ranks.length && ranks.every((rank) => this.ui.ranks.includes(rank));
    this.change({ ranks: same ? [] : ranks });
  }

  draw() {
    for (const draw of this.drawers) draw(this.ui);
  }
}

export function hang(payload, { glyphs, ui, keep }) {
  const choice = new Choice(ui, keep);
  const standing = new Map(payload.ranks.map((rank) => [rank.rank, rank.standing]));
  const names = new Map(payload.ranks.map((rank) => [rank.rank, rank.name]));
  const about = { payload, glyphs, choice, standing, names };
  const icicle = payload.tree.nodes.length ? new Icicle(about) : null;
  const startUp = payload.timeline ? new StartUp(about) : null;
  const resize = new ResizeObserver(() => icicle?.measure());
  if (icicle) resize.observe(icicle.root);
  const nodes = [
    verdictOf(payload, glyphs),
    payload.ranks.length > 0 && ranksOf(about),
    experimentOf(payload.experiment),
    evidenceOf(payload, glyphs),
    icicle?.root,
    startUp?.root,
    payload.threads.length > 0 && threadsOf(about),
    leftOut(payload.left_out),
  ].filter(Boolean);
  choice.draw();
  return {
    nodes,
    life: {
      measure: () => icicle?.measure(),
      restore: (fresh) => {
        choice.ui = { ...choice.ui, ...fresh };
        choice.draw();
      },
      destroy: () => resize.disconnect(),
    },
  };
}

/** The findings; the evidence for the verdict is open. */
function evidenceOf({ findings }, glyphs) {
  const section = findingsOf(findings, glyphs);
  section?.querySelector('.wb-evidence[data-side="for"]')?.setAttribute("open", "");
  return section;
}

// Ranks

function ranksOf({ payload, glyphs, choice }) {
  const { ranks } = payload;
  const small = ranks.length > LABELLED;
  const tiles = ranks.map((rank) => tile(rank, glyphs, small, choice));
  const strip = h("div", { class: `wb-ranks${small ? " wb-small" : ""}`, role: "toolbar", "aria-label": "Ranks" }, byHost(ranks, tiles));
  strip.addEventListener("keydown", (event) => walk(event, tiles, choice));
  const counts = new Map();
  for (const rank of ranks) counts.set(rank.standing, [...(counts.get(rank.standing) ?? []), rank.rank]);
  const chips = h("div", { class: "wb-chips", role: "group", "aria-label": "Choose ranks by what they do" });
  const card = h("div", { class: "wb-groups", "aria-live": "polite" });
  choice.drawers.push((ui) => {
    const chosen = new Set(ui.ranks);
    const first = Math.max(0, ranks.findIndex((rank) => chosen.has(rank.rank)));
    tiles.forEach((node, at) => {
      node.setAttribute("aria-pressed", String(chosen.has(ranks[at].rank)));
      node.tabIndex = at === first ? 0 : -1;
      node.classList.toggle("wb-dim", chosen.size > 0 && !chosen.has(ranks[at].rank));
    });
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset?.chip;
    chips.replaceChildren(...[...counts].map(([state, all]) =>
      h("button", {
        type: "button", class: "wb-chip", "data-state": state, "data-chip": state, onclick: () => choice.toggle(all),
        "aria-pressed": String(chosen.size === all.length && all.every((rank) => chosen.has(rank))),
      }, sign(state, glyphs), wordOf(state), h("span", { class: "wb-count" }, number(all.length)))),
    ...(chosen.size ? [h("button", { type: "button", class: "wb-button wb-clear", onclick: () => choice.change({ ranks: [] }) }, "Show all")] : []));
    if (focused) chips.querySelector(`[data-chip="${focused}"]`)?.focus();
    const one = chosen.size === 1 && ranks.find((rank) => chosen.has(rank.rank));
    card.replaceChildren(...(one ? [aboutRank(one, payload, glyphs)] : groupsOf(payload, chosen, glyphs, choice)));
  });
  return h("section", { "aria-label": "Ranks" }, h("h3", { class: "wb-h" }, "Ranks"), small ? [chips, card, strip] : [strip, chips, card]);
}

function byHost(ranks, tiles) {
  const hosts = new Map();
  ranks.forEach((rank, at) => hosts.set(rank.host ?? "", [...(hosts.get(rank.host ?? "") ?? []), tiles[at]]));
  if ([...hosts.keys()].filter(Boolean).length < 2) return tiles;
  return [...hosts].map(([host, mine]) => h("div", { class: "wb-host" }, h("span", { class: "wb-host-name", title: host }, host || "host unknown"), h("div", { class: "wb-host-ranks" }, mine)));
}

function tile(rank, glyphs, small, choice) {
  const label = `${rank.name}: ${wordOf(rank.standing)}${rank.moving === true ? ", moving" : rank.moving === false ? ", frozen" : ""}`;
  return h("button", {
    type: "button", class: "wb-rank", "data-state": rank.standing, "data-rank": rank.rank, title: label, "aria-label": label,
    onclick: () => choice.toggle([rank.rank]),
  }, sign(rank.standing, glyphs), !small && h("span", { class: "wb-rank-name" }, rank.name), !small && h("span", { class: "wb-rank-word" }, wordOf(rank.standing), rank.standing === "odd" && rank.state === "T" && ", stopped"));
}

/** Arrow keys go from tile to tile, Home and End to the first and the last. */
function walk(event, tiles, choice) {
  const at = tiles.indexOf(event.target.closest(".wb-rank"));
  const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: tiles.length - 1 }[event.key];
  if (event.key === "Escape" && choice.ui.ranks.length) choice.change({ ranks: [] });
  if (to === undefined || at < 0) return;
  event.preventDefault();
  const next = tiles[Math.min(Math.max(to, 0), tiles.length - 1)];
  tiles[at].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function groupsOf(payload, chosen, glyphs, choice) {
  const shown = payload.groups.filter((group) => !chosen.size || group.ranks.some(([a, b]) => between(chosen, a, b)));
  return shown.map((group) =>
    h("div", { class: "wb-group", "data-state": group.standing },
      sign(group.standing, glyphs),
      h("button", { type: "button", class: "wb-link wb-group-name", title: "Choose these ranks", onclick: () => choice.toggle(expand(group.ranks)) }, group.names),
      h("span", { class: "wb-group-word" }, wordOf(group.standing), group.wait && h("span", { class: "wb-wait" }, group.wait)),
      h("span", { class: "wb-group-frame" }, group.frame ?? ""),
      h("span", { class: "wb-group-life" }, group.signs.join(" · ")),
      (group.why || group.remedy) && h("p", { class: "wb-group-why" }, group.why, group.remedy && h("span", { class: "wb-remedy" }, ` To see it: ${group.remedy}.`))));
}

const between = (chosen, first, last) => [...chosen].some((rank) => rank >= first && rank <= last);
const expand = (ranges) => ranges.flatMap(([a, b]) => Array.from({ length: b - a + 1 }, (_, at) => a + at));

function aboutRank(rank, { frames }, glyphs) {
  const unit = (value, digits, name) => (value === undefined ? "" : `${value.toFixed(digits)} ${name}`);
  const frame = frames[rank.frame];
  const facts = [
    ["Place", frame && frame[0] + (frame[1] ? ` (${frame[1]}:${frame[2]})` : "")],
    ["Wait", rank.wait_class !== "UNKNOWN" && rank.wait_class],
    ["Phase", rank.phase !== "unknown" && rank.phase],
    ["Between snapshots", rank.moving === true ? "moving" : rank.moving === false ? "frozen" : ""],
    ["Process", [rank.pid !== undefined && `pid ${rank.pid}`, rank.host, rank.state && `state ${rank.state}`, rank.cpu !== undefined && `${rank.cpu.toFixed(2)} CPU s per s`].filter(Boolean).join(", ")],
    ["GPU", [unit(rank.gpu_utilisation, 0, "% busy"), unit(rank.gpu_watts, 0, "W"), rank.gpu_memory_mib === undefined ? "" : unit(rank.gpu_memory_mib / 1024, 1, "GiB")].filter(Boolean).join(", ")],
    ["Threads", rank.threads !== undefined && `${plural(rank.threads, "Python thread")}, ${rank.folded ?? 0} of them bystanders`],
    ["Why", rank.why], ["To see it", rank.remedy], ["Last log line", rank.last_line],
  ].filter(([, value]) => value);
  return h("div", { class: "wb-about" },
    h("div", { class: "wb-about-head" }, sign(rank.standing, glyphs), h("span", { class: "wb-about-name" }, `${rank.name}: ${wordOf(rank.standing)}`)),
    h("dl", { class: "wb-about-facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
}

// The experiment

function experimentOf(plan) {
  if (!plan?.change) return null;
  const change = marked(plan.change);
  const code = change.match(/`([^`\n]+)`/)?.[1];
  return h("section", { class: "wb-plan", "aria-label": "The one next experiment" },
    h("h3", { class: "wb-h" }, "The one next experiment"),
    h("div", { class: "wb-plan-card" },
      h("div", { class: "wb-plan-change" }, h("span", { class: "wb-next-label" }, "Change"), h("span", { class: "wb-plan-text" }, prose(change)),
        code && copyButton("Copy", () => code, "wb-copy")),
      h("div", { class: "wb-plan-ways" },
        plan.if_right && way("If the hypothesis is right", plan.if_right), plan.if_wrong && way("If it is wrong", plan.if_wrong)),
      h("dl", { class: "wb-plan-more" }, [["Cost", plan.cost], ["Undo", plan.undo]].filter(([, value]) => value)
        .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, prose(marked(value))))))));
}

/** Set flags, variables and commands as code where the sentence does not mark them itself. */
function marked(text) {
  if (text.includes("`")) return text;
  if (/^(kill|workbench|python3?|sglang|nvidia-smi|sudo) /.test(text) && text.length < 60) return "`" + text + "`";
  return text.replace(/curl [^\s]+ \d+ \S+|--[a-z][\w-]+(?:=[^\s,;()]+)?|\b[A-Z][A-Z0-9_]+=[^\s,;()]+/g, "`$&`");
}

const way = (title, text) => h("div", { class: "wb-way" }, h("h4", { class: "wb-way-title" }, title), h("p", {}, prose(marked(text))));

function leftOut({ threads, nodes, ranks }) {
  const parts = [threads && plural(threads, "thread"), nodes && plural(nodes, "deep frame"), ranks && plural(ranks, "rank")].filter(Boolean);
  return parts.length > 0 && h("p", { class: "wb-status" }, `${parts.join(", ")} left out here; result.to_html(path) writes all.`);
}

// Raw threads

function threadsOf({ payload, glyphs, choice, names, standing }) {
  const list = h("div", { class: "wb-threads" });
  const told = h("p", { class: "wb-status", role: "status" });
  const box = h("input", {
    class: "wb-filter", type: "search", placeholder: "Filter threads by name or frame", spellcheck: "false", "aria-label": "Filter threads by name or frame",
    oninput: () => choice.change({ thread: box.value }),
  });
  const body = h("div", {}, h("div", { class: "wb-bar" }, box), told, list);
  const fold = h("details", { class: "wb-raw" }, h("summary", {}, `Every stack: ${plural(payload.threads.length, "thread")}`), body);
  const draw = ({ ranks, thread }) => {
    if (!fold.open) return;
    if (box.value !== thread) box.value = thread;
    const wanted = thread.toLowerCase();
    const has = (item) => !wanted || (item.name ?? "").toLowerCase().includes(wanted) || item.frames.some((at) => payload.frames[at][0].toLowerCase().includes(wanted));
    const found = payload.threads.filter((item) => (!ranks.length || ranks.includes(item.rank)) && has(item));
    told.textContent = found.length > THREADS ? `the first ${THREADS} of ${plural(found.length, "thread")}: choose a rank above, or filter` : plural(found.length, "thread");
    list.replaceChildren(...found.slice(0, THREADS).map((item) => threadOf(item, payload, glyphs, names, standing)));
  };
  fold.addEventListener("toggle", () => draw(choice.ui));
  choice.drawers.push(draw);
  return h("section", { "aria-label": "Every stack" }, h("h3", { class: "wb-h" }, "Raw stacks"), fold);
}

function threadOf(item, { frames, times }, glyphs, names, standing) {
  const state = standing.get(item.rank) ?? "quiet";
  const tags = [times.length > 1 && `snapshot ${item.snapshot + 1}`, item.active && "active", item.owns_gil && "holds the GIL", item.folded && `folded: ${item.folded}`].filter(Boolean);
  const row = h("details", { class: "wb-thread", "data-state": state },
    h("summary", {}, sign(state, glyphs), h("b", {}, names.get(item.rank) ?? item.role ?? ""), ` ${item.name ?? "unnamed thread"} `, h("span", { class: "wb-thread-tags" }, [`pid ${item.pid}`, ...tags].join(" · "))));
  row.addEventListener("toggle", () => {
    if (row.childElementCount > 1) return;
    row.append(h("ol", { class: "wb-frames" }, item.frames.map((at) => h("li", {}, h("span", {}, frames[at][0]), h("span", { class: "wb-place-of" }, placeOf(frames[at]))))));
  });
  return row;
}

const placeOf = ([, file, line, module]) => (file ? `${file}${line ? ":" + line : ""}` : module);
