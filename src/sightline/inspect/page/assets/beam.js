// @ts-check
// View: how beam search got there. A column is a step, a circle a hypothesis; the best stands on top.

import { element, shape } from "./dom.js";
import { kind, label, textOf } from "./pieces.js";

const STEP = 96; // CSS pixels between columns
const ROW = 30;
const MEANING = {
  chosen: "on the path of the translation",
  finished: "ended, but another was better",
  kept: "kept for the next step",
  pruned: "given up",
};

export class BeamView {
  /** @param {import("./pane.js").Pane} pane */
  constructor(pane) {
    this.store = pane.store;
    this.nodes = pane.inspection.data.beam;
    this.detail = element("p", { class: "beam-detail", role: "status" }, "Point at a piece to read the hypothesis it ends.");
    this.drawing = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "beam" });
    this.toggle = element("button", { type: "button", onclick: () => this.store.set({ pruned: !this.store.state.pruned }) }, "pruned branches");
    this.node = element("div", { class: "beam" }, this.legend(), this.detail, this.drawing);
    /** @type {boolean | null} */
    this.pruned = null;
  }

  legend() {
    const entries = Object.entries(MEANING).map(([status, text]) =>
      element("span", { class: `key ${status}` }, symbol(status), element("b", {}, status), ` ${text}`),
    );
    return element("p", { class: "legend" }, ...entries, this.toggle);
  }

  /** @param {import("./pane.js").Seen} seen */
  update({ state }) {
    if (this.pruned === state.pruned) return;
    this.pruned = state.pruned;
    this.toggle.setAttribute("aria-pressed", String(state.pruned));
    this.drawing.replaceChildren(this.nodes.length ? this.draw(state.pruned) : this.nothing());
  }

  nothing() {
    return element("p", { class: "empty" }, "No search ran: the translation was given, or found without a beam.");
  }

  /** @param {boolean} withPruned @returns {SVGElement} */
  draw(withPruned) {
    const { places, columns, rows } = placed(this.nodes, withPruned);
    const start = { x: 10 - STEP / 2, y: 24 };
    const edges = shape("g", { class: "edges" });
    const hypotheses = shape("g", {}, shape("circle", { class: "start", cx: start.x, cy: start.y, r: 3 }));
    places.forEach((place, index) => {
      edges.append(edge(places.get(this.nodes[index].parent) ?? start, place, this.nodes[index].status));
      hypotheses.append(this.hypothesis(index, place));
    });
    const [left, width, height] = [start.x - 6, columns * STEP + 60, rows * ROW + 24];
    const label = `Beam search: ${columns} steps, at most ${rows} hypotheses a step`;
    return shape("svg", { width, height, viewBox: `${left} 0 ${width} ${height}`, role: "group", "aria-label": label }, edges, hypotheses);
  }

  /** @param {number} index @param {{x: number, y: number}} place */
  hypothesis(index, { x, y }) {
    const { piece, status, score } = this.nodes[index];
    const show = () => this.describe(index);
    const name = `${label(piece)}, ${status}, score ${score.toFixed(2)}`;
    const group = shape("g", { class: `hypothesis ${status} ${kind(piece)}`, transform: `translate(${x} ${y})`, "aria-label": name, role: "img", onpointerenter: show, onclick: show });
    const text = shape("text", { x: 10, y: 4 }, shortened(label(piece)));
    group.append(shape("circle", { r: status === "chosen" ? 5.5 : 4.5 }), text);
    return group;
  }

  /** @param {number} index */
  describe(index) {
    const { log_prob, score, status } = this.nodes[index];
    const text = textOf(path(this.nodes, index));
    const numbers = `${status}, log-probability ${log_prob.toFixed(2)}, score ${score.toFixed(3)}`;
    this.detail.replaceChildren(element("bdi", {}, text), element("span", { class: "numbers" }, numbers));
  }
}

/**
 * Where each hypothesis stands: columns by step, rows by score.
 * @param {any[]} nodes
 * @param {boolean} withPruned
 */
function placed(nodes, withPruned) {
  /** @type {Map<number, number[]>} */
  const steps = new Map();
  nodes.forEach(({ step, status }, index) => {
    if (withPruned || status !== "pruned") steps.set(step, [...(steps.get(step) ?? []), index]);
  });
  /** @type {Map<number, {x: number, y: number}>} */
  const places = new Map();
  let rows = 0;
  for (const [step, found] of steps) {
    found.sort((one, other) => nodes[other].score - nodes[one].score);
    found.forEach((index, rank) => places.set(index, { x: step * STEP + 10, y: rank * ROW + 24 }));
    rows = Math.max(rows, found.length);
  }
  return { places, columns: steps.size, rows };
}

/** @param {any[]} nodes @param {number} index @returns {string[]} */
function path(nodes, index) {
  const pieces = [];
  for (let at = index; at >= 0; at = nodes[at].parent) pieces.unshift(nodes[at].piece);
  return pieces;
}

/** @param {{x: number, y: number}} from @param {{x: number, y: number}} to @param {string} status */
function edge(from, to, status) {
  const [bend, middle] = [to.x - STEP * 0.45, to.x - STEP * 0.22]; // straight below the parent's text, then across
  return shape("path", { class: status, d: `M${to.x} ${to.y} C${middle} ${to.y} ${middle} ${from.y} ${bend} ${from.y} L${from.x} ${from.y}` });
}

/** @param {string} status */
function symbol(status) {
  const picture = shape("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" });
  picture.append(shape("g", { class: `hypothesis ${status}` }, shape("circle", { r: status === "chosen" ? 5.5 : 4.5 })));
  return picture;
}

/** @param {string} text */
function shortened(text) {
  return [...text].length > 9 ? `${[...text].slice(0, 8).join("")}…` : text;
}
