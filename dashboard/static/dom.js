// Building the page from plain values: text stays text, nothing is parsed as HTML.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

const SYMBOL = /\b([PTKCEM])_(cross|onset|mem|gen|model|train|val|T)\b/g;

// "P_cross" becomes P with a subscript, wherever it stands in a sentence.
export function rich(text) {
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(SYMBOL)) {
    parts.push(text.slice(last, match.index));
    parts.push(el("var", {}, match[1], el("sub", {}, match[2])));
    last = match.index + match[0].length;
  }
  parts.push(text.slice(last));
  return parts;
}

let hide;
export function toast(text) {
  const box = document.getElementById("toast");
  box.textContent = text;
  box.classList.add("shown");
  clearTimeout(hide);
  hide = setTimeout(() => box.classList.remove("shown"), 2600);
}

export function debounce(action, wait = 160) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), wait);
  };
}
