// All agents: what each does, since when, and how we know.
import { computed, html, signal, useEffect } from './lib.js';
import { get, path } from './api.js';
import { useKeys } from './keys.js';
import { summary } from './request.js';
import { go, href } from './route.js';
import { approvals, byAgent, hasHosts, isLive, label, listeners, onlyHere, refresh, sessions } from './store.js';
import { More, Name, STEP, gist, oneLine, plural, tokens, visible } from './text.js';
import { Since, clock, slow, span } from './time.js';
import { GROUP_WORDS, State, groupOf } from './words.js';

const HOURS = 6;
const SHORTEST = 120;
const grouping = signal(localStorage.getItem('grouping') ?? 'folder');
const filter = signal('');
const withEnded = signal(false);
const strips = signal({ from: 0, to: 0, sessions: new Map() });
const opened = signal('');
const marked = signal('');
/** Rows that are drawn: each has a strip, and a browser needs seconds for thousands of them. */
const most = signal(STEP);

// ── what the last hours were ──

let asked = 0;
async function loadStrips() {
  asked = 0;
  try {
    const found = await get('states', { hours: HOURS });
    // Not more than is known, so that the strips of a new boss are not empty.
    let first = found.to - SHORTEST;
    for (const { segments } of found.sessions) for (const part of segments) if (part.state !== null && part.from < first) first = part.from;
    strips.value = { from: Math.max(found.from, first), to: found.to, sessions: new Map(found.sessions.map((one) => [one.id, one.segments])) };
  } catch { /* the strip stays as it was; the bar says that the connection is lost */ }
}
const askSoon = () => { if (!asked) asked = setTimeout(loadStrips, 3000); };

/** Keep the strips up to date while a view shows them. Returns what ends that. */
export function watchStrips() {
  loadStrips();
  const listen = (kind) => { if (kind === 'session') askSoon(); };
  listeners.add(listen);
  const timer = setInterval(() => { if (!document.hidden && isLive.value) loadStrips(); }, 60_000);
  return () => { listeners.delete(listen); clearInterval(timer); clearTimeout(asked); asked = 0; };
}

/** Coloured segments, with the shares of each state as its text. */
export function Strip({ id }) {
  const { from, to } = strips.value;
  const known = span(to - from);
  const segments = strips.value.sessions.get(id) ?? [];
  const length = Math.max(1, to - from);
  const share = new Map();
  const parts = segments.filter((one) => one.to > from).map((one) => {
    const group = one.state === null ? 'unknown' : groupOf(one.state);
    share.set(group, (share.get(group) ?? 0) + one.to - one.from);
    return html`<rect class=${group} x=${((one.from - from) / length) * 1000} width=${Math.max(1.5, ((one.to - one.from) / length) * 1000)} height="10" />`;
  });
  const words = [...share].sort((one, other) => other[1] - one[1]).map(([group, seconds]) => `${GROUP_WORDS[group]} ${span(seconds)}`);
  const text = !to ? 'Loading' : words.length ? `Last ${known}: ${words.join(', ')}` : `Last ${known}: not known`;
  return html`<svg class="strip" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=${text}><title>${text}</title>
    <rect class="ground" width="1000" height="10" />${parts}</svg>`;
}

// ── evidence ──

/** How we know a state: what each source says, and which one decides. */
export function Evidence({ session }) {
  const [key, stamp] = [session.id, `${session.state}/${session.agent_state}/${session.since}`];
  const found = evidence.value.get(key);
  useEffect(() => {
    let isOver = false;
    get(path('sessions', key)).then(
      (one) => { if (!isOver) evidence.value = new Map([[key, one]]); },
      (error) => { if (!isOver) evidence.value = new Map([[key, { error: error.message }]]); });
    return () => { isOver = true; };
  }, [key, stamp]);
  if (!found) return html`<p class="dim">Loading …</p>`;
  if (found.error) return html`<p class="dim">${visible(found.error)}</p>`;
  return html`${session.degraded?.length > 0 && html`<p class="outcome">Degraded: ${session.degraded.map((one) => visible(one)).join(', ')}</p>`}
    <div class="scroll" tabindex="0" role="group" aria-label="Evidence"><table class="plain-table evidence"><thead><tr><th scope="col">Source</th><th scope="col">Says</th><th scope="col">Age</th><th scope="col">What it saw</th></tr></thead>
    <tbody>${found.evidence.map((one) => html`<tr class=${one.counts === false ? 'dim' : ''}><th scope="row">${visible(one.source)}${one.decides && html` <span class="chip">decides</span>`}</th>
      <td><${State} state=${one.state} /></td><td class="figure">${span(one.age)}</td><td dir="auto">${oneLine(one.detail, 300)}</td></tr>`)}</tbody></table></div>
    ${found.evidence.length === 0 && html`<p class="dim">No source has said anything yet.</p>`}`;
}
const evidence = signal(new Map());

// ── the view ──

const { compare } = new Intl.Collator();
const folderOf = (session) => session.repo || session.cwd || 'no folder';
const groupKey = (session) => (grouping.value === 'host' ? session.host ?? 'this machine' : folderOf(session));

const shown = computed(() => {
  slow.value;
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const old = clock() - 86400;
  const all = [...sessions.value.values()].filter((one) => (one.ended == null ? true : withEnded.value && one.ended > old) && !one.replaced_by && !(onlyHere.value && one.host));
  const fits = (one) => {
    if (!words.length) return true;
    const text = [label(one), one.cwd, one.title, one.agent, one.agent_state, one.last_message].join(' ').toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const groups = new Map();
  for (const one of all.filter(fits)) {
    const key = groupKey(one);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(one);
  }
  const names = new Map(all.map((one) => [one, label(one)]));
  for (const list of groups.values()) list.sort((one, other) => compare(names.get(one), names.get(other)) || (one.id < other.id ? -1 : 1));
  return [...groups].sort(([one], [other]) => compare(one, other));
});

const inputOf = (one) => (one ? [one.input, one.cache_read, one.cache_write].reduce((sum, count) => (count == null ? sum : (sum ?? 0) + count), null) : null);

/** Limits agents and queue to this machine; nothing without a fleet. */
export function OnlyHere() {
  if (!hasHosts.value) return null;
  return html`<label class="check"><input type="checkbox" checked=${onlyHere.value} onChange=${(event) => { onlyHere.value = event.target.checked; }} /> only this machine</label>`;
}

export function AgentsView() {
  useEffect(watchStrips, []);
  const flat = shown.value.flatMap(([, list]) => list);
  useKeys((action) => {
    const at = flat.findIndex((one) => one.id === marked.value);
    if (action === 'down' || action === 'up') {
      const next = flat[Math.max(0, Math.min(flat.length - 1, at + (action === 'down' ? 1 : -1)))];
      if (!next) return true;
      marked.value = next.id;
      if (flat.indexOf(next) >= most.value) most.value += STEP;
      // At once where it is drawn: the next key may be Enter, and belongs to what has the focus.
      const focus = () => { const row = document.getElementById(`agent-${next.id}`); row?.focus(); return row; };
      if (!focus()) requestAnimationFrame(focus);
      return true;
    }
    if (action === 'go' && at >= 0) { go('session', marked.value); return true; }
    if (action === 'refresh') { refresh(); loadStrips(); return true; }
    return false;
  });
  let room = most.value;
  const drawn = shown.value.map(([key, list]) => { const part = list.slice(0, room); room -= part.length; return [key, part, list.length]; }).filter(([, part]) => part.length);
  const rest = flat.slice(most.value);
  const waits = rest.filter((one) => byAgent.value.has(one.id)).length;
  const ended = [...sessions.value.values()].filter((one) => one.ended != null && !one.replaced_by && one.ended > clock() - 86400).length;
  return html`<div class="agents">
    <div class="tools"><h1 class="title">${plural(flat.filter((one) => one.ended == null).length, 'agent')}</h1>
      <input type="search" placeholder="Filter" aria-label="Filter agents" value=${filter.value} onInput=${(event) => { filter.value = event.target.value; }} />
      <label>Group by <select value=${grouping.value} onChange=${(event) => { grouping.value = event.target.value; localStorage.setItem('grouping', event.target.value); }}>
        <option value="folder">folder</option><option value="host">host</option></select></label>
      <label class="check"><input type="checkbox" checked=${withEnded.value} onChange=${(event) => { withEnded.value = event.target.checked; }} /> ended today (${ended})</label>
      <${OnlyHere} /></div>
    ${flat.length === 0 && html`<div class="empty"><p class="big">${filter.value || onlyHere.value ? 'No agent fits the filter.' : 'No agent runs.'}</p></div>`}
    ${rest.length > 0 && html`<p class="tools" role="note"><span>${plural(rest.length, 'agent')} not shown, of which <a href="#/queue">${waits} wait for you</a>.</span></p>`}
    ${drawn.map(([key, list, count]) => html`<section class="group" key=${key} aria-label=${oneLine(key)}>
      <h2><bdi>${oneLine(key, 200)}</bdi> <span class="dim">${count}</span></h2>
      <ul>${list.map((one) => html`<${Agent} key=${one.id} session=${one} />`)}</ul></section>`)}
    <${More} most=${most} count=${flat.length} />
  </div>`;
}

function Agent({ session }) {
  const item = byAgent.value.get(session.id);
  const isOpen = opened.value === session.id;
  const sum = inputOf(session.tokens);
  return html`<li class="agent ${session.ended != null ? 'over' : ''}">
    <div class="agent-line">
      <span class="c-state"><${State} state=${session.agent_state} /><span class="dim figure"><${Since} at=${session.since} /></span></span>
      <a class="c-name" id=${`agent-${session.id}`} href=${href('session', session.id)} onFocus=${() => { marked.value = session.id; }}><${Name} text=${label(session)} />
        <span class="dim kind">${oneLine([session.agent, session.origin === 'kept' ? '' : session.pane ? `pane ${session.pane}` : session.origin].filter(Boolean).join(', '), 40)}</span></a>
      <span class="c-strip"><${Strip} id=${session.id} /></span>
      <span class="c-last" dir="auto">${item ? html`<a class="waits" href=${href('queue', item.id)}>waits for you</a> ` : ''}${item?.detail.ask ? summary(item, approvals.value.get(item.detail.ask)) : gist(session.last_message ?? session.title, 200)}</span>
      <span class="c-count figure">${session.messages_waiting > 0 ? html`<span class="chip">${plural(session.messages_waiting, 'message')} waiting</span>` : ''}</span>
      <span class="c-tokens dim figure" title=${session.tokens ? `input ${tokens(session.tokens.input)}, cache read ${tokens(session.tokens.cache_read)}, cache write ${tokens(session.tokens.cache_write)}, output ${tokens(session.tokens.output)}` : 'not known'}>
        ${session.tokens ? html`<span>${tokens(sum)} in</span> <span>${tokens(session.tokens.output)} out</span>` : html`<span class="spoken">tokens </span>–`}</span>
      <button class="plain c-why" aria-expanded=${isOpen} aria-label=${`How we know the state of ${oneLine(label(session), 60)}`} onClick=${() => { opened.value = isOpen ? '' : session.id; }}>
        <span class="wide-only">${session.source ? `by ${visible(session.source)}` : 'why'}</span> <span aria-hidden="true">${isOpen ? '▾' : '▸'}</span></button>
    </div>
    ${isOpen && html`<div class="why-box"><${Evidence} session=${session} /></div>`}
  </li>`;
}
