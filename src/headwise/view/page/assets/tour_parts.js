// @ts-check
// Parts of a card of the tour: texts with numbers, bars beside the chance level, tables, and a curve.

import { greatestAt, upTo } from "./arithmetic.js";
import { element, shape } from "./dom.js";
import { ScrollBox } from "./scroll.js";

/** @typedef {{title: string, numbers: import("./steps.js").StepNumbers, rows: string[], columns?: string[], share?: boolean, ofRow?: boolean}} Drawing `share`: numbers from 0 to 1; `ofRow`: about the chosen row alone */
/** @typedef {{head: string[], rows: [string, ...(string | number)[]][]}} Table a head is a key of the catalogue, or a text */
/**
 * @typedef {object} Card
 * @property {number[]} right which choices; the question and its choices are about the usual setting
 * @property {(string | number)[]} [choices] those of the catalogue if missing
 * @property {Record<string, string | number>} numbers for the placeholders
 * @property {boolean} [exact] no number depends on weights
 * @property {string} [variant] texts that replace those of the card, by their name in the catalogue
 * @property {string[]} [notes] other texts of the card that are true here
 * @property {{tokens?: string[], drawings?: Drawing[], table?: Table}} [given] what the prediction needs: shown with the question
 * @property {Drawing[]} [drawings] the result
 * @property {[string, number][]} [bars] names and values
 * @property {number} [chance] shown beside the bars
 * @property {Table} [table]
 * @property {{points: [number, number][], marks: [number, number][]}} [curve] steps and learning rates; marks have numbers on the axes
 * @property {string[]} [rows] tokens that the reader can choose
 * @property {number} [row] the chosen one
 * @property {(string | number)[]} [knobs] settings, "" for the model's
 * @property {string | number} [knob] the chosen one
 * @property {string | number} [usual] the one that the question is about
 */

const MOST_BARS = 24; // the greatest ones of a longer row are shown
const DIGITS_OF_HALF = 3; // that a number of 16 bits has
const PLACEHOLDER = /\{(\w+)\}/;

/** Such as 4 · 10⁻⁸. @param {string} scientific such as 4E-8 */
function powerOfTen(scientific) {
  const [digits, power] = scientific.split("E");
  return `${digits.replace("-", "−")}\u00a0·\u00a010${Array.from(power, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]).join("")}`;
}

/** Texts of a card with numbers in them. */
export class Writer {
  /** @param {any} common @param {any} card @param {string} language @param {boolean} [rounded] whether numbers have 16 bits */
  constructor(common, card, language, rounded = false) {
    this.common = common;
    this.card = card;
    this.plural = new Intl.PluralRules(language);
    this.few = rounded ? new Intl.NumberFormat(language, { maximumSignificantDigits: DIGITS_OF_HALF }) : null;
    this.list = new Intl.ListFormat(language, { type: "disjunction" });
    this.plain = new Intl.NumberFormat(language, { maximumFractionDigits: 3 });
    this.exact = new Intl.NumberFormat(language, { maximumFractionDigits: 6 });
    this.small = new Intl.NumberFormat(language, { maximumSignificantDigits: 2 });
    this.tiny = new Intl.NumberFormat(language, { maximumSignificantDigits: 2, notation: "scientific" });
  }

  /** @param {number} value */
  written(value) {
    if (!Number.isFinite(value)) return value < 0 ? "−∞" : "—";
    const almost = !Number.isInteger(value) && Math.abs(value - Math.round(value)) < 0.0005; // such as a weight of 0.9998
    const small = value !== 0 && Math.abs(value) < 0.01;
    if (small && Math.abs(value) < 0.0001) return powerOfTen(this.tiny.format(value));
    return ((Number.isInteger(value) ? null : this.few) ?? (small ? this.small : almost ? this.exact : this.plain)).format(value).replace("-", "−");
  }

  /** A number that programs can read, too. @param {string} name @param {number} value */
  number(name, value) {
    return element("data", { value, "data-name": name }, this.written(value));
  }

  /** A text with its placeholders filled. @param {string} text @param {Record<string, string | number>} values @returns {(Node | string)[]} */
  text(text, values) {
    return text.split(PLACEHOLDER).flatMap((part, at) => (at % 2 === 0 ? part : typeof values[part] === "number" ? this.counted(part, /** @type {number} */ (values[part])) : String(values[part])));
  }

  /** A number, with its noun where the catalogue has forms of it, such as "words.one" and "words.other". @param {string} name @param {number} value @returns {(Node | string)[]} */
  counted(name, value) {
    const forms = { ...this.common, ...this.card };
    const form = forms[`${name}.${this.plural.select(value)}`] ?? forms[`${name}.other`] ?? `{${name}}`;
    return form.split(PLACEHOLDER).map((/** @type {string} */ part, /** @type {number} */ at) => (at % 2 === 0 ? part : this.number(name, value)));
  }

  /** One of several. @param {string[]} texts */
  any(texts) {
    return this.list.format(texts);
  }

  /** @param {string | number} value */
  knob(value) {
    return typeof value === "number" ? this.written(value) : value ? this.common[value] : this.common.model;
  }
}

/** @param {[string, number][]} bars @param {number | undefined} chance @param {Writer} write @returns {Node[]} */
export function barList(bars, chance, write) {
  const most = Math.max(...bars.map(([, value]) => value), chance ?? 0, 1e-9);
  const best = greatestAt(bars.map(([, value]) => value));
  const item = (/** @type {string} */ name, /** @type {number} */ value, /** @type {string} */ kind, /** @type {string} */ key) => {
    const bar = element("span", { class: "tour-bar-length" });
    bar.style.setProperty("--weight", `${(100 * value) / most}%`);
    return element("li", { class: kind }, element("span", { dir: "auto" }, name), bar, write.number(key, value));
  };
  const kept = new Set(upTo(bars.length).sort((one, other) => bars[other][1] - bars[one][1]).slice(0, MOST_BARS));
  const shown = bars.flatMap(([name, value], at) => (!kept.has(at) ? [] : [item(name, value, at === best ? "best" : "", `bar.${at}`)]));
  const list = element("ol", { class: "tour-bars" }, ...shown, ...(chance === undefined ? [] : [item(write.common.chance, chance, "chance", "chance")]));
  const more = bars.length - kept.size;
  return more ? [list, element("p", { class: "note" }, ...write.text(write.common.more, { more }))] : [list];
}

/** @param {Table} table @param {Writer} write @param {string} key of its numbers */
export function tableOf({ head, rows }, write, key) {
  const body = rows.map(([name, ...values], row) => element("tr", {}, ...(name ? [element("th", { scope: "row" }, name)] : []), ...values.map((value, column) => element("td", {}, typeof value === "string" ? value : write.number(`${key}.${row}.${column}`, value)))));
  const corner = rows.some(([name]) => name) ? [element("td")] : [];
  return new ScrollBox("table", element("table", { class: "terms" }, element("thead", {}, element("tr", {}, ...corner, ...head.map((text) => (text ? element("th", { scope: "col" }, write.common[text] ?? text) : element("td"))))), element("tbody", {}, ...body))).node;
}

const [WIDE, HIGH] = [360, 210]; // of a curve, in its own units
const [LEFT, TOP, RIGHT, BOTTOM] = [78, 26, 350, 160]; // of its axes

/** A line through points, between axes with the numbers of some of them. @param {{points: [number, number][], marks: [number, number][]}} curve @param {Writer} write */
export function curveOf({ points, marks }, write) {
  const [last, most] = [0, 1].map((axis) => Math.max(...points.map((point) => point[axis])));
  const x = (/** @type {number} */ step) => LEFT + ((RIGHT - LEFT) * step) / last;
  const y = (/** @type {number} */ rate) => BOTTOM - ((BOTTOM - TOP) * rate) / most;
  const text = (/** @type {number} */ left, /** @type {number} */ top, /** @type {string} */ anchor, /** @type {string} */ words, /** @type {any} */ more = {}) => shape("text", { x: left, y: top, "text-anchor": anchor, ...more }, words);
  const number = (/** @type {number} */ left, /** @type {number} */ top, /** @type {string} */ anchor, /** @type {string} */ name, /** @type {number} */ value) => text(left, top, anchor, write.written(value), { "data-name": name, "data-value": value });
  const numbers = marks.flatMap(([step, rate], at) => [number(x(step), BOTTOM + 18, x(step) > RIGHT - 30 ? "end" : x(step) < LEFT + 20 ? "start" : "middle", `step.${at}`, step), number(LEFT - 8, y(rate) + 4, "end", `rate.${at}`, rate)]);
  const guides = marks.map(([step, rate]) => shape("path", { class: "guide", d: `M${LEFT} ${y(rate)}H${x(step)}V${BOTTOM}` }));
  const spoken = `${write.card.title}: ${marks.map(([step, rate]) => `${write.common.step} ${write.written(step)}, ${write.common.rate} ${write.written(rate)}`).join("; ")}`;
  const line = shape("polyline", { points: points.map(([step, rate]) => `${x(step)},${y(rate)}`).join(" ") });
  const axes = shape("path", { class: "axes", d: `M${LEFT} ${TOP - 8}V${BOTTOM}H${RIGHT}` });
  return shape("svg", { class: "tour-curve", viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": spoken }, axes, ...guides, line, ...numbers, text(LEFT - 8, BOTTOM + 4, "end", write.written(0)), text(LEFT, 12, "middle", write.common.rate), text(RIGHT, BOTTOM + 40, "end", write.common.step));
}
