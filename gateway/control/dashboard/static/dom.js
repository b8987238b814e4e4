// Making and changing elements. Text only ever becomes text: nothing here, or anywhere, parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes (`on…`: a listener; false or null: none) and children (text or elements). */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else put(element, name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Set the text of an element, if it is another. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

/** Set an attribute, if it is another; null and false take it away. */
export function put(element, name, value) {
  if (value === null || value === false || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value === true ? "" : value);
}

/**
 * Make the children of `parent` those of `items` ([key, item] in order): who stays keeps its element, and with it the
 * focus and whatever is open in it. `make(key)` returns {element, update(item)}.
 */
export function sync(parent, items, make) {
  const known = (parent.parts ??= new Map());
  const wanted = new Set();
  let next = parent.firstElementChild;
  for (const [key, item] of items) {
    wanted.add(key);
    let part = known.get(key);
    if (!part) known.set(key, (part = make(key)));
    part.update(item);
    if (part.element === next) next = next.nextElementSibling;
    else parent.insertBefore(part.element, next);
  }
  for (const [key, part] of known) {
    if (!wanted.has(key)) {
      part.element.remove();
      known.delete(key);
    }
  }
}
