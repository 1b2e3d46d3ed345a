// @ts-check
// View: how beam search got there. A column is a step, a circle a hypothesis; the best stands on top. Hypotheses are
// buttons: Tab reaches each, the arrow keys go to what it grew from, what grew from it, and its neighbours.

import { element, shape } from "./dom.js";
import { beginning, kind, label, textOf } from "./pieces.js";
import { ScrollBox } from "./scroll.js";
import { pointed, t } from "./texts.js";

const WIDEST = 96; // CSS pixels between columns; fewer where all columns then fit
const NARROWEST = 68;
const EDGES = 8;
const ROW = 30;
const LETTER = 7.6; // CSS pixels, on average
const STATUSES = ["chosen", "finished", "kept", "pruned"];

export class BeamView {
  /** @param {import("./pane.js").Pane} pane */
  constructor(pane) {
    this.store = pane.store;
    this.nodes = pane.inspection.data.beam;
    const branches = this.nodes.some(({ status }) => status !== "chosen");
    this.detail = element("p", { class: "beam-detail", role: "status" }, branches ? t("beam-tree") : this.nodes.length ? t("beam-path") : "");
    this.drawing = new ScrollBox(t("view-beam"));
    this.toggle = element("button", { type: "button", onclick: () => this.store.set({ pruned: !this.store.state.pruned }) }, t("pruned-branches"));
    this.toggle.hidden = !branches;
    this.node = element("div", { class: "beam" }, this.legend(), this.detail, this.drawing.node);
    this.drawn = "";
    this.shown = -1;
    /** @type {Map<number, SVGElement>} */
    this.groups = new Map();
    /** @type {Map<number, {x: number, y: number}>} */
    this.places = new Map();
  }

  legend() {
    const entries = STATUSES.map((status) =>
      element("span", { class: `key ${status}` }, symbol(status), element("b", {}, t(`beam-${status}`)), ` ${t(`meaning-${status}`)}`),
    );
    return element("p", { class: "legend" }, ...entries, this.toggle);
  }

  /** @param {import("./pane.js").Seen} seen */
  update({ state }) {
    const step = this.fitting();
    if (this.drawn === `${state.pruned} ${step}`) return;
    this.drawn = `${state.pruned} ${step}`;
    this.toggle.setAttribute("aria-pressed", String(state.pruned));
    this.drawing.fill(this.nodes.length ? this.draw(state.pruned, step) : this.nothing());
  }

  /** Pixels between columns, so that all of them are seen at once if they can be. */
  fitting() {
    const columns = new Set(this.nodes.map(({ step }) => step)).size;
    const fit = Math.floor((this.drawing.box.clientWidth - EDGES) / (columns + 0.5));
    return fit < NARROWEST ? WIDEST : Math.min(fit, WIDEST);
  }

  nothing() {
    return element("p", { class: "empty" }, t("no-search"));
  }

  /** @param {boolean} withPruned @param {number} apart pixels between columns @returns {SVGElement} */
  draw(withPruned, apart) {
    const { places, columns, rows } = placed(this.nodes, withPruned, apart);
    this.places = places;
    this.groups.clear();
    const start = { x: 10 - apart / 2, y: 24 };
    const edges = shape("g", { class: "edges" });
    const hypotheses = shape("g", {}, shape("circle", { class: "start", cx: start.x, cy: start.y, r: 3 }));
    places.forEach((place, index) => {
      edges.append(edge(places.get(this.nodes[index].parent) ?? start, place, this.nodes[index].status, apart));
      hypotheses.append(this.hypothesis(index, place, Math.floor((apart - 20) / LETTER)));
    });
    const [left, width, height] = [start.x - 6, (columns + 0.5) * apart + EDGES, rows * ROW + 24];
    const name = t("beam-label", { steps: columns, hypotheses: rows });
    return shape("svg", { width, height, viewBox: `${left} 0 ${width} ${height}`, role: "group", "aria-label": name }, edges, hypotheses);
  }

  /** @param {number} index @param {{x: number, y: number}} place @param {number} letters that have room */
  hypothesis(index, { x, y }, letters) {
    const { piece, status, score, step } = this.nodes[index];
    const show = () => this.describe(index);
    const onkeydown = (/** @type {KeyboardEvent} */ event) => this.onKey(event, index);
    const name = t("beam-hypothesis", { step, token: label(piece), status: t(`beam-${status}`), score: pointed(score.toFixed(2)) });
    const described = { role: "button", tabindex: "0", "aria-label": name, "aria-pressed": String(index === this.shown) };
    const group = shape("g", { class: `hypothesis ${status} ${kind(piece)}`, transform: `translate(${x} ${y})`, ...described, onpointerenter: show, onfocus: show, onclick: show, onkeydown });
    this.groups.set(index, group);
    const text = shape("text", { x: 10, y: 4 }, shape("tspan", { class: "begins" }, beginning(piece)), shortened(label(piece), letters - beginning(piece).length));
    group.append(shape("circle", { r: status === "chosen" ? 5.5 : 4.5 }), text);
    return group;
  }

  /** Enter and Space choose a hypothesis, arrows go on to another. @param {KeyboardEvent} event @param {number} index */
  onKey(event, index) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const next = event.key === "Enter" || event.key === " " ? index : this.beside(event.key, index);
    if (next === null) return;
    event.preventDefault();
    event.stopPropagation(); // the page's own keys choose heads and pieces of other views
    this.describe(next);
    this.groups.get(next)?.focus();
  }

  /** The hypothesis that an arrow key leads to, the same one where there is no other; null for other keys. @param {string} key @param {number} index @returns {number | null} */
  beside(key, index) {
    const { parent, step } = this.nodes[index];
    const seen = [...this.places.keys()]; // by steps, the best first
    const column = seen.filter((other) => this.nodes[other].step === step);
    const rank = column.indexOf(index);
    const found = {
      ArrowLeft: () => parent,
      ArrowRight: () => seen.find((other) => this.nodes[other].parent === index),
      ArrowUp: () => column[rank - 1],
      ArrowDown: () => column[rank + 1],
    }[key];
    if (!found) return null;
    const next = found() ?? index;
    return this.places.has(next) ? next : index;
  }

  /** @param {number} index */
  describe(index) {
    this.groups.get(this.shown)?.setAttribute("aria-pressed", "false");
    this.groups.get(index)?.setAttribute("aria-pressed", "true");
    this.shown = index;
    const { log_prob, score, status } = this.nodes[index];
    const text = textOf(path(this.nodes, index));
    const numbers = t("beam-numbers", { status: t(`beam-${status}`), probability: pointed(log_prob.toFixed(2)), score: pointed(score.toFixed(3)) });
    this.detail.replaceChildren(element("bdi", {}, text), element("span", { class: "numbers" }, numbers));
  }
}

/**
 * Where each hypothesis stands: columns by step, rows by score.
 * @param {any[]} nodes
 * @param {boolean} withPruned
 * @param {number} apart pixels between columns
 */
function placed(nodes, withPruned, apart) {
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
    found.forEach((index, rank) => places.set(index, { x: step * apart + 10, y: rank * ROW + 24 }));
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

/** @param {{x: number, y: number}} from @param {{x: number, y: number}} to @param {string} status @param {number} apart */
function edge(from, to, status, apart) {
  const [bend, middle] = [to.x - apart * 0.45, to.x - apart * 0.22]; // straight below the parent's text, then across
  return shape("path", { class: status, d: `M${to.x} ${to.y} C${middle} ${to.y} ${middle} ${from.y} ${bend} ${from.y} L${from.x} ${from.y}` });
}

/** @param {string} status */
function symbol(status) {
  const picture = shape("svg", { width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" });
  picture.append(shape("g", { class: `hypothesis ${status}` }, shape("circle", { r: status === "chosen" ? 5.5 : 4.5 })));
  return picture;
}

/** @param {string} text @param {number} letters */
function shortened(text, letters) {
  return [...text].length > letters ? `${[...text].slice(0, letters - 1).join("")}…` : text;
}
