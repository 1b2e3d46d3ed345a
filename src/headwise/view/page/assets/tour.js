// @ts-check
// View: a guided tour, card by card. A card asks for a prediction, from the operands; then it shows the step, computed
// from the recorded numbers of this text, and one setting to change. The question is about the model as it is: it depends
// on the token, but not on the setting. Texts are in tour.*.json, numbers never.

import { readableRow, rowsFrom } from "./arithmetic.js";
import { ATTENTION_CARDS } from "./cards_attention.js";
import { WRITING_CARDS } from "./cards_writing.js";
import { mayAttend } from "./cell.js";
import { SIGNED, WEIGHTS } from "./colours.js";
import { choice, element, focusOf } from "./dom.js";
import { Heatmap } from "./heatmap.js";
import { allNumbered } from "./pieces.js";
import { inAddress } from "./state.js";
import { Walks, lacking } from "./steps.js";
import { language, t } from "./texts.js";
import { Writer, barList, curveOf, tableOf } from "./tour_parts.js";

/** @typedef {{card: string, knob: string, language: string, cell: [number, number] | null}} TourState */
/** @typedef {import("./walk.js").WalkHost & {text: () => string, aligns?: {layer: number | null, head: number | null}, search?: (beam: number) => Promise<{text: string, logProb: number, error?: string}>}} TourHost */
/** @typedef {import("./tour_parts.js").Card} Card */
/** @typedef {Record<string, import("./steps.js").Step>} Steps */

const CARDS = { ...ATTENTION_CARDS, ...WRITING_CARDS };

/** What a card asks of the host, for one text and setting. */
export class Lesson {
  /** @param {TourHost} host @param {TourState} state @param {Map<string, Promise<any>>} known answers for this text */
  constructor(host, state, known) {
    this.host = host;
    this.state = state;
    this.known = known;
    this.row = state.cell ? state.cell[0] : null;
  }

  /** A row of a step: the chosen one, or one to begin with. @param {{rows: string[]}} step @param {number[]} [order] those to begin with, the best first @param {import("./steps.js").Step} [weights] */
  rowOf(step, order = rowsFrom(step, 1), weights) {
    return this.row === null ? readableRow(step, order, weights) : Math.min(this.row, step.rows.length - 1);
  }

  /** A row of scores that attends to something. @param {import("./steps.js").Step} scores @param {import("./steps.js").Step} [weights] @param {number[]} [order] */
  attendingRow(scores, weights, order = rowsFrom(scores, 1)) {
    const attending = order.filter((row) => mayAttend(scores, row).length);
    const row = this.rowOf(scores, attending, weights);
    return mayAttend(scores, row).length ? row : readableRow(scores, attending, weights);
  }

  /** The setting chosen among some. @param {(string | number)[]} knobs @param {string | number} usual */
  setting(knobs, usual) {
    return { knobs, usual, knob: knobs.find((knob) => String(knob) === this.state.knob) ?? usual };
  }

  /** @template T @param {string} key @param {() => Promise<T>} ask @returns {Promise<T>} */
  once(key, ask) {
    if (!this.known.has(key)) this.known.set(key, ask());
    return /** @type {Promise<T>} */ (this.known.get(key));
  }

  /** @param {string} stack @param {number} layer @param {number} head @returns {Promise<Steps>} */
  steps(stack, layer, head) {
    return this.once(`${stack} ${layer} ${head}`, async () => {
      const { walk, error } = await this.host.ask(stack, layer, head);
      const walks = walk && (await Walks.read(walk));
      const found = walks?.steps(stack, layer, head);
      this.known.set("digits", Promise.resolve({ bits: walk?.bits, rounded: walks?.rounded }));
      if (!found) throw new Error(error ?? lacking(walk));
      return Object.fromEntries(found.steps.map((step) => [step.id, step]));
    });
  }

  own() {
    return this.steps(Object.keys(this.host.figure)[0], 0, 0);
  }

  /** The first layer of the decoder, and its output. */
  decoder() {
    return this.steps("decoder", 0, 0);
  }

  /** The head that aligns words, or one of the last layer. */
  cross() {
    const { layer, head } = this.host.aligns ?? { layer: null, head: null };
    return this.steps("decoder", layer ?? this.host.figure.decoder.layers - 1, Math.max(0, head ?? 0));
  }

  /** All heads of the first layer. @returns {Promise<Steps[]>} */
  async heads() {
    const [stack, { heads }] = Object.entries(this.host.figure)[0];
    const found = [];
    for (let head = 0; head < heads[0]; head++) found.push(await this.steps(stack, 0, head));
    return found;
  }

  /** @param {number} beam */
  search(beam) {
    return this.once(`beam ${beam}`, async () => {
      const found = await /** @type {any} */ (this.host.search)(beam);
      if (found.error) throw new Error(found.error);
      return found;
    });
  }
}

export class TourView {
  /** @param {TourHost} host */
  constructor(host) {
    this.host = host;
    this.texts = JSON.parse(document.getElementById("tour")?.textContent ?? "{}");
    this.names = Object.keys(CARDS).filter((name) => CARDS[name].fits?.(host.figure, host) ?? true);
    const turn = (/** @type {number} */ by) => element("button", { type: "button", onclick: () => this.go(this.names[this.names.indexOf(this.card) + by]) });
    [this.back, this.on] = [turn(-1), turn(1)];
    this.contents = element("select", { onchange: () => this.go(this.contents.value) });
    this.body = element("div", { class: "card" });
    this.spoken = element("p", { class: "spoken", "aria-live": "polite" });
    this.node = element("div", { class: "tour" }, element("div", { class: "tour-bar" }, this.back, this.contents, this.on), this.body, this.spoken);
    /** @type {Map<string, number>} predictions by card and row */
    this.answers = new Map();
    /** @type {Map<string, Promise<any>>} */
    this.known = new Map();
    /** @type {(() => void)[]} what is drawn again when the theme or the width changes */
    this.redraw = [];
    this.card = this.names[0];
    this.drawn = "";
    this.theme = "light";
  }

  /** Ask again: the input has changed. */
  forget() {
    this.known = new Map();
    this.answers.clear();
    this.drawn = "";
  }

  /** @param {string} card */
  go(card) {
    this.host.set({ card, knob: "", cell: null });
  }

  /** @param {string} question @param {number} answer */
  predict(question, answer) {
    this.answers.set(question, answer);
    this.host.set({});
  }

  /** @param {{state: TourState, theme: string}} seen */
  update({ state, theme }) {
    this.theme = theme;
    this.card = this.names.includes(state.card) ? state.card : this.names[0];
    const used = [state.language, language].find((code) => code in this.texts) ?? Object.keys(this.texts)[0];
    const wanted = JSON.stringify([this.card, used, state.knob, state.cell, ...this.answers]);
    if (wanted === this.drawn) return this.redraw.forEach((draw) => draw());
    this.drawn = wanted;
    this.show(wanted, used, new Lesson(this.host, state, this.known));
  }

  /** @param {string} wanted @param {string} language @param {Lesson} lesson */
  async show(wanted, language, lesson) {
    /** @type {Card | string} */
    const card = await CARDS[this.card].show(lesson).catch((/** @type {Error} */ error) => error.message);
    const { bits, rounded } = (await this.known.get("digits")) ?? {};
    this.bits = bits; // of the weights, where they are rounded
    if (wanted !== this.drawn) return;
    const { common, cards } = this.texts[language];
    const texts = cards[this.card];
    this.write = new Writer(common, typeof card === "string" ? texts : { ...texts, ...texts[card.variant ?? ""] }, language, rounded);
    this.bar(common, cards, language);
    const focused = focusOf(this.body);
    this.redraw = [];
    this.body.replaceChildren(...(typeof card === "string" ? [element("p", { class: "empty" }, card)] : this.parts(card)));
    this.body.dataset.card = this.card;
    focused(this.body);
    this.redraw.forEach((draw) => draw());
  }

  /** @param {any} common @param {any} cards @param {string} language */
  bar(common, cards, language) {
    const at = this.names.indexOf(this.card);
    this.back.textContent = common.back;
    this.on.textContent = common.next;
    [this.back.disabled, this.on.disabled] = [at === 0, at === this.names.length - 1];
    this.node.lang = language;
    this.contents.setAttribute("aria-label", common.contents);
    this.contents.replaceChildren(...this.names.map((name, number) => element("option", { value: name }, `${number + 1} / ${this.names.length} ${cards[name].title}`)));
    this.contents.value = this.card;
    this.spoken.textContent = this.contents.selectedOptions[0].textContent;
  }

  /** The prediction and, once it was made, the step. @param {Card} card @returns {Node[]} */
  parts(card) {
    const write = /** @type {Writer} */ (this.write);
    const question = JSON.stringify([this.card, card.row]);
    const answer = this.answers.get(question);
    const choices = card.choices?.map((one) => (typeof one === "number" ? write.written(one) : one)) ?? write.card.options;
    const named = (/** @type {number} */ at) => (typeof card.choices?.[at] === "string" ? write.common.quoted.replace("{name}", choices[at]) : choices[at]);
    const mark = (/** @type {number} */ at) => (answer === undefined ? null : card.right.includes(at) ? "right" : at === answer ? "wrong" : null);
    const buttons = choices.map((/** @type {string} */ text, /** @type {number} */ at) => element("button", { type: "button", class: mark(at), "aria-pressed": String(at === answer), onclick: () => this.predict(question, at) }, text));
    const head = [...(inAddress(this.host.text()) ? [] : [element("p", { class: "note" }, write.common.unlinked)]), element("h2", {}, write.card.title)];
    if (choices.length < 2) return [...head, ...this.tokens(card, write), element("p", { class: "empty" }, write.common.short)];
    const asked = [
      ...head,
      element("p", { class: "question" }, ...write.text(write.card.question, card.numbers)),
      ...this.tokens(card, write),
      ...this.pictures({ ...card.given, row: card.row }, write, "given"),
      element("div", { class: "tour-choices", role: "group", "aria-label": write.common.predict }, ...buttons),
    ];
    if (answer === undefined) return [...asked, element("p", { class: "note" }, write.common.predict)];
    const verdict = card.right.includes(answer) ? write.common.right : write.text(write.common.wrong, { right: write.any(card.right.map(named)) });
    return [...asked, element("p", { class: "verdict", role: "status" }, ...[verdict].flat()), element("p", { class: "sentence" }, ...write.text([write.card.text, ...(card.notes ?? []).map((note) => write.card[note])].join(" "), card.numbers)), ...this.settings(card, write), ...this.pictures(card, write, "cell"), ...(this.bits && !card.exact ? [element("p", { class: "note", lang: language }, t("rounded-weights", { bits: this.bits }))] : [])];
  }

  /** The menu of the tokens that the card can be about. @param {Card} card @param {Writer} write */
  tokens({ rows, row }, write) {
    if (!rows) return [];
    const select = element("select", { onchange: () => this.host.set({ cell: [Number(select.value), 0] }) }, ...allNumbered(rows).map((name, at) => element("option", { value: at }, `${at + 1}: ${name}`)));
    select.value = String(row);
    return [element("div", { class: "tour-settings" }, element("label", {}, `${write.common.token} `, select))];
  }

  /** The setting to change and, if it was, what the question was about. @param {Card} card @param {Writer} write */
  settings({ knobs, knob, usual = "" }, write) {
    if (!knobs || knob === undefined) return [];
    const buttons = choice(write.card.knob, knobs.map((value) => ({ value, text: write.knob(value) })), knob, (value) => this.host.set({ knob: String(value) }));
    const turned = { knob: write.card.knob, usual: write.knob(usual), chosen: write.knob(knob) };
    return [element("div", { class: "tour-settings" }, buttons), ...(knob === usual ? [] : [element("p", { class: "note turned", role: "status" }, ...write.text(write.common.turned, turned))])];
  }

  /** @param {Partial<Card> & Card["given"]} card @param {Writer} write @param {string} key of the numbers in a table @returns {Node[]} */
  pictures({ tokens, drawings, bars, chance, table, curve, row }, write, key) {
    const parts = [];
    if (tokens) parts.push(element("p", { class: "tour-tokens" }, ...tokens.map((token) => element("span", { dir: "auto" }, token))));
    if (drawings) parts.push(element("div", { class: "drawings" }, ...drawings.map((one) => this.drawing(one, row, write))));
    if (bars) parts.push(...barList(bars, chance, write));
    if (table) parts.push(tableOf(table, write, key));
    if (curve) parts.push(curveOf(curve, write));
    return parts;
  }

  /** @param {import("./tour_parts.js").Drawing} drawing @param {number | undefined} chosen @param {Writer} write */
  drawing({ title, numbers, rows, columns = [], share, ofRow }, chosen, write) {
    const row = ofRow ? undefined : chosen;
    const choose = (/** @type {import("./heatmap.js").Cell} */ cell) => cell.row >= 0 && row !== undefined && this.host.set({ cell: [cell.row, 0] });
    const heatmap = new Heatmap(rows, columns, { point: () => {}, click: choose });
    const extent = Math.max(1e-9, ...[...numbers.values].map((value) => (Number.isFinite(value) ? Math.abs(value) : 0)));
    const place = share ? Math.sqrt : (/** @type {number} */ value) => (Number.isFinite(value) ? 0.5 + value / extent / 2 : Number.NaN);
    const size = `${numbers.rows} × ${numbers.columns}`;
    heatmap.canvas.setAttribute("aria-label", `${title}, ${size}`);
    const marked = row === undefined || row >= numbers.rows ? null : /** @type {import("./state.js").Mark} */ ({ side: "q", index: row });
    this.redraw.push(() => heatmap.draw(numbers, place, share ? WEIGHTS : SIGNED, marked, this.theme));
    return element("figure", {}, element("figcaption", {}, element("b", {}, title), ` ${size}`), heatmap.node);
  }
}
