// @ts-check
// Formulas in a line of text, such as "softmax(Q K^T / √d_k) V", as MathML. Factors stand side by side; a fraction has
// all factors before its "/" and the one behind it; words of several letters are upright.

import { mathElement } from "./dom.js";
import { t } from "./texts.js";

const TOKEN = /\.\.\.|\d+(?:\.\d+)?(?:e[-+]?\d+)?|[A-Za-zΑ-ω]+|√|\S/gu;
const OPERATORS = "+-−=·⊙,×<>∞";

/** @param {string} text @returns {Element} */
export function formula(text) {
  const tokens = text.match(TOKEN) ?? [];
  const parser = new FormulaParser(tokens);
  return mathElement("math", { "aria-label": spoken(text) }, ...parser.sum());
}

/** How a screen reader says it. @param {string} text */
function spoken(text) {
  const signs = { "√": `${t("say-root")} `, "⊙": t("say-times"), "^T": ` ${t("say-transposed")}`, "^": ` ${t("say-power")} `, _: " ", "/": t("say-over") };
  return Object.entries(signs).reduce((said, [sign, words]) => said.replaceAll(sign, words), text);
}

class FormulaParser {
  /** @param {string[]} tokens */
  constructor(tokens) {
    this.tokens = tokens;
    this.at = 0;
  }

  /** Terms and the operators between them, up to a ")" or the end. @returns {Element[]} */
  sum() {
    /** @type {Element[]} */
    const parts = [];
    while (this.at < this.tokens.length && this.tokens[this.at] !== ")") {
      const token = this.tokens[this.at];
      if (OPERATORS.includes(token)) {
        this.at++;
        parts.push(mathElement("mo", {}, token.replace("-", "−")));
      } else parts.push(...this.term());
    }
    return parts;
  }

  /** Factors side by side, fractions included. @returns {Element[]} */
  term() {
    /** @type {Element[]} */
    let factors = [];
    while (this.at < this.tokens.length && this.tokens[this.at] !== ")" && !OPERATORS.includes(this.tokens[this.at])) {
      if (this.tokens[this.at] === "/") {
        this.at++;
        const below = [this.factor()];
        while (this.tokens[this.at] === "(") below.push(this.atom()); // a function of something
        factors = [mathElement("mfrac", {}, row(bare(factors)), row(below))];
        continue;
      }
      const applied = this.tokens[this.at] === "(" && factors.length > 0;
      if (factors.length && !applied) factors.push(mathElement("mspace", { width: "0.22em" }));
      factors.push(this.factor());
    }
    return factors;
  }

  /** An atom with what stands below and above it. @returns {Element} */
  factor() {
    const atom = this.atom();
    /** @type {Record<string, Element>} */
    const scripts = {};
    while ("_^".includes(this.tokens[this.at] ?? " ")) {
      const side = this.tokens[this.at++];
      scripts[side] = this.tokens[this.at] === "(" ? row(this.group()) : this.atom();
    }
    if (scripts._ && scripts["^"]) return mathElement("msubsup", {}, atom, scripts._, scripts["^"]);
    if (scripts._) return mathElement("msub", {}, atom, scripts._);
    return scripts["^"] ? mathElement("msup", {}, atom, scripts["^"]) : atom;
  }

  /** @returns {Element} */
  atom() {
    const token = this.tokens[this.at];
    if (token === "(") return mathElement("mrow", {}, mathElement("mo", {}, "("), ...this.group(), mathElement("mo", {}, ")"));
    this.at++;
    if (token === "√") return mathElement("msqrt", {}, this.factor());
    if (/^\d/.test(token)) return mathElement("mn", {}, token);
    if (token === "...") return mathElement("mo", {}, "…");
    return token.length === 1 ? mathElement("mi", {}, token) : mathElement("mtext", {}, token);
  }

  /** What parentheses hold. @returns {Element[]} */
  group() {
    this.at++;
    const inside = this.sum();
    this.at++;
    return inside;
  }
}

/** What is above a fraction bar needs no parentheses. @param {Element[]} factors */
function bare(factors) {
  const [only, ...others] = factors;
  const grouped = !others.length && only?.localName === "mrow" && only.firstElementChild?.textContent === "(";
  return grouped ? [...only.children].slice(1, -1) : factors;
}

/** @param {Element[]} parts */
function row(parts) {
  return parts.length === 1 ? parts[0] : mathElement("mrow", {}, ...parts);
}
