// Where we are (#/view/part/part), and parts of the page that are fetched when first shown.
import { html, signal, useEffect } from './lib.js';

function read() {
  const [view = '', ...parts] = location.hash.replace(/^#\/?/, '').split('/').map((one) => {
    try { return decodeURIComponent(one); } catch { return one; }
  });
  return { view: view || 'queue', parts };
}

export const route = signal(read());
addEventListener('hashchange', () => { route.value = read(); });
export const href = (...parts) => `#/${parts.map((one) => encodeURIComponent(one)).join('/')}`;
export function go(...parts) { location.hash = href(...parts); }
/** Change the address without a new entry in the history. */
export function replace(...parts) {
  history.replaceState(null, '', href(...parts));
  route.value = read();
}

const Unloaded = () => html`<div class="empty"><p>This part of the page could not be loaded.</p><button onClick=${() => location.reload()}>Reload the page</button></div>`;

export function later(load) {
  const found = signal(null);
  return (props) => {
    useEffect(() => { if (!found.value) load().then((part) => { found.value = part; }, () => { found.value = Unloaded; }); }, []);
    return found.value ? html`<${found.value} ...${props} />` : html`<p class="empty dim">Loading …</p>`;
  };
}
