// The frame of the page: views, the state of the connection, and what is announced.
import { effect, html, render, useEffect } from './lib.js';
import { Help, isHelpOpen, loadKeys } from './keys.js';
import { AgentsView } from './agents.js';
import { QueueView } from './queue.js';
import { later, route } from './route.js';
import { follow, label, link, logOut, refresh, sessionOf, version, waiting } from './store.js';
import { visible } from './text.js';
import { Since } from './time.js';

const VIEWS = [['queue', 'Queue'], ['agents', 'Agents'], ['usage', 'Usage'], ['statistics', 'Statistics']];

const PARTS = {
  __proto__: null, // the address bar can have any word
  queue: QueueView,
  agents: AgentsView,
  session: later(async () => (await import('./session.js')).SessionView),
  usage: later(async () => (await import('./figures.js')).UsageView),
  statistics: later(async () => (await import('./figures.js')).StatisticsView),
  notices: later(async () => (await import('./notices.js')).NoticesView),
};

const WORDS = { connecting: 'connecting', live: 'live', lost: 'not connected', out: 'logged out' };

function Connection() {
  const { state } = link.value;
  return html`<span class="connection ${state}"><span class="dot" aria-hidden="true"></span>${WORDS[state]}</span>`;
}

function Lost() {
  const { state, since, why } = link.value;
  if (state === 'out') {
    return html`<div class="banner" role="alert"><span>You are logged out. Run <code>remuda open</code> on the machine of the boss for a new link.</span><button class="small" onClick=${() => location.reload()}>Reload</button></div>`;
  }
  if (state !== 'lost') return null;
  return html`<div class="banner" role="alert"><span>Not connected for <${Since} at=${since} />: everything below is as it was then.</span>
    <span class="why">${why}</span><button class="small" onClick=${refresh}>Try now</button></div>`;
}

function Page() {
  const { view } = route.value;
  const View = PARTS[view] ?? QueueView;
  const count = waiting.value.length;
  const { state } = link.value;
  useEffect(() => { document.title = `${count ? `(${count}) ` : ''}Remuda`; navigator.setAppBadge?.(count).catch(() => {}); }, [count]);
  return html`
    <header class="bar">
      <a class="brand" href="#/queue"><img src=${new URL('./icon.svg', import.meta.url).href} alt="" width="20" height="20" />Remuda</a>
      <nav class="views" aria-label="Views">${VIEWS.map(([name, text]) => html`<a href=${`#/${name}`} aria-current=${name === view || (name === 'agents' && view === 'session') ? 'page' : undefined}>
        ${text}${name === 'queue' && count > 0 && html`<span class="count" aria-label=${`${count} waiting`}>${count}</span>`}</a>`)}</nav>
      <span class="right"><${Connection} /><button class="plain" aria-label="Keys" title="Keys" onClick=${() => { isHelpOpen.value = true; }}>?</button>
        <button class="plain" title=${`Remuda ${version.value}`} onClick=${logOut}>Log out</button></span>
    </header>
    <${Lost} />
    <main class=${state === 'lost' ? 'old' : ''}>${state === 'out' ? null : html`<${View} key=${view} />`}</main>
    <${Help} />`;
}

// ── announcements ──

const spoken = document.createElement('p');
spoken.className = 'spoken';
spoken.setAttribute('role', 'status');
spoken.setAttribute('aria-live', 'polite');
document.body.append(spoken);
let known = null;
effect(() => {
  const now = waiting.value;
  const fresh = known && now.filter((one) => !known.has(one.id));
  if (fresh?.length) spoken.textContent = fresh.slice(0, 3).map((one) => `${label(sessionOf(one), one.session_id).slice(0, 60)} waits: ${visible(one.reason)}`).join('. ');
  if (link.value.state === 'live') known = new Set(now.map((one) => one.id));
});

// Close notices of what no longer waits.
effect(() => {
  const now = new Set(waiting.value.map((one) => one.id));
  if (link.value.state === 'live') navigator.serviceWorker?.getRegistration().then(async (worker) => {
    for (const one of await worker?.getNotifications() ?? []) if (one.tag && !now.has(one.tag)) one.close();
  }, () => {});
});

// g, then a number: to a view.
let isGoing = false;
document.addEventListener('keydown', (event) => {
  if (event.target.closest?.('input, textarea, select, .xterm') || event.ctrlKey || event.metaKey || event.altKey) { isGoing = false; return; }
  const view = isGoing ? VIEWS[Number(event.key) - 1] : undefined;
  isGoing = event.key === 'g';
  if (view) location.hash = `#/${view[0]}`;
});

follow(); // its lists are under way while the keys are fetched
await loadKeys();
render(html`<${Page} />`, document.getElementById('page'));
