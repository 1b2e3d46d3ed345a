// @ts-check
// Numbers as coloured cells on a canvas, with their rows and columns named. What is larger than its box scrolls; the
// canvas itself stays in the box and shows the part that was scrolled to, so that the names are always in sight.

import { colour, css, fitted, hatching, pixels, scale } from "./colours.js";
import { element } from "./dom.js";
import { kind, label } from "./pieces.js";
import { ScrollBox } from "./scroll.js";
import { t } from "./texts.js";

/** @typedef {{rows: number, columns: number, values: Float32Array}} Numbers */
/** @typedef {{row: number, column: number}} Cell -1 is the label of a column or row */
/** @typedef {import("./state.js").Mark} Mark */

const LARGEST = 34; // CSS pixels of a cell
const LABELLED = 12; // cells from this size on have room for a label
const UNNAMED_HEIGHT = 20; // of a row whose columns have no names
const LONGEST_LABEL = 120;
const FONT = "system-ui, sans-serif";

export class Heatmap {
  /**
   * @param {string[]} rows pieces
   * @param {string[]} columns pieces, or nothing where columns have no names
   * @param {{point: (cell: Cell | null) => void, click: (cell: Cell) => void, choose?: (cell: Cell) => void}} reader what to do with the pointer; `choose` lets the keyboard move from cell to cell
   */
  constructor(rows, columns, reader) {
    this.rows = rows;
    this.columns = columns;
    this.canvas = element("canvas", { role: "img", tabindex: "0" });
    this.sheet = element("div", {}, this.canvas); // as large as all cells
    this.scroll = new ScrollBox(t("view-matrix"), this.sheet);
    this.scroll.box.addEventListener("scroll", () => this.redraw());
    this.node = element("div", { class: "heatmap" }, this.scroll.node);
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => reader.point(event.pointerType === "touch" ? null : this.cellAt(event)));
    this.canvas.addEventListener("pointerleave", () => reader.point(null));
    this.canvas.addEventListener("click", (/** @type {PointerEvent} */ event) => {
      const cell = this.cellAt(event);
      if (cell) reader.click(cell);
    });
    const { choose } = reader;
    if (choose) this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.onKey(event, choose));
    /** @type {Cell | null} */
    this.cell = null;
    /** @type {[number, number] | null} */
    this.band = null;
    /** @type {{numbers: Numbers, theme: string, image: HTMLCanvasElement, behind: CanvasPattern | string | null} | null} */
    this.kept = null;
    /** @type {Mark | null} */
    this.mark = null;
    this.left = this.top = 0; // room for labels, CSS pixels
    this.size = this.height = 1; // of a cell
  }

  /**
   * @param {Numbers} numbers
   * @param {(value: number) => number} place of a value on the scale, 0 to 1; NaN is hatched
   * @param {string[]} colours of the scale
   * @param {Mark | null} mark the row ("q") or column ("k") to point out
   * @param {string} theme
   * @param {Cell | null} [cell] that is selected
   * @param {[number, number] | null} [band] first and number of columns to outline
   */
  draw(numbers, place, colours, mark, theme, cell = null, band = null) {
    if (this.kept?.numbers !== numbers || this.kept.theme !== theme) {
      const hatched = numbers.values.some((value) => Number.isNaN(place(value)));
      this.kept = { numbers, theme, image: pixels(numbers, place, scale(colours)), behind: hatched ? hatching() : null };
    }
    this.layOut(numbers);
    if (mark && (mark.side !== this.mark?.side || mark.index !== this.mark.index)) this.reveal(mark);
    this.mark = mark;
    if (cell && (cell.row !== this.cell?.row || cell.column !== this.cell.column)) this.reveal({ side: "k", index: cell.column });
    [this.cell, this.band] = [cell, band];
    this.redraw();
  }

  /** Sizes of cells and labels, and of the sheet. @param {Numbers} numbers */
  layOut({ rows, columns }) {
    const width = this.scroll.box.clientWidth;
    const named = this.columns.length > 0;
    const longest = Math.min(LONGEST_LABEL, width * 0.3);
    this.left = room(this.rows, longest);
    this.top = named ? room(this.columns, longest) : 8;
    const fit = Math.floor(((width - this.left - 2) / columns) * 2) / 2;
    this.size = Math.min(LARGEST, Math.max(named ? LABELLED : 1, fit));
    this.height = named ? this.size : UNNAMED_HEIGHT;
    this.sheet.style.width = `${this.left + this.size * columns + 1}px`;
    this.sheet.style.height = `${this.top + this.height * rows + 1}px`;
    this.scroll.update();
  }

  /** Scroll to a row or column that is out of sight. @param {Mark} mark */
  reveal({ side, index }) {
    const { box } = this.scroll;
    const scrolled = (/** @type {number} */ now, /** @type {number} */ cell, /** @type {number} */ seen) => Math.max((index + 1) * cell - seen, Math.min(index * cell, now));
    if (side === "q") box.scrollTop = scrolled(box.scrollTop, this.height, box.clientHeight - this.top - 2);
    else box.scrollLeft = scrolled(box.scrollLeft, this.size, box.clientWidth - this.left - 2);
  }

  /** The part that is scrolled to. */
  redraw() {
    if (!this.kept) return;
    const { box } = this.scroll;
    const { numbers, image, behind } = this.kept;
    const [width, height] = [Math.min(box.clientWidth, this.sheet.offsetWidth), Math.min(box.clientHeight, this.sheet.offsetHeight)];
    const context = fitted(this.canvas, width, height);
    const [x, y] = [this.left - box.scrollLeft, this.top - box.scrollTop]; // of the first cell
    clipped(context, this.left, this.top, width, height, () => {
      if (behind) {
        context.fillStyle = behind;
        context.fillRect(x, y, this.size * numbers.columns, this.height * numbers.rows);
      }
      context.imageSmoothingEnabled = false;
      context.drawImage(image, x, y, this.size * numbers.columns, this.height * numbers.rows);
      if (Math.min(this.size, this.height) >= LABELLED) this.drawGrid(context, numbers, x, y);
      if (this.mark) this.drawMark(context, this.mark, numbers, x, y);
      if (this.band) this.outline(context, x + this.band[0] * this.size, y, this.band[1] * this.size, numbers.rows * this.height, 1.5);
      if (this.cell) this.outline(context, x + this.cell.column * this.size, y + this.cell.row * this.height, this.size, this.height, 3);
    });
    context.textBaseline = "middle";
    context.font = `${Math.min(13, this.height - 1)}px ${FONT}`;
    clipped(context, 0, this.top, width, height, () => this.drawRows(context, y, height));
    clipped(context, this.left, 0, width, height, () => this.drawColumns(context, x, width));
  }

  /** Lines between the cells, as on squared paper. @param {CanvasRenderingContext2D} context @param {Numbers} numbers @param {number} x @param {number} y */
  drawGrid(context, { rows, columns }, x, y) {
    context.strokeStyle = css(colour("--surface"));
    context.lineWidth = 1;
    context.beginPath();
    for (let k = 0; k <= columns; k++) line(context, x + k * this.size, y, 0, this.height * rows);
    for (let q = 0; q <= rows; q++) line(context, x, y + q * this.height, this.size * columns, 0);
    context.stroke();
  }

  /** @param {CanvasRenderingContext2D} context @param {number} y of the first @param {number} height that is seen */
  drawRows(context, y, height) {
    context.textAlign = "right";
    this.rows.forEach((piece, q) => {
      const middle = y + (q + 0.5) * this.height;
      if (middle > 0 && middle < height + this.height) this.write(context, piece, this.isMarked("q", q), this.left - 6, middle, 0);
    });
  }

  /** @param {CanvasRenderingContext2D} context @param {number} x of the first @param {number} width that is seen */
  drawColumns(context, x, width) {
    context.textAlign = "left";
    this.columns.forEach((piece, k) => {
      const middle = x + (k + 0.5) * this.size;
      if (middle > 0 && middle < width + this.size) this.write(context, piece, this.isMarked("k", k), middle, this.top - 6, -Math.PI / 2);
    });
  }

  /** @param {string} side @param {number} index */
  isMarked(side, index) {
    return this.mark?.side === side && this.mark.index === index;
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
    context.fillText(withinWidth(context, label(piece), (angle ? this.top : this.left) - 8), 0, 0);
    context.restore();
  }

  /** @param {CanvasRenderingContext2D} context @param {Mark} mark @param {Numbers} numbers @param {number} x @param {number} y */
  drawMark(context, { side, index }, { rows, columns }, x, y) {
    const [dx, dy, width, height] = side === "q" ? [0, index * this.height, columns * this.size, this.height] : [index * this.size, 0, this.size, rows * this.height];
    this.outline(context, x + dx, y + dy, width, height, 1.5);
  }

  /** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} width @param {number} height @param {number} thick */
  outline(context, x, y, width, height, thick) {
    context.strokeStyle = css(colour(thick > 2 ? "--ink" : "--accent"));
    context.lineWidth = thick;
    context.strokeRect(x, y, width, height);
  }

  /** The selected cell moves with the arrow keys. @param {KeyboardEvent} event @param {(cell: Cell) => void} choose */
  onKey(event, choose) {
    const [down, right] = [{ ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0, { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0];
    const end = { Home: -1e9, End: 1e9 }[event.key] ?? 0;
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || !this.kept) return;
    if (!(down || right || end) && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    const { rows, columns } = this.kept.numbers;
    const within = (/** @type {number} */ at, /** @type {number} */ count) => Math.min(count - 1, Math.max(0, at));
    if (this.cell) choose({ row: within(this.cell.row + down, rows), column: within(this.cell.column + right + end, columns) });
    else choose({ row: Math.max(0, this.mark?.side === "q" ? this.mark.index : 0), column: 0 });
  }

  /** @param {PointerEvent} event @returns {Cell | null} */
  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - this.left, event.clientY - box.top - this.top];
    const column = x < 0 ? -1 : Math.floor((x + this.scroll.box.scrollLeft) / this.size);
    const row = y < 0 ? -1 : Math.floor((y + this.scroll.box.scrollTop) / this.height);
    const inside = row < (this.kept?.numbers.rows ?? 0) && column < (this.kept?.numbers.columns ?? 0);
    return inside && (row >= 0 || column >= 0) ? { row, column } : null;
  }
}

/** Draw to the right of and below a corner only. @param {CanvasRenderingContext2D} context @param {number} left @param {number} top @param {number} width @param {number} height @param {() => void} draw */
function clipped(context, left, top, width, height, draw) {
  context.save();
  context.beginPath();
  context.rect(left, top, width - left, height - top);
  context.clip();
  draw();
  context.restore();
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} dx @param {number} dy */
function line(context, x, y, dx, dy) {
  context.moveTo(x, y);
  context.lineTo(x + dx, y + dy);
}

/** Pixels that the longest of some labels needs. @param {string[]} pieces @param {number} most */
function room(pieces, most) {
  const context = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  context.font = `13px ${FONT}`;
  return Math.min(most, 14 + Math.max(...pieces.map((piece) => context.measureText(label(piece)).width)));
}

/** A text that fits into a width. @param {CanvasRenderingContext2D} context @param {string} text @param {number} width */
function withinWidth(context, text, width) {
  const letters = [...text];
  while (letters.length > 1 && context.measureText(letters.join("") + (letters.length < [...text].length ? "…" : "")).width > width) letters.pop();
  return letters.length < [...text].length ? `${letters.join("")}…` : text;
}
