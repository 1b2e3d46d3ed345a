// @ts-check
// Elements of the page. Text becomes text nodes, never HTML: this is the only module that makes elements.

const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";

/**
 * A new HTML element. Functions are listeners (`onclick`), true is an attribute without value, false and null are left
 * out.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string)} children
 * @returns {any}
 */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * The same for a shape in a drawing.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string)} children
 * @returns {any}
 */
export function shape(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * The same for a part of a formula.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string)} children
 * @returns {any}
 */
export function mathElement(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(MATHML, tag), attributes, children);
}

/**
 * @param {Element} node
 * @param {Record<string, any>} attributes
 * @param {(Node | string)[]} children
 */
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...children);
  return node;
}

/**
 * A row of buttons of which one is pressed.
 * @param {string} label what is chosen, for screen readers and shown in front
 * @param {{value: any, text: string, title?: string}[]} options
 * @param {any} chosen
 * @param {(value: any) => void} choose
 * @returns {HTMLElement}
 */
export function choice(label, options, chosen, choose) {
  const buttons = options.map(({ value, text, title }) =>
    element("button", { type: "button", "aria-pressed": String(value === chosen), title, onclick: () => choose(value) }, text),
  );
  return element(
    "div",
    { class: "choice", role: "group", "aria-label": label },
    element("span", { class: "choice-label", "aria-hidden": "true" }, label),
    element("span", { class: "choice-buttons" }, ...buttons),
  );
}

/**
 * Remember which button or menu has the focus, for when it has been made anew.
 * @param {HTMLElement} node
 * @returns {(node: HTMLElement) => void}
 */
export function focusOf(node) {
  const buttons = (/** @type {HTMLElement} */ within) => [...within.querySelectorAll("button, select")];
  const place = buttons(node).indexOf(/** @type {any} */ (document.activeElement));
  return (made) => (place >= 0 ? buttons(made)[place]?.focus() : undefined);
}
