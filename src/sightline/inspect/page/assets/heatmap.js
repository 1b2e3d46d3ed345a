// @ts-check
// Numbers as coloured cells on a canvas, with their rows and columns named where there is room.

import { colour, css, fitted, pixels, scale } from "./colours.js";
import { element } from "./dom.js";
import { kind, label } from "./pieces.js";

/** @typedef {{rows: number, columns: number, values: Float32Array}} Numbers */
/** @typedef {{row: number, column: number}} Cell -1 is the label of a column or row */

const LARGEST = 34; // CSS pixels of a cell
const SMALLEST = 3;
const LABELLED = 12; // cells from this size on have room for a label
const MOST_LABELLED = 60; // columns; with fewer the cells stay large enough for labels, and the picture scrolls
const LONGEST_LABEL = 120;
const FONT = "system-ui, sans-serif";

export class Heatmap {
  /**
   * @param {string[]} rows pieces
   * @param {string[]} columns pieces, or nothing where columns have no names
   * @param {{point: (cell: Cell | null) => void, click: (cell: Cell) => void}} reader what to do with the pointer
   */
  constructor(rows, columns, reader) {
    this.rows = rows;
    this.columns = columns;
    this.canvas = element("canvas", { role: "img", tabindex: "0" });
    this.node = element("div", { class: "scroll heatmap" }, this.canvas);
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => reader.point(event.pointerType === "touch" ? null : this.cellAt(event)));
    this.canvas.addEventListener("pointerleave", () => reader.point(null));
    this.canvas.addEventListener("click", (/** @type {PointerEvent} */ event) => {
      const cell = this.cellAt(event);
      if (cell) reader.click(cell);
    });
    /** @type {{numbers: Numbers, theme: string, image: HTMLCanvasElement} | null} */
    this.kept = null;
    this.left = this.top = 0; // room for labels, CSS pixels
    this.size = this.height = 1; // of a cell
  }

  /**
   * @param {Numbers} numbers
   * @param {(value: number) => number} place of a value on the scale, 0 to 1
   * @param {string[]} colours of the scale
   * @param {import("./state.js").Mark | null} mark the row ("q") or column ("k") to point out
   * @param {string} theme
   */
  draw(numbers, place, colours, mark, theme) {
    if (this.kept?.numbers !== numbers || this.kept.theme !== theme) {
      this.kept = { numbers, theme, image: pixels(numbers, place, scale(colours)) };
    }
    this.layOut(numbers);
    const [width, height] = [this.size * numbers.columns, this.height * numbers.rows];
    const context = fitted(this.canvas, this.left + width + 1, this.top + height + 1);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.kept.image, this.left, this.top, width, height);
    if (Math.min(this.size, this.height) >= LABELLED) this.drawGrid(context, numbers);
    this.drawLabels(context, mark);
    if (mark) this.drawMark(context, mark, numbers);
  }

  /** @param {Numbers} numbers */
  layOut({ rows, columns }) {
    const width = this.node.clientWidth;
    const named = this.columns.length > 0 && (this.columns.length <= MOST_LABELLED || width / columns >= LABELLED * 1.2);
    const least = named ? LABELLED : this.columns.length > 0 ? SMALLEST : 1;
    const showRows = named || (this.columns.length === 0 && rows <= MOST_LABELLED);
    this.left = showRows ? room(this.rows) : 8;
    this.top = named ? room(this.columns) : 8;
    const fit = Math.floor(((width - this.left - 2) / columns) * 2) / 2;
    this.size = Math.min(LARGEST, Math.max(least, fit));
    this.height = this.columns.length > 0 ? this.size : Math.max(SMALLEST, showRows ? 20 : SMALLEST);
  }

  /** Lines between the cells, as on squared paper. @param {CanvasRenderingContext2D} context @param {Numbers} numbers */
  drawGrid(context, { rows, columns }) {
    context.strokeStyle = css(colour("--surface"));
    context.lineWidth = 1;
    context.beginPath();
    for (let k = 0; k <= columns; k++) line(context, this.left + k * this.size, this.top, 0, this.height * rows);
    for (let q = 0; q <= rows; q++) line(context, this.left, this.top + q * this.height, this.size * columns, 0);
    context.stroke();
  }

  /** @param {CanvasRenderingContext2D} context @param {import("./state.js").Mark | null} mark */
  drawLabels(context, mark) {
    context.textBaseline = "middle";
    context.font = `${Math.min(13, this.height - 1)}px ${FONT}`;
    const chosen = (/** @type {string} */ side, /** @type {number} */ index) => mark?.side === side && mark.index === index;
    if (this.left > 8) {
      context.textAlign = "right";
      this.rows.forEach((piece, q) => this.write(context, piece, chosen("q", q), this.left - 6, this.top + (q + 0.5) * this.height, 0));
    }
    if (this.top > 8) {
      context.textAlign = "left";
      this.columns.forEach((piece, k) => this.write(context, piece, chosen("k", k), this.left + (k + 0.5) * this.size, this.top - 6, -Math.PI / 2));
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {string} piece
   * @param {boolean} chosen
   * @param {number} x
   * @param {number} y
   * @param {number} angle
   */
  write(context, piece, chosen, x, y, angle) {
    context.save();
    context.translate(x, y);
    context.rotate(angle);
    context.fillStyle = css(colour(chosen ? "--accent" : kind(piece) === "start" ? "--ink" : "--grey"));
    context.fillText(label(piece), 0, 0, (angle ? this.top : this.left) - 8);
    context.restore();
  }

  /** @param {CanvasRenderingContext2D} context @param {import("./state.js").Mark} mark @param {Numbers} numbers */
  drawMark(context, { side, index }, { rows, columns }) {
    const [x, y, width, height] = side === "q" ? [0, index * this.height, columns * this.size, this.height] : [index * this.size, 0, this.size, rows * this.height];
    context.strokeStyle = css(colour("--accent"));
    context.lineWidth = 1.5;
    context.strokeRect(this.left + x, this.top + y, width, height);
  }

  /** @param {PointerEvent} event @returns {Cell | null} */
  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.size);
    const row = Math.floor((event.clientY - box.top - this.top) / this.height);
    const inside = row < (this.kept?.numbers.rows ?? 0) && column < (this.kept?.numbers.columns ?? 0);
    return inside && (row >= 0 || column >= 0) ? { row: Math.max(-1, row), column: Math.max(-1, column) } : null;
  }
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} dx @param {number} dy */
function line(context, x, y, dx, dy) {
  context.moveTo(x, y);
  context.lineTo(x + dx, y + dy);
}

/** Pixels that the longest of some labels needs. @param {string[]} pieces */
function room(pieces) {
  const context = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  context.font = `13px ${FONT}`;
  return Math.min(LONGEST_LABEL, 14 + Math.max(...pieces.map((piece) => context.measureText(label(piece)).width)));
}
