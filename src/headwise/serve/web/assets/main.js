// @ts-check
// The page: a text, its translation or continuation as it is written, and of a chosen sentence alternatives and attention.
// Several models are a course, which begins with the tour.

import { forgetColours } from "./colours.js";
import { Columns } from "./columns.js";
import { element } from "./dom.js";
import { Guide } from "./guide.js";
import { Inside } from "./inside.js";
import { changes, kind, label, percent } from "./pieces.js";
import { START, Store, keepAddress, readHash, writeHash } from "./state.js";
import { language, languageName, offerLanguages, t, translatePage } from "./texts.js";

/** @typedef {{line: number, source: string, words: string, text: string, tokens: number[] | null, node: HTMLButtonElement}} Unit source: with its target token, `words`: without */

const byId = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const [form, source, output, status, details] = ["form", "source", "output", "status", "details"].map(byId);
const [start, stop, copy, progress, to, temperature] = ["translate", "stop", "copy", "progress", "to", "temperature"].map(byId);
/** @type {HTMLScriptElement[]} */
const models = Array.from(document.querySelectorAll("script.model"));
const program = URL.createObjectURL(new Blob([byId("worker").textContent], { type: "text/javascript" }));
const store = new Store({ ...START });

/** @type {Unit[]} */
let units = [];
/** @type {Worker} */
let worker;
/** @type {{columns: Columns, weights: any} | null} */
let drawn = null;
/** @type {Inside | null} */
let look = null;
/** @type {Guide | null} */
let guide = null;
/** @type {Map<number, (answer: any) => void>} what is to be done with the answers to questions about a sentence */
const asked = new Map();
const wish = settled(""); // a text to begin with, and whether to look inside or take the tour
const touring = wish.get("view") === "tour"; // then the tour is above the text
const current = modelOf(wish);
let [chosen, began, loaded, questions, continuing, seed, example] = [-1, 0, false, 0, false, 0, ""];
/** @type {Unit | null} what is shown of */
let subject = null;

/** @param {URLSearchParams} address */
function modelOf(address) {
  return models.find(({ dataset }) => dataset.name === address.get("model")) ?? models[0];
}

/** The address, after what it leaves to the page was added to it. @param {string} chosenLanguage @param {string} hash of the address */
function settled(chosenLanguage, hash = location.hash) {
  const address = new URLSearchParams(hash.slice(1));
  const several = models.length > 1;
  if (several) address.set("model", modelOf(address).dataset.name ?? "");
  if (!address.has("view") && !address.has("walk") && (several || address.has("card"))) address.set("view", "tour");
  if (chosenLanguage && !address.has("language")) address.set("language", chosenLanguage);
  keepAddress(`#${address}`, false);
  return address;
}

/** Another worker with the model: also how to stop one, which hears nothing while it computes. */
function begin() {
  worker?.terminate();
  worker = new Worker(program);
  worker.onmessage = ({ data }) => HEARD[data.kind](data);
  worker.onerror = (event) => fail(event.message);
  worker.postMessage({ kind: "load", library: byId("library").textContent, model: current.textContent });
}

/** @type {Record<string, (message: any) => void>} */
const HEARD = {
  ready({ figure, targets, continues, temperature: usual, example: own }) {
    if (continues && !loaded) {
      temperature.value = usual;
      continueTexts();
    }
    if (figure && !look) openLater(figure);
    if (targets.length > 1 && !to.childElementCount) offer(targets);
    if (!output.childElementCount) say(continuing ? "ready-continue" : "ready");
    busy(false);
    if (!loaded) begun(own);
    loaded = true;
  },
  units({ lines, units: found }) {
    units = found.map((/** @type {any} */ unit, /** @type {number} */ index) => ({ ...unit, text: "", tokens: null, node: unitButton(index) }));
    const paragraphs = Array.from({ length: lines }, () => element("p"));
    for (const { line, node } of units) paragraphs[line].append(...(paragraphs[line].childNodes.length ? [" ", node] : [node]));
    output.replaceChildren(...paragraphs);
    progress.max = Math.max(units.length, 1);
    progress.hidden = units.length < 2;
  },
  writing({ unit, text }) {
    units[unit].node.textContent = text;
  },
  written({ unit, text, tokens }) {
    Object.assign(units[unit], { text, tokens });
    units[unit].node.textContent = text;
    units[unit].node.disabled = false;
    progress.value = unit + 1;
    copy.disabled = false;
    if (units.length > 1) say("sentences", { done: unit + 1, count: units.length });
  },
  done() {
    const seconds = (performance.now() - began) / 1000;
    const n = continuing ? (units[0].tokens?.length ?? 0) : units.flatMap(({ source }) => source.split(/\s+/)).length;
    if (!units.length) say("nothing");
    else if (continuing) say("tokens-taken", { tokens: n, seconds });
    else say("words-taken", { words: n, seconds });
    busy(false);
    if (units.length) choose(0);
  },
  explained({ unit, alternatives, aligns, weights, read, wrote }) {
    if (unit === chosen) show(units[unit], aligns, weights ? explanation(units[unit], alternatives, weights, read, wrote) : []);
  },
  walked({ number, walk, error }) {
    settle(number, { walk, error: error && t(error) });
    if (wish.has("walk")) setTimeout(() => scrollTo(0, scrollY + (look?.node.getBoundingClientRect().top ?? 0) - 8)); // only in this frame
    wish.delete("walk");
  },
  searched: ({ number, text, logProb }) => settle(number, { text, logProb }),
  failed: ({ why, values }) => fail(why, values),
};

/** Begin with the text of the address, or with an example. @param {string} own of the model */
function begun(own) {
  example = withoutTarget(own);
  if (wish.has("text") || !source.value) enter(wish.get("text") ?? own);
  if (wish.has("text") || (source.value && (touring || wish.has("walk")))) translate();
}

/** The target token in front of a text. @param {string} text @returns {string} */
const targetOf = (text) => [...to.options].map(({ value }) => value).find((token) => text.startsWith(token)) ?? "";

/** @param {string} line */
function withoutTarget(line) {
  const token = targetOf(line);
  return token ? line.slice(token.length).trimStart() : line;
}

/** Put a text into the page; the target token in front of a line goes to the menu. @param {string} text */
function enter(text) {
  to.value = targetOf(text) || to.value;
  source.value = text.includes("\n") ? text : withoutTarget(text);
}

/** Texts of the page for a language model. */
function continueTexts() {
  continuing = true;
  byId("sampling").hidden = false;
  [start.dataset.t, byId("does").dataset.t, byId("written").dataset.t] = ["continue", "continues", "continuation"];
  source.dataset.tPlaceholder = "write-beginning";
  output.classList.add("continued");
  translatePage();
}

const targetName = (/** @type {string} */ token) => languageName(token.slice(2, -1), token);

/** A menu of target languages. @param {string[]} targets tokens such as <2de> */
function offer(targets) {
  to.replaceChildren(...targets.map((token) => element("option", { value: token }, targetName(token))));
  byId("into").hidden = false;
}

let said = () => {}; // writes the message of the status line, also anew when the language changes

/** @param {string} key of a text @param {Record<string, string | number>} [values] */
function say(key, values = {}) {
  status.classList.remove("error");
  said = () => status.replaceChildren(t(key, values));
  said();
}

/** @param {string} why @param {Record<string, number>} [values] */
function fail(why, values) {
  say("error", { why: t(why, values) });
  status.classList.add("error");
  if (loaded) busy(false);
}

/** @param {boolean} now */
function busy(now) {
  output.setAttribute("aria-busy", String(now));
  start.disabled = now;
  stop.disabled = !now;
  if (!now) progress.hidden = true;
}

/** @param {number} index @returns {HTMLButtonElement} */
function unitButton(index) {
  return element("button", { type: "button", class: "unit", disabled: true, "aria-pressed": "false", onclick: () => choose(index) });
}

function translate() {
  if (start.disabled) return;
  [chosen, began] = [-1, performance.now()];
  details.hidden = copy.disabled = true;
  progress.value = 0;
  busy(true);
  say(continuing ? "continuing" : "translating");
  const heat = Math.max(0, Number(temperature.value) || 0);
  if (continuing) worker.postMessage({ kind: "extend", text: source.value, temperature: heat, seed: heat ? seed++ : 0 });
  else worker.postMessage({ kind: "translate", text: source.value, target: to.value });
}

function halt() {
  if (stop.disabled) return;
  units.forEach(({ tokens, node }) => tokens ?? node.remove());
  say("stopped");
  stop.disabled = true;
  begin();
}

/** The buttons for the walk and the tour. @param {import("./figure.js").Figure} figure */
function openLater(figure) {
  look = new Inside(figure, walk, theme);
  guide?.node.remove();
  guide = new Guide({ figure, text: () => shown().words, ask: (stack, layer, head) => walk({ stack, layer, head }), search: (beam) => question({ kind: "search", beam }) }, theme, keepTour);
  if (touring && subject) form.before(guide.node);
}

const shown = () => /** @type {Unit} */ (subject);

/** Write everything in another language. */
function writeTexts() {
  translatePage();
  for (const one of to.options) one.textContent = targetName(one.value);
  const [toured, before] = [guide && !guide.panel.hidden, look];
  if (look) openLater(look.figure);
  if (toured) guide?.open(true);
  if (before && !before.panel.hidden) look?.open(true, before.place);
  if (!start.disabled && chosen >= 0) choose(chosen);
  said();
}

/** Ask the worker about the sentence that is shown. @param {any} about @returns {Promise<any>} */
function question(about) {
  const [{ source, tokens }, number] = [shown(), ++questions];
  worker.postMessage({ ...about, number, source, tokens });
  return new Promise((resolve) => asked.set(number, resolve));
}

/** @param {number} number @param {any} answer */
function settle(number, answer) {
  asked.get(number)?.(answer);
  asked.delete(number);
}

/** The steps of one layer and head for the chosen sentence. @param {{stack: string, layer: number, head: number}} where */
const walk = (where) => question({ kind: "walk", where });

/** @param {any} place of the tour, with which the address leads to this card and sentence @param {boolean} open whether the tour is shown @param {boolean} reader whether the reader went there */
function keepTour(place, open, reader) {
  const model = models.length > 1 ? `&model=${encodeURIComponent(current.dataset.name ?? "")}` : "";
  keepAddress(writeHash({ ...START, ...place, view: open ? "tour" : "text", text: shown().source }) + model, reader);
}

/** Show more of a sentence. @param {number} index */
function choose(index) {
  const { source, tokens } = units[index];
  chosen = index;
  units.forEach(({ node }, i) => node.setAttribute("aria-pressed", String(i === index)));
  worker.postMessage({ kind: "explain", unit: index, source, tokens });
}

/**
 * Word alignment and alternatives of a translation.
 * @param {Unit} unit
 * @param {{text: string, logProb: number}[]} alternatives
 * @param {any} weights
 * @param {string[]} read
 * @param {string[]} wrote
 */
function explanation(unit, alternatives, weights, read, wrote) {
  const items = (/** @type {string[]} */ pieces) => pieces.map((piece) => ({ text: label(piece), kind: kind(piece) }));
  const texts = { keys: items(read), queries: items(wrote), keysTitle: t("tokens-read"), queriesTitle: t("tokens-written") };
  store.listeners.clear();
  Object.assign(store.state, { hover: null, fix: null });
  drawn = { columns: new Columns(texts, store), weights };
  const others = alternatives.filter(({ text }, i) => text !== unit.text && alternatives.findIndex((one) => one.text === text) === i);
  return [element("section", {}, element("h2", {}, t("word-alignment")), drawn.columns.node), element("section", {}, element("h2", {}, t("alternatives")), listOf(others, unit.text))];
}

/** @param {Unit} unit @param {any} aligns the head that aligns its words @param {HTMLElement[]} explained */
function show(unit, aligns, explained) {
  subject = unit;
  if (touring && guide && !guide.node.isConnected) form.before(guide.node);
  details.replaceChildren(
    element("p", { class: "source", dir: "auto" }, unit.source),
    ...explained,
    ...(guide && !touring ? [guide.node] : []),
    ...(look ? [look.node] : []),
  );
  details.hidden = false;
  look?.forget();
  guide?.forget(aligns);
  if (wish.has("walk")) look?.open(true);
  if (wish.get("view") === "tour") guide?.open(true);
  wish.delete("view");
  store.subscribe(draw);
  draw();
}

/** @param {{text: string, logProb: number}[]} others @param {string} best */
function listOf(others, best) {
  if (!others.length) return element("p", { class: "quiet" }, t("no-alternatives"));
  const words = (/** @type {string} */ text) =>
    changes(text, best).flatMap(({ word, changed }, i) => [i ? " " : "", changed ? element("mark", {}, word) : word]);
  const item = (/** @type {{text: string, logProb: number}} */ { text, logProb }) =>
    element("li", {}, element("span", { dir: "auto" }, ...words(text)), element("span", { class: "numbers" }, percent(Math.exp(logProb))));
  return element("ol", { class: "alternatives" }, ...others.map(item));
}

function theme() {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function draw() {
  drawn?.columns.update(drawn.weights, store.state, theme());
}

function redraw() {
  draw();
  look?.update();
  guide?.update();
}

if (models.length > 1) {
  byId("model").replaceChildren(...models.map(({ dataset }) => element("option", { value: dataset.name }, dataset.name ?? "")));
  byId("model").value = current.dataset.name;
  byId("model").addEventListener("change", () => {
    const address = new URLSearchParams(location.hash.slice(1));
    address.set("model", byId("model").value);
    for (const name of ["text", "cell"]) address.delete(name);
    if (source.value && source.value !== example) address.set("text", source.value);
    if (look && !look.panel.hidden) address.set("walk", "1");
    location.hash = `${address}`;
  });
  byId("choice").hidden = false;
}
addEventListener("hashchange", ({ oldURL, newURL }) => {
  // An answer of the worker can have changed the address since: what counts is where the reader went
  const address = settled(readHash(new URL(oldURL).hash).language, new URL(newURL).hash);
  const [text, spoken] = [address.get("text"), address.get("language")];
  const same = modelOf(address) === current && (spoken ?? language) === language && !address.has("walk");
  if (same && guide && subject && (text ?? subject.source) === subject.source) guide.go(readHash(location.hash));
  else location.reload();
});
source.addEventListener("input", () => (to.value = targetOf(source.value) || to.value));
to.addEventListener("change", () => (source.value = source.value.split("\n").map(withoutTarget).join("\n")));
form.addEventListener("submit", (/** @type {Event} */ event) => (event.preventDefault(), translate()));
stop.addEventListener("click", halt);
copy.addEventListener("click", async () => {
  const lines = [...output.children].map((line) => line.textContent);
  try {
    await navigator.clipboard.writeText(lines.join("\n"));
    say("copied");
  } catch {
    say("cannot-copy");
  }
});
addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
  if (event.key === "Escape") halt();
});
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (forgetColours(), redraw()));
translatePage();
offerLanguages(byId("language"), writeTexts);
say("loading");
begin();
