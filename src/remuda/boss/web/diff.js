// A unified diff, side by side where there is room.
import { html, signal, useEffect, useMemo, useState } from './lib.js';
import { chunks, visible } from './text.js';

const wide = matchMedia('(min-width: 1180px)');
export const isWide = signal(wide.matches);
wide.addEventListener('change', () => { isWide.value = wide.matches; });

const HUNK = /^@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@(.*)$/;
const FIRST_ROWS = 400;
/** Rows of the table. What follows is plain text: each row has about ten elements, and a diff may have 500,000 lines. */
const MOST_ROWS = 4000;
const LONGEST = 4000;

/** Rows of a diff: {kind: file | hunk | same | del | add | note, text, old, now}. */
export function parseDiff(text) {
  const rows = [];
  let old = 0;
  let now = 0;
  let inHunk = false;
  const lines = String(text ?? '').split('\n');
  if (lines.at(-1) === '') lines.pop();
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    const hunk = HUNK.exec(line);
    if (hunk) {
      [old, now, inHunk] = [Number(hunk[1]), Number(hunk[2]), true];
      rows.push({ kind: 'hunk', text: hunk[3].trim(), old, now });
    } else if (line.startsWith('--- ') && lines[at + 1]?.startsWith('+++ ') && HUNK.test(lines[at + 2] ?? '')) {
      const [before, after] = [line.slice(4), lines[at + 1].slice(4)];
      rows.push({ kind: 'file', text: after === '/dev/null' ? before.replace(/^a/, '') : after.replace(/^b(?=\/|$)/, '') });
      [inHunk, at] = [false, at + 1];
    } else if (!inHunk) rows.push({ kind: 'note', text: line });
    else if (line[0] === '+') rows.push({ kind: 'add', text: line.slice(1), now: now++ });
    else if (line[0] === '-') rows.push({ kind: 'del', text: line.slice(1), old: old++ });
    else if (line[0] === '\\') rows.push({ kind: 'note', text: line });
    else rows.push({ kind: 'same', text: line.slice(1), old: old++, now: now++ });
  }
  return rows;
}

/** Put removed and added lines next to each other. */
export function sideBySide(rows) {
  const found = [];
  for (let at = 0; at < rows.length;) {
    if (rows[at].kind !== 'del' && rows[at].kind !== 'add') { found.push(rows[at]); at += 1; continue; }
    const [removed, added] = [[], []];
    for (; rows[at]?.kind === 'del' || (rows[at]?.kind === 'note' && rows[at].text[0] === '\\'); at += 1) removed.push(rows[at]);
    for (; rows[at]?.kind === 'add' || (rows[at]?.kind === 'note' && rows[at].text[0] === '\\'); at += 1) added.push(rows[at]);
    for (let one = 0; one < Math.max(removed.length, added.length); one += 1) {
      found.push({ kind: 'pair', del: removed[one], add: added[one] });
    }
  }
  return found;
}

/** Where two lines differ: the length of what they share at the beginning and at the end. */
function shared(one, other) {
  const most = Math.min(one.length, other.length, LONGEST);
  let begin = 0;
  while (begin < most && one[begin] === other[begin]) begin += 1;
  let end = 0;
  while (end < most - begin && one[one.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  return begin + end > 0.3 * Math.max(one.length, other.length) ? [begin, end] : null;
}

function Line({ text, other }) {
  const place = other === undefined ? null : shared(text, other);
  if (!place) return visible(text) || ' ';
  const [begin, end] = place;
  const last = text.length - end;
  return html`${visible(text.slice(0, begin))}<mark>${visible(text.slice(begin, last))}</mark>${visible(text.slice(last))}`;
}

const Cell = ({ row, side, other, sign }) => (row && row.kind !== 'note'
  ? html`<td class="number" data-n=${row[side]}></td><td class="line ${row.kind}" dir="ltr"><span class="sign" aria-hidden="true">${sign}</span><${Line} text=${row.text} other=${other} /></td>`
  : html`<td class="number"></td><td class="line ${row ? 'note' : 'none'}" dir="ltr">${row ? visible(row.text) : ''}</td>`);

function Row({ row, split }) {
  switch (row.kind) {
    case 'file': return html`<tr class="file"><th colspan="4" scope="colgroup"><bdi>${visible(row.text)}</bdi></th></tr>`;
    case 'hunk': return html`<tr class="hunk"><td colspan="4">⋯ line ${row.now} ${visible(row.text)}</td></tr>`;
    case 'note': return html`<tr class="note"><td colspan="4">${visible(row.text)}</td></tr>`;
    case 'pair': return html`<tr><${Cell} row=${row.del} side="old" sign="−" other=${row.add?.text} /><${Cell} row=${row.add} side="now" sign="+" other=${row.del?.text} /></tr>`;
    default: break;
  }
  if (split) {
    return html`<tr><td class="number" data-n=${row.old}></td><td class="line" dir="ltr"><span class="sign"></span>${visible(row.text)}</td>
      <td class="number" data-n=${row.now}></td><td class="line" dir="ltr"><span class="sign"></span>${visible(row.text)}</td></tr>`;
  }
  const sign = { add: '+', del: '−' }[row.kind] ?? ' ';
  return html`<tr><td class="number" data-n=${row.old}></td><td class="number" data-n=${row.now}></td>
    <td class="line ${row.kind}" dir="ltr" colspan="2"><span class="sign">${sign}</span>${visible(row.text)}</td></tr>`;
}

const SIGNS = { add: '+', del: '-', same: ' ' };
const plain = (row) => (row.kind === 'hunk' ? `@@ line ${row.now} @@ ${row.text}` : `${SIGNS[row.kind] ?? ''}${row.text}`);

/** `onAll` is called once every line is shown. */
export function Diff({ text, onAll, narrow = false, first = FIRST_ROWS }) {
  const [isOpen, open] = useState(false);
  const split = isWide.value && !narrow;
  const all = useMemo(() => parseDiff(text), [text]);
  const isShort = all.length <= first;
  const most = isShort || isOpen ? MOST_ROWS : first;
  useEffect(() => { if (onAll && (isShort || isOpen)) onAll(); }, [isShort, isOpen, text]);
  // Kept: a key in a field beside it draws this again.
  const shown = useMemo(() => {
    // Cut after the lines are side by side: else its beginning has only what was removed.
    const rows = (split ? sideBySide(most === MOST_ROWS ? all.slice(0, most) : all) : all).slice(0, most);
    return rows.map((row, at) => html`<${Row} key=${at} row=${row} split=${split} />`);
  }, [all, most, split]);
  const rest = useMemo(() => (isOpen ? chunks(all.slice(most).map(plain).join('\n')).map((part) => html`<pre class="part" dir="ltr">${visible(part)}</pre>`) : []), [all, most, isOpen]);
  return html`<div class="diff">
    <table class=${split ? 'split' : 'unified'} aria-label="Changes">
      <colgroup><col class="number" /><col class=${split ? '' : 'number'} /><col class=${split ? 'number' : ''} /><col /></colgroup>
      <tbody>${shown}</tbody></table>
    ${rest.length > 0 && html`<div class="long" role="group" aria-label="More changes">${rest}</div>`}
    ${!(isShort || isOpen) && html`<button class="small" onClick=${() => open(true)}>Show all ${all.length.toLocaleString('en')} lines</button>`}
  </div>`;
}
