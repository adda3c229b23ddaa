// Elements from plain data. Strings become text nodes: nothing on this page ever reads markup.
const SVG = "http://www.w3.org/2000/svg";

function dressed(element, about, inside) {
  for (const [name, value] of Object.entries(about)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...inside.filter((part) => part !== null && part !== undefined));
  return element;
}

export function make(name, about = {}, ...inside) {
  return dressed(document.createElement(name), about, inside);
}

export function drawn(name, about = {}, ...inside) {
  return dressed(document.createElementNS(SVG, name), about, inside);
}

// A token on one short line: blanks and line ends are seen.
export function spelt(text, most = 18) {
  const seen = text.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
  const letters = [...seen];
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : seen;
}

export function percent(p) {
  if (p >= 0.9995) return "100 %";
  return p >= 0.0995 ? `${Math.round(100 * p)} %` : p >= 0.0005 ? `${(100 * p).toFixed(1)} %` : p > 0 ? "< 0.1 %" : "0 %";
}

export function seconds(s) {
  return s < 0.9995 ? `${Math.round(1000 * s)} ms` : s < 99.95 ? `${s.toFixed(2)} s` : `${Math.round(s)} s`;
}

export function counted(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}
