// @ts-check
// Two columns of texts and lines between them: keys on the left, queries on the right.

import { colour, css, fitted } from "./colours.js";
import { element } from "./dom.js";
import { greatest, weightAt } from "./inspection.js";
import { active, sameMark } from "./state.js";

/** @typedef {{text: string, kind: string}} Item */
/** @typedef {import("./inspection.js").Weights} Weights */
/** @typedef {import("./state.js").Mark} Mark */

const FAINTEST = 0.03; // lines thinner than this are not drawn until their piece is asked for
const MOST_LINES = 6000;
const LINES_OF_A_PIECE = 400;

export class Columns {
  /**
   * @param {{keys: Item[], queries: Item[], keysTitle: string, queriesTitle: string}} texts
   * @param {import("./state.js").Store} store
   */
  constructor(texts, store) {
    this.store = store;
    this.row = texts.keys.length + texts.queries.length > 120 ? 17 : 28; // height of a line of text, CSS pixels
    this.buttons = { k: this.column(texts.keys, "k"), q: this.column(texts.queries, "q") };
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.middle = element("div", { class: "columns-lines" }, this.canvas);
    this.node = element(
      "div",
      { class: this.row < 20 ? "columns dense" : "columns" },
      side(texts.keysTitle, this.buttons.k, "k"),
      this.middle,
      side(texts.queriesTitle, this.buttons.q, "q"),
    );
    this.node.addEventListener("pointerover", (/** @type {PointerEvent} */ event) => this.hover(event));
    this.node.addEventListener("pointerleave", () => store.set({ hover: null }));
    this.node.addEventListener("click", (/** @type {MouseEvent} */ event) => this.fix(event));
    this.height = Math.max(texts.keys.length, texts.queries.length) * this.row;
    /** @type {{weights: Weights, theme: string, width: number, image: HTMLCanvasElement} | null} */
    this.resting = null;
    /** @type {Mark | null} */
    this.shown = null;
  }

  /** @param {Item[]} items @param {"q" | "k"} sideName @returns {HTMLElement[]} */
  column(items, sideName) {
    return items.map(({ text, kind }, index) =>
      element(
        "button",
        { type: "button", class: `piece ${kind}`, dir: "auto", "data-mark": sideName + index, "aria-pressed": "false" },
        text,
      ),
    );
  }

  /** @param {Event} event @returns {Mark | null} */
  markOf(event) {
    const target = /** @type {HTMLElement} */ (event.target).closest("[data-mark]");
    const name = target?.getAttribute("data-mark");
    return name ? { side: name[0] === "q" ? "q" : "k", index: Number(name.slice(1)) } : null;
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const mark = event.pointerType === "touch" ? null : this.markOf(event);
    if (!sameMark(mark, this.store.state.hover)) this.store.set({ hover: mark });
  }

  /** @param {MouseEvent} event */
  fix(event) {
    const mark = this.markOf(event);
    if (mark) this.store.set({ fix: sameMark(mark, this.store.state.fix) ? null : mark });
  }

  /**
   * @param {Weights} weights
   * @param {import("./state.js").State} state
   * @param {string} theme
   */
  update(weights, state, theme) {
    const width = this.middle.clientWidth;
    if (!width) return; // hidden, or the tokens leave no room
    if (this.resting?.weights !== weights || this.resting.theme !== theme || this.resting.width !== width) {
      this.resting = { weights, theme, width, image: this.allLines(weights, width) };
    }
    const mark = active(state);
    const context = fitted(this.canvas, width, this.height);
    context.globalAlpha = mark ? 0.22 : 1;
    context.drawImage(this.resting.image, 0, 0, width, this.height);
    context.globalAlpha = 1;
    if (mark) this.linesOf(mark, weights, context, width);
    this.tint(mark, weights);
    this.press(state.fix);
  }

  /** @param {Weights} weights @param {number} width @returns {HTMLCanvasElement} */
  allLines(weights, width) {
    const image = document.createElement("canvas");
    const context = fitted(image, width, this.height);
    const ink = colour("--accent");
    const faintest = Math.max(FAINTEST, threshold(weights.values, MOST_LINES));
    for (let q = 0; q < weights.rows; q++) {
      for (let k = 0; k < weights.columns; k++) {
        const weight = weights.values[q * weights.columns + k];
        if (weight >= faintest) this.line(context, k, q, weight, css(ink, 0.08 + 0.72 * weight), width);
      }
    }
    return image;
  }

  /** @param {Mark} mark @param {Weights} weights @param {CanvasRenderingContext2D} context @param {number} width */
  linesOf(mark, weights, context, width) {
    const ink = colour("--accent");
    for (const { index, weight } of greatest(weights, mark, LINES_OF_A_PIECE)) {
      if (weight < 0.002) break;
      const [k, q] = mark.side === "q" ? [index, mark.index] : [mark.index, index];
      this.line(context, k, q, weight, css(ink, 0.15 + 0.85 * weight), width);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} k
   * @param {number} q
   * @param {number} weight
   * @param {string} style
   * @param {number} width
   */
  line(context, k, q, weight, style, width) {
    const [from, to] = [(k + 0.5) * this.row, (q + 0.5) * this.row];
    context.beginPath();
    context.moveTo(0, from);
    context.bezierCurveTo(width * 0.4, from, width * 0.6, to, width, to);
    context.strokeStyle = style;
    context.lineWidth = 0.5 + 3 * weight;
    context.stroke();
  }

  /** Colour the texts by their weight for the active piece. @param {Mark | null} mark @param {Weights} weights */
  tint(mark, weights) {
    if (this.shown) {
      for (const button of [...this.buttons.k, ...this.buttons.q]) {
        button.style.removeProperty("--weight");
        button.classList.remove("active");
      }
    }
    this.shown = mark;
    if (!mark) return;
    this.buttons[mark.side][mark.index]?.classList.add("active");
    this.buttons[mark.side === "q" ? "k" : "q"].forEach((button, index) =>
      button.style.setProperty("--weight", `${Math.round(100 * weightAt(weights, mark, index))}%`),
    );
  }

  /** @param {Mark | null} fixed */
  press(fixed) {
    this.node.querySelector('[aria-pressed="true"]')?.setAttribute("aria-pressed", "false");
    if (fixed) this.buttons[fixed.side][fixed.index]?.setAttribute("aria-pressed", "true");
  }
}

/** @param {string} title @param {HTMLElement[]} buttons @param {string} name */
function side(title, buttons, name) {
  const list = element("div", { class: "columns-texts", role: "group", "aria-label": title }, ...buttons);
  return element("div", { class: `columns-side ${name}` }, element("h3", {}, title), list);
}

/**
 * The weight that `count` of all reach.
 * @param {Float32Array} values
 * @param {number} count
 */
function threshold(values, count) {
  return values.length <= count ? 0 : values.slice().sort()[values.length - count];
}
