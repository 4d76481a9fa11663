// What the boss knows, as signals. Lists first, then changes from the id that the lists had.
import { batch, computed, signal, useEffect } from './lib.js';
import { ApiError, events, get, path, post } from './api.js';
import { parse } from './text.js';
import { clock, slow } from './time.js';

/** connecting, live, lost (then everything shown is old), out (logged out). */
export const link = signal({ state: 'connecting', since: clock(), why: '' });
export const version = signal('');
export const items = signal(new Map());
export const sessions = signal(new Map());
export const approvals = signal(new Map());
export const limits = signal([]);
/** Only agents and items of this machine, not of other hosts. */
export const onlyHere = signal(false);
export const hasHosts = computed(() => [...sessions.value.values()].some((one) => one.host));
/** Changes that views listen to: called with the kind and the document of each change. */
export const listeners = new Set();

const KEPT_APPROVALS = 300;
const SILENCE = 25_000; // the boss shows a sign of life every 15 s
const FLUSH = 40;
/** Characters of a text in lists; see `useWhole`. */
const CUT = 4000;

const changed = new Map();
let flushing = 0;
let flushed = 0;

function flush() {
  flushing = 0;
  flushed = Date.now();
  batch(() => {
    for (const [target, documents] of changed) {
      const next = new Map(target.value);
      for (const one of documents.values()) next.set(one.id, { ...next.get(one.id), ...one });
      if (target === approvals && next.size > KEPT_APPROVALS) forget(next);
      if (target === items) dropResolved(next);
      target.value = next;
    }
  });
  changed.clear();
}

function forget(map) {
  for (const [id, one] of map) {
    if (map.size <= KEPT_APPROVALS) return;
    if (one.state !== 'open') map.delete(id);
  }
}

function dropResolved(map) {
  const old = clock() - 600;
  for (const [id, one] of map) if (one.resolved_at && one.resolved_at < old) map.delete(id);
}

const TARGETS = { session: sessions, item: items, approval: approvals, host_session: sessions, host_item: items };

/** The first change is drawn at once, and those that come soon after it together. */
export function take(kind, document) {
  const target = TARGETS[kind];
  if (target) {
    if (!changed.has(target)) changed.set(target, new Map());
    const soon = changed.get(target);
    soon.set(document.id, { ...soon.get(document.id), ...document }); // a text that was cut comes without the rest
    if (!flushing) flushing = setTimeout(flush, Math.max(0, flushed + FLUSH - Date.now()));
  }
  if (kind === 'host_item') fetchRequests([document]);
  for (const listen of listeners) listen(kind, document);
}

/** The list of requests has those of this machine. One of another host is fetched, and again when it is decided. */
function fetchRequests(list) {
  for (const { host, detail, resolved_at: resolvedAt } of list) {
    if (host && detail?.ask && approvals.value.has(detail.ask) === Boolean(resolvedAt)) {
      get(path('approvals', detail.ask)).then((one) => take('approval', one), () => { /* its host cannot be reached */ });
    }
  }
}

const byId = (list) => new Map(list.map((one) => [one.id, one]));

async function load(abort) {
  // The queue first: its id is the oldest, and changes that come twice do no harm.
  const queue = await get('queue', { hidden: true, hosts: true, cut: CUT }, abort);
  const [all, open, decided] = await Promise.all([get('sessions', { all: true, hosts: true, cut: CUT }, abort),
    get('approvals', { state: 'open', limit: 1000, cut: CUT }, abort), get('approvals', { limit: 30, cut: CUT }, abort)]);
  batch(() => {
    items.value = byId(queue.items);
    limits.value = queue.limits;
    sessions.value = byId(all.sessions);
    approvals.value = byId([...decided.approvals, ...open.approvals]);
  });
  fetchRequests(queue.items);
  return queue.last_event_id;
}

/** Nothing of what was shown stays on the screen of a browser that is logged out. */
function forgetAll(why) {
  clearTimeout(flushing);
  flushing = 0;
  changed.clear();
  batch(() => {
    for (const one of [items, sessions, approvals]) one.value = new Map();
    limits.value = [];
    say('out', why);
  });
}

function say(state, why = '') {
  if (link.value.state !== state || link.value.why !== why) {
    const since = link.value.state === state ? link.value.since : clock();
    link.value = { state, since, why };
  }
}

const bootOf = (id) => id.slice(0, id.lastIndexOf('-'));

let current = null;
/** Read everything again. */
export function refresh() { current?.again(); }

export async function logOut() {
  try { await post('logout'); } catch { /* the stream will say */ }
  refresh();
}

// The back button can bring back a page as it was: it may be old, or logged out since.
addEventListener('pageshow', (event) => { if (event.persisted && link.value.state !== 'out') { say('lost', 'this page was put away'); refresh(); } });

/** Follow the boss for as long as the page is open. */
export async function follow() {
  let lastId = null;
  for (let pause = 250; ; pause = Math.min(pause * 2, 4000)) {
    const abort = new AbortController();
    let heard = Date.now();
    let beat = Date.now();
    const watch = setInterval(() => {
      // A gap in our own timer: the machine slept, and the connection may be dead without a sign.
      const slept = Date.now() - beat > 20_000;
      beat = Date.now();
      if (slept || Date.now() - heard > SILENCE) abort.abort();
    }, 2000);
    current = { again: () => { lastId = null; pause = 250; abort.abort(); } };
    try {
      if (lastId === null) lastId = await load(abort.signal);
      for await (const event of events(`events?cut=${CUT}`, lastId, abort.signal)) {
        heard = Date.now();
        if (event === null) continue;
        // Of another run of the boss, or after a gap: what is shown is old until all of it was read again.
        if (event.kind === 'reset' || bootOf(event.id) !== bootOf(lastId)) { lastId = null; say('lost', 'reading everything again'); break; }
        if (event.kind === 'hello') {
          version.value = JSON.parse(event.data).version ?? '';
          pause = 250;
          say('live');
        } else {
          lastId = event.id;
          take(event.kind, parse(event.data));
        }
      }
      if (lastId === null) { clearInterval(watch); abort.abort(); continue; }
      say('lost', 'the boss ended the connection');
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) { clearInterval(watch); forgetAll(error.message); return; }
      const isAgain = error.name === 'AbortError' && lastId === null;
      if (!isAgain) say('lost', error instanceof ApiError ? error.message : 'the connection was lost');
    }
    clearInterval(watch);
    abort.abort();
    const heardAgain = new AbortController();
    await new Promise((go) => {
      setTimeout(go, pause);
      current = { again: () => { lastId = null; pause = 250; go(); } };
      for (const [target, name] of [[window, 'online'], [document, 'visibilitychange']]) target.addEventListener(name, go, { signal: heardAgain.signal });
    });
    heardAgain.abort();
  }
}

// ── what follows from it ──

export const isLive = computed(() => link.value.state === 'live');
export const sessionOf = (item) => sessions.value.get(item.session_id) ?? item.session ?? null;

/** Read the texts of an item or a request that are cut. */
export function useWhole(one, kind, where) {
  useEffect(() => {
    if (one?.cut?.length && isLive.value) get(path(where, one.id)).then((found) => take(kind, one.cut.reduce((part, name) => ({ ...part, [name]: found[name] }), { id: one.id, cut: [] })), () => {});
  }, [one, isLive.value]);
}

/** The name of a kept session, else its folder, else the beginning of its id. */
function plainLabel(session) {
  const folder = (session.repo || session.cwd || '').replace(/\/+$/, '').split('/').pop();
  const name = session.name || folder || session.id.slice(session.host ? session.host.length + 1 : 0).slice(0, 8);
  return session.host ? `${session.host}/${name}` : name;
}

const often = computed(() => {
  const found = new Map();
  for (const one of sessions.value.values()) if (!one.ended) found.set(plainLabel(one), found.has(plainLabel(one)));
  return found;
});

/** The same, with the beginning of the id if several agents have it. */
export function label(session, id = '') {
  if (!session) return id.slice(0, 8);
  const text = plainLabel(session);
  return often.value.get(text) && !session.name ? `${text} ${session.id.slice(0, 8)}` : text;
}

const place = (item) => Math.max(item.since, item.skipped_at ?? 0);
const inOrder = (one, other) => place(one) - place(other) || (one.id < other.id ? -1 : 1);
export const isHidden = (item, now) => now < Math.max(item.skip_until ?? 0, item.snooze_until ?? 0);

const open = computed(() => [...items.value.values()].filter((one) => !one.resolved_at).sort(inOrder));
const shown = computed(() => open.value.filter((one) => !(onlyHere.value && one.host)));
/** Waiting items in order. Reads the slow clock: an item that was put off comes back by time alone. */
export const waiting = computed(() => { slow.value; return shown.value.filter((one) => !isHidden(one, clock())); });
export const putOff = computed(() => { slow.value; return shown.value.filter((one) => isHidden(one, clock())); });
export const decided = computed(() => [...approvals.value.values()].filter((one) => one.state !== 'open')
  .sort((one, other) => (other.at ?? other.asked_at) - (one.at ?? one.asked_at)).slice(0, 30));

export const byAgent = computed(() => {
  const found = new Map();
  for (const one of open.value) found.set(one.session_id, one);
  return found;
});
