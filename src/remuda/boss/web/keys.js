// The table of keys, which the dashboard and the popup share.
import { html, signal, useEffect, useLayoutEffect, useRef } from './lib.js';

let table = [];
const actions = new Map();
export const isHelpOpen = signal(false);

export async function loadKeys() {
  const response = await fetch(new URL('./keys.json', import.meta.url));
  table = await response.json();
  for (const one of table) for (const key of [one.key, ...(one.also ?? [])]) actions.set(key, one.action);
}

const TYPES_IN = 'input, textarea, select, [contenteditable], .xterm';
const isTyping = (event) => event.target instanceof Element && event.target.closest(TYPES_IN) !== null;

// A field can go away under the fingers, when someone else was first. Until they rest, what they type was meant for it.
const REST = 1500;
let field = null;
let typedAt = 0;
document.addEventListener('pointerdown', () => { field = null; }, true);
const isGone = (one) => !one.isConnected || one.matches(':disabled');
function isLeftOver(event) {
  const isFresh = Date.now() - typedAt < REST;
  if (isTyping(event)) field = ['Escape', 'Tab', 'Enter'].includes(event.key) ? null : event.target;
  else if (!field || !isGone(field) || !isFresh) { field = null; return false; }
  typedAt = Date.now();
  return true;
}

/** Call `act(action, event)` for each key of the table, unless the user types text. */
export function useKeys(act) {
  const latest = useRef(act);
  latest.current = act;
  // Not useEffect, which runs after the browser has drawn: a key pressed before that would be lost.
  useLayoutEffect(() => {
    const listen = (event) => {
      if (isLeftOver(event) || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
      if (event.key === 'Enter' && event.target.closest?.('button, a, summary')) return;
      if (isHelpOpen.value) return;
      const action = actions.get(event.key);
      if (action === 'help') { event.preventDefault(); isHelpOpen.value = true; }
      else if (latest.current(action ?? '', event)) event.preventDefault();
    };
    document.addEventListener('keydown', listen);
    return () => document.removeEventListener('keydown', listen);
  }, []);
}

export const keyOf = (action) => table.find((one) => one.action === action)?.key ?? '';
export const Key = ({ for: action }) => html`<kbd aria-hidden="true">${keyOf(action)}</kbd>`;

export function Help() {
  const dialog = useRef(null);
  useEffect(() => { if (isHelpOpen.value) dialog.current?.showModal(); else dialog.current?.close(); }, [isHelpOpen.value]);
  return html`<dialog ref=${dialog} class="help" aria-labelledby="help-title" onClose=${() => { isHelpOpen.value = false; }}
      onClick=${(event) => { if (event.target === dialog.current) dialog.current.close(); }}>
    <h2 id="help-title">Keys</h2>
    <table><tbody>${table.map((one) => html`<tr><th scope="row">${[one.key, ...(one.also ?? [])].map((key) => html`<kbd>${key.replace('Arrow', '')}</kbd> `)}</th>
      <td>${one.label}${one.confirm && html`, then <kbd>${one.confirm}</kbd>`}</td></tr>`)}
      <tr><th scope="row"><kbd>g</kbd> <kbd>1</kbd>–<kbd>4</kbd></th><td>Queue, Agents, Usage, Statistics</td></tr>
    </tbody></table>
    <form method="dialog"><button>Close</button></form>
  </dialog>`;
}
