// @ts-check
// Parts of a card of the tour: texts with numbers, bars beside the chance level, tables, and a curve.

import { greatestAt, upTo } from "./arithmetic.js";
import { element, shape } from "./dom.js";
import { ScrollBox } from "./scroll.js";

const MOST_BARS = 24; // the greatest ones of a longer row are shown
const PLACEHOLDER = /\{(\w+)\}/;

/** Such as 4 · 10⁻⁸. @param {string} scientific such as 4E-8 */
function powerOfTen(scientific) {
  const [digits, power] = scientific.split("E");
  return `${digits.replace("-", "−")} · 10${Array.from(power, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]).join("")}`;
}

/** Texts of a card with numbers in them. */
export class Writer {
  /** @param {any} common @param {any} card @param {string} language */
  constructor(common, card, language) {
    this.common = common;
    this.card = card;
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
    return (small ? this.small : almost ? this.exact : this.plain).format(value).replace("-", "−");
  }

  /** A number that programs can read, too. @param {string} name @param {number} value */
  number(name, value) {
    return element("data", { value, "data-name": name }, this.written(value));
  }

  /** A text with its placeholders filled. @param {string} text @param {Record<string, string | number>} values @returns {(Node | string)[]} */
  text(text, values) {
    return text.split(PLACEHOLDER).map((part, at) => (at % 2 === 0 ? part : typeof values[part] === "number" ? this.number(part, /** @type {number} */ (values[part])) : String(values[part])));
  }

  /** @param {string | number} value */
  knob(value) {
    return typeof value === "number" ? this.written(value) : value ? this.common[value] : this.common.model;
  }
}

/** @param {[string, number][]} bars @param {number | undefined} chance @param {Writer} write */
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
  return element("ol", { class: "tour-bars" }, ...shown, ...(chance === undefined ? [] : [item(write.common.chance, chance, "chance", "chance")]));
}

/** @param {import("./cards_attention.js").Table} table @param {Writer} write */
export function tableOf({ head, rows }, write) {
  const body = rows.map(([name, ...values], row) => element("tr", {}, ...(name ? [element("th", { scope: "row" }, name)] : []), ...values.map((value, column) => element("td", {}, write.number(`cell.${row}.${column}`, value)))));
  const corner = rows.some(([name]) => name) ? [element("td")] : [];
  return new ScrollBox("table", element("table", { class: "terms" }, element("thead", {}, element("tr", {}, ...corner, ...head.map((text) => (text ? element("th", { scope: "col" }, text) : element("td"))))), element("tbody", {}, ...body))).node;
}

/** @param {number[]} values @param {string} title */
export function curveOf(values, title) {
  const most = Math.max(...values);
  const points = values.map((value, at) => `${(300 * at) / (values.length - 1)},${80 - (76 * value) / most}`).join(" ");
  return shape("svg", { class: "tour-curve", viewBox: "0 0 300 82", role: "img", "aria-label": title }, shape("polyline", { points }));
}
