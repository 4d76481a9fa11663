// Browsers that are notified: subscribe this one; list, try and remove them.
import { html, signal, useEffect } from './lib.js';
import { get, path, post, root } from './api.js';

const known = signal({ browsers: [] });
const note = signal('');
const worker = navigator.serviceWorker;

async function subscribe() {
  if (!worker || !window.PushManager) return 'This needs https, and on an iPhone the page on the home screen.';
  if (await Notification.requestPermission() !== 'granted') return 'This browser blocks notices of this page.';
  await worker.register(new URL('sw.js', root));
  const { pushManager } = await worker.ready;
  await (await pushManager.getSubscription())?.unsubscribe(); // it may have another key
  await post('push/subscribe', await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: known.value.key }));
  return 'This browser is notified.';
}

async function test() {
  const { browsers: [one] } = await post('push/test');
  return one?.error ? `${one.error}; ${one.advice}` : 'Sent.';
}

async function attempt(work) {
  try {
    note.value = await work();
    known.value = await get('push');
  } catch (error) { note.value = `${error.message}; ${error.hint ?? ''}`; }
}

export function NoticesView() {
  useEffect(() => { attempt(() => ''); }, []);
  const { install, key, own, browsers } = known.value;
  const button = (text, work) => html` <button onClick=${() => attempt(work)}>${text}</button>`;
  return html`<section class="figures"><h1 class="title tools">Notices</h1>
    ${key ? button('Notify this browser', subscribe) : install && html`<p>First run <code>${install}</code> and start the boss again.</p>`}
    <p role="status">${note.value}</p>
    <ul>${browsers.map(({ id, host }) => html`<li key=${id}>${id === own ? 'This browser' : `Login ${id}`} through ${host}
      ${id === own && button('Test', test)}${button('Remove', () => post(path('push', id, 'remove')).then(() => ''))}</li>`)}</ul>
    <p>Phones, chats, desktops: <code>remuda setup notify</code></p></section>`;
}
