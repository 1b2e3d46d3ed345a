// @ts-check
// View: alternatives at each position, and predictions after each layer (the logit lens).

import { element } from "./dom.js";
import { beginning, kind, label, percent } from "./pieces.js";
import { ScrollBox } from "./scroll.js";
import { pointed, t } from "./texts.js";

const LENS_SHOWN = 5;

export class ProbabilitiesView {
  /** @param {import("./pane.js").Pane} pane */
  constructor(pane) {
    this.pane = pane;
    this.store = pane.store;
    /** @type {any[]} */
    this.positions = pane.inspection.data.positions;
    this.chips = this.positions.map((position, index) => this.chip(position, index));
    this.detail = element("div", { class: "probabilities-detail", "aria-live": "polite" });
    const strip = new ScrollBox(t("output-tokens"), element("div", { class: "strip" }, ...this.chips));
    const words = wordsFor(pane.inspection.data);
    this.title = words.title;
    this.labels = words.whole;
    const note = `${words.note} ${t("choose-one")} ${t("starts-word")}`;
    this.node = this.positions.length
      ? element("div", { class: "probabilities" }, ...(words.whole ? [] : [element("p", { class: "note" }, note), strip.node]), this.detail)
      : element("p", { class: "empty" }, t("no-probabilities"));
    this.shown = -1;
  }

  /** @param {any} position @param {number} index @returns {HTMLElement} */
  chip(position, index) {
    const probability = probabilityOf(position);
    const chip = element(
      "button",
      { type: "button", class: `chip ${kind(position.piece)}`, dir: "auto", onclick: () => this.store.set({ fix: { side: "q", index } }) },
      element("span", {}, spelled(position.piece || t("next-token"))),
      element("small", {}, !position.piece ? "?" : probability === null ? t("rare") : percent(probability)),
    );
    chip.style.setProperty("--weight", `${Math.round(100 * (probability ?? 0))}%`);
    return chip;
  }

  /** @param {import("./pane.js").Seen} seen */
  update({ state }) {
    if (!this.positions.length) return;
    const index = state.fix?.side === "q" ? Math.min(state.fix.index, this.positions.length - 1) : 0;
    if (index === this.shown) return;
    this.shown = index;
    this.chips.forEach((chip, at) => chip.setAttribute("aria-pressed", String(at === index)));
    const position = this.positions[index];
    this.detail.replaceChildren(this.next(position, index), element("div", {}, lens(position, this.labels), residual(position)));
  }

  /** @param {any} position @param {number} index @returns {HTMLElement} */
  next(position, index) {
    const bars = position.candidates.map((/** @type {any} */ candidate) => this.bar(candidate, position.piece, index));
    return element("section", {}, element("h3", {}, this.title), element("ol", { class: "bars" }, ...bars));
  }

  /** @param {any} candidate @param {string} written @param {number} index */
  bar(candidate, written, index) {
    const share = Math.exp(candidate.log_prob);
    const force = kind(candidate.piece) === "mark" ? null : this.pane.force; // the end cannot be a beginning
    const name = force
      ? element("button", { type: "button", dir: "auto", title: t("continue-with"), onclick: () => force(index, candidate.piece) }, spelled(candidate.piece))
      : element("span", { dir: "auto" }, spelled(candidate.piece, this.labels));
    const fill = element("span", { class: "bar" });
    fill.style.setProperty("--weight", `${100 * share}%`);
    return element("li", { class: candidate.piece === written ? "written" : null }, name, fill, element("span", { class: "numbers" }, percent(share)));
  }
}

/** What the head says, in words: what comes next, what stands at a place, or what the whole is. @param {any} data */
function wordsFor({ about, positions }) {
  if (about.writes) {
    return { title: t("most-probable"), note: t(about.reads ? "note-output" : "note-given"), whole: false };
  }
  const whole = positions.length === 1 && !positions[0].piece;
  return { title: t(whole ? "what-whole" : "what-here"), note: t("note-masked"), whole };
}

/** A piece that stands alone: whether it begins a word is to be seen. @param {string} piece @param {boolean} [plain] a label, which is no piece */
function spelled(piece, plain = false) {
  if (plain) return element("span", {}, piece);
  return element("span", { class: `spelled ${kind(piece)}` }, element("span", { class: "begins" }, beginning(piece)), label(piece));
}

/** @param {any} position @param {boolean} plain */
function lens(position, plain) {
  const rows = position.layers.map((/** @type {any[]} */ candidates, /** @type {number} */ layer) =>
    element("tr", {}, element("th", { scope: "row" }, t("number-layer", { number: layer })), ...candidates.slice(0, LENS_SHOWN).map((found) => lensCell(found, position.piece, plain))),
  );
  const caption = t("lens");
  const table = element("table", { class: "lens", "aria-label": caption }, element("tbody", {}, ...rows));
  return element("section", {}, element("h3", {}, t("layer-by-layer")), element("p", { class: "note" }, caption), new ScrollBox(t("layer-by-layer"), table).node);
}

/** @param {any} found @param {string} written @param {boolean} plain */
function lensCell(found, written, plain) {
  const share = Math.exp(found.log_prob);
  const cell = element("td", { class: found.piece === written ? "written" : null, dir: "auto" }, spelled(found.piece, plain), " ", element("small", {}, percent(share)));
  cell.style.setProperty("--weight", `${Math.round(100 * share)}%`);
  return cell;
}

/** @param {any} position */
function residual(position) {
  const greatest = Math.max(...position.residual, 1e-9);
  const bars = position.residual.map((/** @type {number} */ norm, /** @type {number} */ stop) => {
    const fill = element("span", { class: "bar quiet" });
    fill.style.setProperty("--weight", `${(100 * norm) / greatest}%`);
    return element("li", {}, element("span", {}, stop ? t("after-layer", { number: stop - 1 }) : t("embedding")), fill, element("span", { class: "numbers" }, pointed(norm.toFixed(1))));
  });
  return element("section", {}, element("h3", {}, t("residual-norm")), element("ol", { class: "bars" }, ...bars));
}

/** @param {any} position @returns {number | null} null where the piece is not among those recorded */
function probabilityOf(position) {
  const found = position.candidates.find((/** @type {any} */ candidate) => candidate.piece === position.piece);
  return found ? Math.exp(found.log_prob) : null;
}
