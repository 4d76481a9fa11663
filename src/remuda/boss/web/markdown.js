// Markdown as elements, never as HTML: what is not known here is shown as it was written.
import { html, useEffect, useMemo } from './lib.js';
import { Long, prose } from './text.js';

const MOST = 60_000;
const DEEPEST = 6;
// No two parts of one expression match the same characters: then the time grows with the length of the line only.
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const LANGUAGE = /^[\w+#.-]{0,20}$/;
const HEADING = /^ {0,3}(#{1,6})\s(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^(\s*)(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const TABLE = /^\|?:?-+:?(\|:?-+:?)*\|?$/;
// Each alternative is bounded, so that the time grows with the length of the text only.
const INLINE = new RegExp([
  '(?<!`)(`+)([^`][^]{0,800}?)\\1(?!`)',
  '\\*\\*(?=\\S)([^]{1,500}?\\S|\\S)\\*\\*',
  '(?<![\\w*])[*_](?=\\S)([^*_\\n]{1,400})(?<=\\S)[*_](?![\\w*])',
  '~~([^~\\n]{1,400})~~',
  '!?\\[([^\\]\\n]{0,500})\\]\\(([^()\\s]{1,2000}(?:\\([^()\\s]{0,200}\\))?)\\)',
  '<?(https?:\\/\\/[^\\s<>"\'`]{1,2000}[^\\s<>"\'`.,;:!?)\\]])>?',
].join('|'), 'gu');

const asIs = (text) => text;

/** `onAll` is called once all of it is shown. */
export function Markdown({ text, onAll }) {
  // Kept: each key in a field beside it would parse all of it again.
  const [shown, rest] = useMemo(() => {
    const whole = prose(text);
    const cut = whole.length > MOST ? whole.lastIndexOf('\n', MOST) : -1;
    const end = whole.length <= MOST ? whole.length : cut > MOST / 2 ? cut : MOST;
    return [blocks(whole.slice(0, end).split('\n'), 0), whole.slice(end)];
  }, [text]);
  useEffect(() => { if (onAll && !rest) onAll(); }, [text]);
  return html`<div class="markdown" dir="auto">${shown}
    ${rest && html`<${Long} text=${rest} clean=${asIs} first=${2000} onAll=${onAll} />`}</div>`;
}

/** A link only where it leads to a web page. Any other address is shown as text. */
export function Link({ to, children }) {
  let address = null;
  try { address = new URL(to); } catch { /* not an address */ }
  if (!address || !['http:', 'https:'].includes(address.protocol) || address.username) {
    return html`<span>${children}${children !== to && html` (<bdi>${to}</bdi>)`}</span>`;
  }
  return html`<a href=${address.href} target="_blank" rel="noopener noreferrer nofollow"
    title=${address.href.slice(0, 500)}>${children}</a>${children !== to && html` (<bdi>${address.host}</bdi>)`}`;
}

function inline(text, depth = 0) {
  if (depth > DEEPEST) return text;
  const found = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    const [all, , code, strong, weak, struck, label, target, address] = match;
    if (match.index > at) found.push(text.slice(at, match.index));
    at = match.index + all.length;
    if (code !== undefined) found.push(html`<code dir="auto">${code.replace(/^ (.*\S.*) $/s, '$1')}</code>`);
    else if (strong !== undefined) found.push(html`<strong>${inline(strong, depth + 1)}</strong>`);
    else if (weak !== undefined) found.push(html`<em>${inline(weak, depth + 1)}</em>`);
    else if (struck !== undefined) found.push(html`<s>${inline(struck, depth + 1)}</s>`);
    else if (target !== undefined) found.push(html`<${Link} to=${target}>${label || target}<//>`);
    else found.push(html`<${Link} to=${address}>${address}<//>`);
  }
  if (at < text.length) found.push(text.slice(at));
  return found;
}

const closes = (line, fence) => line.startsWith(fence) && !line.replaceAll(fence[0], '');
const CELLS = 30;

function cells(line) {
  const found = line.trim().replace(/^\||\|$/g, '').split('|');
  return [...found.slice(0, CELLS), ...(found.length > CELLS ? [found.slice(CELLS).join('|')] : [])].map((one) => one.trim());
}

function blocks(lines, depth) {
  const found = [];
  let at = 0;
  const paragraph = [];
  const flush = () => {
    if (paragraph.length) found.push(html`<p dir="auto">${inline(paragraph.join('\n'))}</p>`);
    paragraph.length = 0;
  };
  while (at < lines.length) {
    const line = lines[at];
    let match;
    if (!line.trim()) { flush(); at += 1; }
    else if ((match = FENCE.exec(line))) {
      flush();
      const fence = match[1];
      const body = [];
      for (at += 1; at < lines.length && !closes(lines[at].trim(), fence); at += 1) body.push(lines[at]);
      at += 1;
      if (!LANGUAGE.test(match[2].trim())) found.push(html`<p class="dim" dir="auto">${match[2]}</p>`);
      found.push(html`<pre class="code" tabindex="0"><code>${body.join('\n')}</code></pre>`);
    } else if ((match = HEADING.exec(line))) {
      flush();
      // The page has its own headings above these.
      found.push(html`<p class="heading h${match[1].length}" dir="auto" role="heading" aria-level=${Math.min(6, match[1].length + 3)}>${inline(match[2].trim())}</p>`);
      at += 1;
    } else if (RULE.test(line)) { flush(); found.push(html`<hr />`); at += 1; }
    else if (depth < DEEPEST && QUOTE.test(line)) {
      flush();
      const body = [];
      for (; at < lines.length && (match = QUOTE.exec(lines[at])); at += 1) body.push(match[1]);
      found.push(html`<blockquote dir="auto">${blocks(body, depth + 1)}</blockquote>`);
    } else if (depth < DEEPEST && ITEM.test(line)) {
      flush();
      const [next, list] = listAt(lines, at, depth);
      found.push(list);
      at = next;
    } else if (line.includes('|') && at + 1 < lines.length && lines[at + 1].includes('-') && TABLE.test(lines[at + 1].replace(/\s/g, ''))) {
      flush();
      const head = cells(line);
      const rows = [];
      for (at += 2; at < lines.length && lines[at].includes('|') && rows.length < 500; at += 1) rows.push(cells(lines[at]));
      found.push(html`<div class="scroll" tabindex="0" role="group" aria-label="table"><table><thead><tr>${head.map((one) => html`<th scope="col" dir="auto">${inline(one)}</th>`)}</tr></thead>
        <tbody>${rows.map((row) => html`<tr>${row.map((one) => html`<td dir="auto">${inline(one)}</td>`)}</tr>`)}</tbody></table></div>`);
    } else { paragraph.push(line); at += 1; }
  }
  flush();
  return found;
}

function listAt(lines, start, depth) {
  const [, indent, , first] = ITEM.exec(lines[start]);
  const isOrdered = first !== undefined;
  const items = [];
  let at = start;
  while (at < lines.length) {
    const match = ITEM.exec(lines[at]);
    if (!match || match[1].length > indent.length + 1 || match[1].length < indent.length) break;
    if ((match[3] !== undefined) !== isOrdered) break;
    const inner = match[1].length + (lines[at].slice(match[1].length).search(/\s\S/) + 1 || 2);
    const body = [match[4]];
    for (at += 1; at < lines.length; at += 1) {
      const line = lines[at];
      const leading = line.length - line.trimStart().length;
      const isMore = line.trim() ? leading > indent.length + 1 : lines[at + 1] !== undefined
        && /^\s/.test(lines[at + 1]) && lines[at + 1].trim();
      if (!isMore) break;
      body.push(line.slice(Math.min(inner, leading)));
    }
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] ?? '')) at += 1;
    items.push(html`<li dir="auto">${body.length === 1 ? inline(body[0]) : blocks(body, depth + 1)}</li>`);
  }
  return [at, isOrdered ? html`<ol start=${Number(first)}>${items}</ol>` : html`<ul>${items}</ul>`];
}
