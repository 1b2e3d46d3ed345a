// @ts-check
// The explorer: what is typed is asked of the server at once, and what is typed on makes the question before void.

import { element } from "./dom.js";
import { ATTENTIONS, Inspection } from "./inspection.js";
import { Pane } from "./pane.js";
import { textOf } from "./pieces.js";
import { t } from "./texts.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {{name: string, about: import("./pane.js").About, heads: Record<string, number[]>, figure: import("./figure.js").Figure, example: string}} Model heads: how many in each layer of each part; a text to begin with */

const PAUSE = 250; // milliseconds without a key before the server is asked
const LARGEST_FILE = 16 * 1024 * 1024; // bytes
const pageName = crypto.getRandomValues(new Uint32Array(2)).join("-");

export class Live {
  /** @param {import("./state.js").Store} store @param {{models: Model[]}} about @param {() => void} refresh */
  constructor(store, about, refresh) {
    this.store = store;
    this.refresh = refresh;
    this.models = about.models;
    this.askers = about.models.map((_, number) => new Asker(number, (asker, found) => this.show(asker, found)));
    this.panes = about.models.map((model, number) => new Pane(store, canForce(model.about) ? (position, piece) => this.force(number, position, piece) : null));
    this.panes.forEach((pane, number) => {
      pane.walk = (stack, layer, head) => this.walk(number, stack, layer, head);
      pane.search = (beam) => this.search(number, beam);
    });
    const { reads, writes } = about.models[0].about;
    this.reads = reads;
    const invited = reads === "pieces" ? (writes ? "translation" : "text") : reads || "text";
    this.invitation = t(`invite-${invited}`);
    this.ofFile = reads === "patches" || reads === "times";
    /** @type {{name: string, data: string} | null} */
    this.file = null;
    this.tooLarge = false;
    this.picker = element("input", { id: "file", type: "file", accept: reads === "patches" ? "image/*" : "audio/*", onchange: () => this.pick(this.picker.files[0]) });
    this.source = element("textarea", { id: "source", rows: 2, spellcheck: "false", placeholder: this.invitation, oninput: () => store.set({ text: this.source.value, fix: store.state.fix && { side: "q", index: 0 } }) });
    this.prefix = element("input", { id: "prefix", spellcheck: "false", autocomplete: "off", placeholder: t("prefix-nothing"), oninput: () => store.set({ prefix: this.prefix.value }) });
    this.beam = element("input", { id: "beam", type: "number", min: 1, max: 16, onchange: () => store.set({ beam: Math.min(16, Math.max(1, Number(this.beam.value) || 1)) }) });
    this.status = element("p", { class: "status", role: "status" });
    this.masks = about.models.map((model, number) => new Masks(store, model, number));
    this.node = element(
      "section",
      { class: "live", "aria-label": t("what-to-read") },
      this.ofFile ? field(t(reads === "patches" ? "view-picture" : "view-sound"), this.picker) : field(t("text"), this.source),
      ...(reads === "pieces" && writes ? [element("div", { class: "fields" }, field(t("begins-with"), this.prefix), field(t("beam-size"), this.beam))] : []),
      ...this.masks.map((masks) => masks.node),
      this.status,
    );
    const example = about.models.map((model) => model.example).find(Boolean);
    if (!store.state.text && example) store.set({ text: example });
  }

  /** @param {State} state */
  update(state) {
    fill(this.source, state.text);
    fill(this.prefix, state.prefix);
    fill(this.beam, String(state.beam));
    for (const masks of this.masks) masks.update(state);
    if (this.ofFile ? !this.file : !state.text.trim()) return this.invite();
    for (const asker of this.askers) asker.ask(this.question(state, asker.number));
    this.status.textContent = this.askers.some((asker) => asker.waiting) ? (this.reads === "pieces" ? t("translating-live") : t("reading")) : this.askers.map((asker) => asker.error).filter(Boolean).join(" ");
    this.status.classList.toggle("error", this.askers.some((asker) => asker.error));
  }

  /** There is nothing to ask yet. */
  invite() {
    if (!this.tooLarge) this.status.textContent = this.invitation;
    this.status.classList.toggle("error", this.tooLarge);
  }

  /** @param {State} state @param {number} model */
  question(state, model) {
    const { text, prefix, beam } = state;
    const masks = masksOf(state.masks, model);
    if (this.file) return { model, text: this.file.name, file: this.file.data, masks, page: pageName };
    return { model, text, prefix, beam_size: beam, masks, page: pageName };
  }

  /** Read a file that was chosen. @param {File | undefined} file */
  async pick(file) {
    if (!file) return;
    const [large, bytes] = [file.size > LARGEST_FILE, new Uint8Array(await file.arrayBuffer())];
    let letters = "";
    for (let i = 0; i < bytes.length && !large; i += 32768) letters += String.fromCharCode(...bytes.subarray(i, i + 32768));
    this.file = large ? null : { name: file.name, data: btoa(letters) };
    this.tooLarge = large;
    if (large) this.status.textContent = t("too-large", { name: file.name });
    this.store.set({});
  }

  /** @param {Asker} asker @param {any} found */
  async show(asker, found) {
    if (found) {
      const inspection = await Inspection.read(found.inspection);
      inspection.figure = this.models[asker.number].figure;
      inspection.data.about = this.models[asker.number].about;
      this.panes[asker.number].show(inspection, found.unmasked);
    }
    this.refresh();
  }

  /** Go on with another piece at a position of a translation. @param {number} model @param {number} position @param {string} piece */
  force(model, position, piece) {
    const { data } = this.panes[model].inspection;
    if (!data.about.reads) {
      this.source.value = textOf([...data.read.slice(0, position + 1), piece]);
      return this.store.set({ text: this.source.value, fix: { side: "q", index: position } });
    }
    const before = data.tgt.pieces.slice(0, position);
    this.store.set({ prefix: textOf([...before, piece]), fix: { side: "q", index: position } });
  }

  /** @param {number} model @param {string} stack @param {number} layer @param {number} head */
  async walk(model, stack, layer, head) {
    const answer = await post("/api/walk", { ...this.question(this.store.state, model), stack, layer, head });
    return answer ?? { error: t("no-answer") };
  }

  /** The best output with another beam size. @param {number} model @param {number} beam */
  async search(model, beam) {
    const answer = await post("/api/translate", { ...this.question(this.store.state, model), beam_size: beam, page: `${pageName}-tour` });
    if (!answer?.inspection) return { error: answer?.error ?? t("no-answer") };
    const { translation, beam: nodes } = answer.inspection;
    const chosen = nodes.filter((/** @type {any} */ { status }) => status === "chosen");
    return { text: translation, logProb: Math.min(0, ...chosen.map((/** @type {any} */ node) => node.log_prob)) };
  }
}

/** Whether another beginning can be asked for: of a translation, or of a text that is read on. @param {import("./pane.js").About} about */
function canForce({ reads, writes }) {
  return writes && (reads === "pieces" || !reads);
}

/** What asks one model, one question at a time: a new one aborts the one before. */
class Asker {
  /** @param {number} number of the model @param {(asker: Asker, found: any) => void} done */
  constructor(number, done) {
    this.number = number;
    this.done = done;
    this.asked = "";
    this.error = "";
    this.waiting = false;
    this.timer = 0;
    this.abort = new AbortController();
  }

  /** @param {any} question */
  ask(question) {
    const text = JSON.stringify(question);
    if (text === this.asked) return;
    const pause = this.asked ? PAUSE : 0;
    this.asked = text;
    this.abort.abort();
    clearTimeout(this.timer);
    this.waiting = true;
    this.timer = setTimeout(() => this.send(question), pause);
  }

  /** @param {any} question */
  async send(question) {
    this.abort = new AbortController();
    const { signal } = this.abort;
    const found = await post("/api/translate", question, signal);
    if (signal.aborted) return; // a newer question is on its way
    this.waiting = false;
    this.error = found ? (found.error ?? "") : t("no-answer");
    this.done(this, found?.inspection ? found : null);
  }
}

/** The heads of one model as buttons: pressed ones are silenced. */
class Masks {
  /** @param {import("./state.js").Store} store @param {Model} model @param {number} number */
  constructor(store, model, number) {
    this.store = store;
    this.number = number;
    this.summary = element("summary", {});
    /** @type {Map<string, HTMLElement>} */
    this.buttons = new Map();
    const parts = Object.entries(model.heads).filter(([, layers]) => layers.length);
    this.name = model.name;
    const clear = element("button", { type: "button", onclick: () => this.clear() }, t("silence-none"));
    this.node = element("details", { class: "masks", hidden: !parts.length }, this.summary, element("div", { class: "mask-parts" }, ...parts.map(([part, layers]) => this.part(part, layers))), clear);
  }

  /** @param {string} part @param {number[]} layers */
  part(part, layers) {
    const rows = layers.map((heads, layer) => element("div", { class: "mask-row" }, element("span", {}, t("number-layer", { number: layer })), ...Array.from({ length: heads }, (_, head) => this.button(part, layer, head))));
    return element("div", { role: "group", "aria-label": ATTENTIONS[part] }, element("h2", { class: "mask-title" }, ATTENTIONS[part]), ...rows);
  }

  /** @param {string} part @param {number} layer @param {number} head */
  button(part, layer, head) {
    const key = `${this.number}-${part}-${layer}-${head}`;
    const button = element("button", { type: "button", "aria-label": t("silence", { attention: ATTENTIONS[part], layer, head }), onclick: () => this.toggle(key) }, String(head));
    this.buttons.set(key, button);
    return button;
  }

  /** @param {string} key */
  toggle(key) {
    const keys = new Set(this.store.state.masks.split(",").filter(Boolean));
    if (!keys.delete(key)) keys.add(key);
    this.store.set({ masks: [...keys].join(",") });
  }

  clear() {
    const others = this.store.state.masks.split(",").filter((key) => !this.buttons.has(key));
    this.store.set({ masks: others.join(",") });
  }

  /** @param {State} state */
  update(state) {
    const keys = new Set(state.masks.split(","));
    const silenced = [...this.buttons.keys()].filter((key) => keys.has(key));
    for (const [key, button] of this.buttons) button.setAttribute("aria-pressed", String(keys.has(key)));
    this.summary.textContent = t("silenced", { name: this.name, count: silenced.length || t("none") });
  }
}

/**
 * The heads silenced in one model, as Python takes them.
 * @param {string} text such as "0-cross-2-1,1-encoder-0-0": model, part, layer, head
 * @param {number} model
 */
function masksOf(text, model) {
  /** @type {Record<string, Record<string, number[]>>} */
  const masks = {};
  for (const key of text.split(",").filter(Boolean)) {
    const [number, part, layer, head] = key.split("-");
    if (Number(number) === model) ((masks[part] ??= {})[layer] ??= []).push(Number(head));
  }
  return masks;
}

/** @param {string} path @param {any} question @param {AbortSignal} [signal] @returns {Promise<any>} null where no answer came */
async function post(path, question, signal) {
  try {
    const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question), signal });
    return await response.json();
  } catch {
    return null;
  }
}

/** @param {string} label @param {HTMLElement} input */
function field(label, input) {
  return element("label", { class: `field ${input.id}` }, element("span", {}, label), input);
}

/** @param {HTMLInputElement} input @param {string} text */
function fill(input, text) {
  if (input.value !== text && document.activeElement !== input) input.value = text;
}
