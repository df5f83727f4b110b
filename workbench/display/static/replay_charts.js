// Next to the rounds: acceptance by position, and over the run.

import { h, number, svg } from "./dom.js";

const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;

/** One bar a position: how many rounds accepted that many drafts, in the engine, here, and as expected. */
export function positionsOf(payload) {
  if (!payload.positions.length) return null;
  const kinds = /** @type {[string, number, string][]} */ ([["replay", 1, "Replay"], ["engine", 2, "Engine"], ["expected", 3, "Expected"]]).filter(([, at]) => payload.positions.some((row) => row[at] !== null));
  return h("figure", { class: "wb-positions" },
    h("figcaption", {}, h("b", {}, "By position"), " ", h("span", { class: "wb-muted" }, "rounds with at least so many drafts accepted")),
    h("div", { class: "wb-chart-keys" }, kinds.map(([kind, , word]) => h("span", { class: "wb-key" }, h("i", { class: `wb-mark-key wb-of-${kind}` }), word))),
    h("table", {}, h("tbody", {}, payload.positions.map(([position, ...shares]) =>
      h("tr", {},
        h("th", { scope: "row" }, String(position)),
        h("td", { class: "wb-lanes" }, kinds.map(([kind, at, word]) => {
          const share = shares[at - 1];
          if (share === null) return null;
          return h("span", { class: "wb-pos-lane", title: `${word}: ${percent(share)}` },
            h("i", { class: `wb-bar-of wb-of-${kind}`, style: `width:${(100 * share).toFixed(2)}%` }));
        })),
        h("td", { class: "wb-shares" }, kinds.map(([, at]) => shares[at - 1] !== null && h("span", {}, percent(shares[at - 1])))))))));
}

/** Mean accepted drafts along the run; a click goes there, a line marks where the player is. */
export class Course {
  constructor(payload, goTo) {
    this.payload = payload;
    this.goTo = goTo;
    this.kept = payload.rounds.length;
    const { course } = payload;
    const [width, height] = [320, 96];
    this.width = width;
    this.height = height;
    const most = Math.max(1, ...course.flat().filter((value) => value !== null)) * 1.05;
    const x = (at) => (at / Math.max(course.length, 1)) * width;
    const y = (value) => height - (value / most) * (height - 6);
    const steps = (which) => {
      const points = [];
      course.forEach((pair, at) => pair[which] !== null && points.push(`${x(at).toFixed(1)},${y(pair[which]).toFixed(1)} ${x(at + 1).toFixed(1)},${y(pair[which]).toFixed(1)}`));
      return points.join(" ");
    };
    const seen = course.some((pair) => pair[1] !== null);
    this.marker = svg("line", { class: "wb-now", y1: 0, y2: height });
    this.picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", preserveAspectRatio: "none", "aria-label": "Mean accepted drafts over the run" },
      svg("polygon", { class: "wb-course-fill", points: `0,${height} ${steps(0)} ${width},${height}` }),
      svg("polyline", { class: "wb-course-replay", points: steps(0) }),
      seen && svg("polyline", { class: "wb-course-engine", points: steps(1) }),
      svg("line", { class: "wb-axis", x1: 0, x2: width, y1: height, y2: height }), this.marker);
    this.picture.addEventListener("click", (/** @type {MouseEvent} */ event) => {
      const box = this.picture.getBoundingClientRect();
      this.goTo(Math.min(Math.floor(((event.clientX - box.left) / box.width) * payload.total), this.kept - 1));
    });
    this.root = h("figure", { class: "wb-course" },
      h("figcaption", {}, h("b", {}, "Over the run"), " ", h("span", { class: "wb-muted" }, "drafts accepted a round")),
      h("div", { class: "wb-course-frame" }, h("span", { class: "wb-top-tick" }, (most / 1.05).toFixed(most < 2 ? 1 : 0)), this.picture),
      h("div", { class: "wb-course-ends" }, h("span", {}, "round 1"), h("span", {}, number(payload.total))));
  }

  draw(row) {
    const at = ((row + 0.5) / Math.max(this.payload.total, 1)) * this.width;
    this.marker.setAttribute("x1", String(at));
    this.marker.setAttribute("x2", String(at));
  }
}
