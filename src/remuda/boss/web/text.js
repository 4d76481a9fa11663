// Text from outside: bounded, without invisible characters, and kept from reordering what is next to it.
import { html, useEffect, useMemo, useState } from './lib.js';

// In a request nothing may hide. Prose keeps what languages and emoji need.
// Letters and marks without a shape are in \p{DI}; U+2800 is a pattern of no dots. A mark may say how an emoji looks.
const STRICT = /(?![\n\t])(?!(?<=\p{ExtPict})[\ufe0e\ufe0f])[\p{C}\p{Zl}\p{Zp}\p{DI}\u2800]|(?! )\p{Zs}/gu;
const PROSE = /(?![\n\t])[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u00ad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e01ef}]/gu;

function byNumber(one) {
  const code = one.codePointAt(0).toString(16);
  return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, '0')}`;
}

export const visible = (text) => String(text ?? '').replace(STRICT, byNumber);
export const prose = (text) => String(text ?? '').replace(/\r\n/g, '\n').replace(PROSE, byNumber);

/** The beginning of a text as one line, without the marks of Markdown. */
export const gist = (text, limit) => oneLine(String(text ?? '').slice(0, 4000).replace(/```\w*|\*\*|`|^#{1,6} /gm, ''), limit);

/** The beginning of a text as one line. */
export function oneLine(text, limit = 200) {
  const start = String(text ?? '').slice(0, limit * 4).replace(/\s+/g, ' ').trim();
  return visible(start.length > limit ? `${start.slice(0, limit)}…` : start);
}

export const Name = ({ text, limit = 80 }) => html`<bdi class="name">${oneLine(text, limit)}</bdi>`;

/** Rows of a list that are drawn at first, and with each press of `More`. */
export const STEP = 200;

/** Draws more rows of a list of `count`; `most` is the signal that says how many are drawn. */
export const More = ({ most, count }) => (count > most.value ? html`<p class="tools"><button onClick=${() => { most.value += STEP; }}>
  Show more: ${plural(count - most.value, 'row')} left</button></p>` : null);

export const FIRST = 20_000;
const CHUNK = 50_000;

/** Split without breaking a surrogate pair, at a line end where one is near. */
export function chunks(text, size = CHUNK) {
  const found = [];
  for (let at = 0; at < text.length;) {
    let end = Math.min(text.length, at + size);
    if (end < text.length) {
      const line = text.lastIndexOf('\n', end);
      if (line > at + size / 2) end = line + 1;
      else if (/[\ud800-\udbff]/.test(text[end - 1])) end -= 1;
    }
    found.push(text.slice(at, end));
    at = end;
  }
  return found;
}

/**
 * A long text: its beginning, and the rest on demand, in pieces laid out when they are seen.
 * `onAll` is called once everything is shown.
 */
export function Long({ text, clean = visible, first = FIRST, onAll, label = 'text', dir = 'auto' }) {
  const whole = String(text ?? '');
  const [isOpen, open] = useState(false);
  const isShort = whole.length <= first;
  useEffect(() => { if (onAll && (isShort || isOpen)) onAll(); }, [isShort, isOpen, whole]);
  // Kept: a key in a field beside it draws this again, and a text may have 5 MB.
  const parts = useMemo(() => (isOpen && !isShort ? chunks(whole) : [whole.slice(0, first)])
    .map((part) => (isShort ? clean(part) : html`<pre class="part" dir=${dir}>${clean(part)}</pre>`)), [whole, isOpen, first, clean, dir]);
  if (isShort) return html`<pre class="long" dir=${dir} tabindex="0" aria-label=${label}>${parts}</pre>`;
  return html`<div class="long">
    ${parts}
    ${!isOpen && html`<button class="small" onClick=${() => open(true)}>
      Show all ${whole.length.toLocaleString('en')} characters</button>`}
  </div>`;
}

// ── JSON ──

/** An integer that a number of JavaScript would round: as it was written, also when it is sent back. */
const exact = (source) => ({ toString: () => source, valueOf: () => Number(source), toJSON: () => JSON.rawJSON(source) });

const isRounded = (value) => Number.isInteger(value) && !Number.isSafeInteger(value);
const keep = (_, value, { source }) => (isRounded(value) && /^-?\d+$/.test(source) ? exact(source) : value);
/** Only a text with such an integer is read the slow way. */
export const parse = (text) => (JSON.rawJSON && /(^|[:[,\s])-?\d{16}/.test(text) ? JSON.parse(text, keep) : JSON.parse(text));
export const json = (value) => JSON.stringify(value, null, 2) ?? '';

/** Whether a value has an integer that was rounded: a browser without `JSON.rawJSON` (before 2025). */
export function losesDigits(value) {
  if (JSON.rawJSON) return false;
  return value && typeof value === 'object' ? Object.values(value).some(losesDigits) : isRounded(value);
}

export const plural = (count, word) => `${count.toLocaleString('en')} ${word}${count === 1 ? '' : 's'}`;

export function tokens(count) {
  if (count == null) return 'unknown';
  if (count < 1000) return String(count);
  const [size, unit] = count < 999_500 ? [1e3, 'k'] : count < 999_500_000 ? [1e6, 'M'] : [1e9, 'G'];
  const value = count / size;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

export function money(value, currency = 'USD') {
  if (value == null) return 'unknown';
  return new Intl.NumberFormat('en', { style: 'currency', currency, maximumFractionDigits: value < 1 ? 4 : 2 }).format(value);
}
