// @ts-check
// Figure 1 of the paper for one network, drawn: the boxes of its stacks, residual connections, N layers, and the arrow
// from encoder to decoder. Boxes are buttons that lead to the steps of a walk.

import { element, shape } from "./dom.js";
import { t } from "./texts.js";

/** @typedef {{layers: number, heads: number[], blocks: string[], norm: string, positions: string, causal: boolean, output: string}} StackFigure */
/** @typedef {Record<string, StackFigure>} Figure */
/** @typedef {{text: string[], style: string, holds: (id: string) => boolean}} FigureBox */
/** @typedef {{beside: FigureBox[][], boxes: FigureBox[]}} FigureBlock a sublayer with its norm and its residual connection; parallel sublayers stand beside each other, in rows */

const [WIDTH, GAP, ROOM] = [148, 15, 34]; // of a box; between boxes; beside a stack
const LINE = 15;
const SUBLAYERS = ["self_attn", "cross_attn", "ffn"];

/** The steps that belong to a sublayer itself, not to its norm or its residual connection. @param {string} place */
const within = (place) => (/** @type {string} */ id) => id.startsWith(`${place}.`) && !/\.(norm|norm-after|add)$/.test(id);
const among = (/** @type {string[]} */ ...ids) => (/** @type {string} */ id) => ids.includes(id);

/** @param {string} name of its text @param {string} style @param {(id: string) => boolean} holds @returns {FigureBox} */
const box = (name, style, holds) => ({ text: t(`figure-${name}`).split("\n"), style, holds });

/** Sublayers of a stack from bottom to top. @param {StackFigure} stack @returns {FigureBlock[]} */
function blocksOf({ blocks, norm, causal }) {
  if (norm === "parallel") return [parallelBlock(causal)];
  return blocks.map((place) => {
    const name = place === "self_attn" && causal ? "self_attn-masked" : place;
    const inputs = (/** @type {string} */ id) => (place === "self_attn" && id === "input") || (place === "cross_attn" && id === "memory");
    const own = box(name, place, (id) => within(place)(id) || (norm === "post" && inputs(id)) || (place === "cross_attn" && id === "memory"));
    if (norm === "post") return { boxes: [own, box("add-norm", "norm", among(`${place}.add`, `${place}.norm`))], beside: [] };
    const before = box("norm", "norm", (id) => id === `${place}.norm` || (place === "self_attn" && id === "input"));
    const after = norm === "sandwich" ? [box("norm", "norm", among(`${place}.norm-after`))] : [];
    return { boxes: [before, own, ...after, box("add", "add", among(`${place}.add`))], beside: [] };
  });
}

/** Attention and feed-forward network on the same input (GPT-NeoX). @param {boolean} causal @returns {FigureBlock} */
function parallelBlock(causal) {
  const norms = [box("norm", "norm", among("self_attn.norm", "input")), box("norm", "norm", among("ffn.norm"))];
  const own = [box(causal ? "attention-masked" : "attention", "self_attn", within("self_attn")), box("ffn-beside", "ffn", within("ffn"))];
  return { beside: [norms, own], boxes: [box("add", "add", among("ffn.add"))] };
}

/** @param {string} name @param {StackFigure} stack @param {boolean} alone @returns {FigureBox[]} */
function inputsOf(name, stack, alone) {
  const text = alone ? "embedding" : name === "encoder" ? "input-embedding" : "output-embedding";
  const added = stack.positions === "added";
  const positions = ["position-codes", "token-types", "embedded", "embedded-norm", "embedded-projection"];
  const embedding = box(text, "embedding", added ? among("embeddings") : among("embeddings", ...positions));
  return added ? [embedding, box("positions", "positions", among(...positions))] : [embedding];
}

/** @param {StackFigure} stack @returns {FigureBox[]} */
function outputsOf({ norm, output }) {
  const last = among("top", "output");
  const final = norm === "post" ? [] : [box("norm", "norm", last)];
  const head = (/** @type {string} */ id) => id === "logits" || id.startsWith("head.");
  if (output === "probabilities") return [...final, box("linear", "output", (id) => head(id) || (norm === "post" && last(id))), box("softmax", "output", among("probabilities"))];
  if (final.length) return final;
  return [box(output === "memory" ? "memory" : "states", "output", last)];
}

/** The figure as a column of boxes with their places. */
export class FigureView {
  /** @param {Figure} figure @param {(stack: string, box: FigureBox) => void} enter */
  constructor(figure, enter) {
    this.figure = figure;
    this.enter = enter;
    /** @type {{stack: string, box: FigureBox, node: Element}[]} */
    this.buttons = [];
    const names = Object.keys(figure);
    const column = WIDTH + 2 * ROOM;
    this.stacks = names.map((name, at) => new StackDrawing(this, name, figure[name], at * column, names.length === 1));
    const height = Math.max(...this.stacks.map((stack) => stack.height)) + 8;
    for (const stack of this.stacks) stack.draw(height);
    this.width = names.length * column;
    this.where = element("p", { class: "figure-where" });
    const drawing = shape("svg", { viewBox: `0 0 ${this.width} ${height}`, role: "group", "aria-label": t("figure") }, ...this.stacks.map((stack) => stack.node), this.crossing());
    drawing.style.maxWidth = `${this.width * 1.05}px`;
    this.node = element("div", { class: "figure" }, drawing, this.where);
  }

  /** The arrow from the encoder's output to the decoder's cross-attention. */
  crossing() {
    const [encoder, decoder] = this.stacks;
    const target = decoder?.middles.get("cross_attn");
    if (target === undefined) return shape("g", {});
    const [from, to] = [encoder.left + ROOM + WIDTH / 2, decoder.left + ROOM];
    const turn = decoder.left + 2;
    const top = Math.max(6, encoder.top - 10);
    return shape("g", { class: "crossing" }, shape("path", { d: `M ${from} ${encoder.top} V ${top} H ${turn} V ${target} H ${to - 2}` }), arrowHead(to, target, "right"), shape("text", { x: turn - 5, y: (top + target) / 2, class: "aside", transform: `rotate(-90 ${turn - 5} ${(top + target) / 2})` }, t("figure-crossing")));
  }

  /** Show where the walk is. @param {string} stack @param {string} id of the step @param {number} layer @param {string} where in words */
  show(stack, id, layer, where) {
    for (const { stack: of, box, node } of this.buttons) {
      const here = of === stack && box.holds(id);
      if (here) node.setAttribute("aria-current", "step");
      else node.removeAttribute("aria-current");
    }
    for (const one of this.stacks) one.showLayer(one.name === stack ? layer : null);
    this.where.textContent = where;
  }
}

class StackDrawing {
  /** @param {FigureView} view @param {string} name @param {StackFigure} stack @param {number} left @param {boolean} alone */
  constructor(view, name, stack, left, alone) {
    this.view = view;
    this.name = name;
    this.stack = stack;
    this.left = left;
    this.node = shape("g", { role: "group", "aria-label": t(`stack-${name}`) });
    this.inputs = inputsOf(name, stack, alone);
    this.blocks = blocksOf(stack);
    this.outputs = outputsOf(stack);
    const all = [...this.inputs, ...this.blocks.flatMap(({ boxes }) => boxes), ...this.outputs];
    const rows = this.blocks.flatMap(({ beside }) => beside.map(([one]) => one));
    all.push(...rows);
    const more = (this.blocks.length + 3) * 8 + (rows.length ? 16 : 0);
    this.height = all.reduce((sum, one) => sum + tall(one) + GAP, 0) + more + 44;
    this.top = 0;
    /** @type {Map<string, number>} middle of the box of a sublayer */
    this.middles = new Map();
    this.layers = shape("text", { class: "times" });
  }

  /** From the bottom up. @param {number} height of the whole figure */
  draw(height) {
    const middle = this.left + ROOM + WIDTH / 2;
    let y = height - 6;
    const written = this.name === "decoder" ? "figure-read" : this.stack.output === "memory" ? "figure-source" : "figure-tokens";
    this.node.append(shape("text", { x: middle, y, class: "aside", "text-anchor": "middle" }, t(written)));
    y -= 16;
    for (const one of this.inputs) y = this.stacked(one, y);
    const bottom = y - 4;
    y -= 8;
    for (const block of this.blocks) y = this.blockUp(block, y);
    this.frame(bottom, y - 6);
    y -= 8;
    for (const one of this.outputs) y = this.stacked(one, y);
    this.top = y;
    if (this.stack.output !== "memory") this.node.append(shape("path", { class: "wire", d: `M ${middle} ${y} V ${y - 12}` }), arrowHead(middle, y - 12, "up"));
  }

  /** A box with the arrow into it. @param {FigureBox} box @param {number} y of what is below it @returns {number} its own upper edge */
  stacked(box, y, x = this.left + ROOM, width = WIDTH) {
    const middle = x + width / 2;
    const [height, upper] = [tall(box), y - GAP - tall(box)];
    this.node.append(shape("path", { class: "wire", d: `M ${middle} ${y} V ${upper + height + 1}` }), arrowHead(middle, upper + height, "up"), this.button(box, upper, height, x, width));
    return upper;
  }

  /** Boxes side by side, all on the same input; their outputs meet again. @param {FigureBox[][]} rows @param {number} y */
  besideUp(rows, y) {
    const [middle, width] = [this.left + ROOM + WIDTH / 2, (WIDTH - 8) / 2];
    const lefts = [this.left + ROOM, this.left + ROOM + width + 8];
    let upper = y - 8;
    this.node.append(shape("path", { class: "wire", d: `M ${middle} ${y} V ${upper} M ${lefts[0] + width / 2} ${upper} H ${lefts[1] + width / 2}` }));
    for (const row of rows) upper = row.map((box, at) => this.stacked(box, upper, lefts[at], width))[0];
    const joined = lefts.map((x) => `M ${x + width / 2} ${upper} V ${upper - 8} H ${middle}`).join(" ");
    this.node.append(shape("path", { class: "wire", d: joined }));
    return upper - 8;
  }

  /** A sublayer with the residual connection around it. @param {FigureBlock} block @param {number} y */
  blockUp({ beside, boxes }, y) {
    const side = this.name === "decoder" ? 1 : -1;
    const middle = this.left + ROOM + WIDTH / 2;
    const edge = middle + (side * WIDTH) / 2;
    const start = y - 5;
    let upper = beside.length ? this.besideUp(beside, y) : y;
    for (const box of boxes) {
      upper = this.stacked(box, upper);
      if (SUBLAYERS.includes(box.style)) this.middles.set(box.style, upper + tall(box) / 2);
    }
    const end = upper + tall(boxes[boxes.length - 1]) / 2;
    const out = edge + side * 13;
    this.node.append(shape("path", { class: "wire", d: `M ${middle} ${start} H ${out} V ${end} H ${edge + side * 1}` }), arrowHead(edge, end, side > 0 ? "left" : "right"));
    return upper;
  }

  /** The frame around the layers. @param {number} bottom @param {number} top */
  frame(bottom, top) {
    const [x, width] = [this.left + ROOM - 19, WIDTH + 38];
    this.node.prepend(shape("rect", { class: "layers", x, y: top, width, height: bottom - top, rx: 8 }));
    const outside = this.name === "decoder" ? x + width + 4 : x - 4;
    const turn = `rotate(-90 ${outside} ${(bottom + top) / 2})`;
    for (const [name, value] of Object.entries({ x: outside, y: (bottom + top) / 2 + (this.name === "decoder" ? 10 : 0), "text-anchor": "middle", transform: turn })) this.layers.setAttribute(name, String(value));
    this.node.append(this.layers);
  }

  /** @param {number | null} layer */
  showLayer(layer) {
    this.layers.textContent = layer === null ? `${this.stack.layers}×` : t("figure-layers", { layers: this.stack.layers, layer });
    this.layers.classList.toggle("here", layer !== null);
  }

  /** @param {FigureBox} box @param {number} y @param {number} height @param {number} x @param {number} width */
  button(box, y, height, x, width) {
    const lines = box.text.map((text, at) => shape("text", { x: x + width / 2, y: y + height / 2 + 4 + (at - (box.text.length - 1) / 2) * LINE, "text-anchor": "middle" }, text));
    const go = () => this.view.enter(this.name, box);
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      go();
    };
    const node = shape("g", { class: `box ${box.style}`, role: "button", tabindex: "0", "aria-label": t("figure-box", { stack: t(`stack-${this.name}`), box: box.text.join(" ").replace("- ", "-") }), onclick: go, onkeydown: onKey }, shape("rect", { x, y, width, height, rx: box.style === "add" ? height / 2 : 5 }), ...lines);
    this.view.buttons.push({ stack: this.name, box, node });
    return node;
  }
}

/** @param {FigureBox} box */
function tall(box) {
  return box.text.length > 1 ? 40 : 25;
}

/** @param {number} x of its point @param {number} y @param {"up" | "left" | "right"} direction */
function arrowHead(x, y, direction) {
  const d = { up: `M ${x - 4} ${y + 6} L ${x} ${y} L ${x + 4} ${y + 6} Z`, right: `M ${x - 6} ${y - 4} L ${x} ${y} L ${x - 6} ${y + 4} Z`, left: `M ${x + 6} ${y - 4} L ${x} ${y} L ${x + 6} ${y + 4} Z` }[direction];
  return shape("path", { class: "arrow-head", d });
}
