// One session: its terminal, and beside it the conversation, messages, changes and evidence.
import { computed, html, useEffect, useState } from './lib.js';
import { get, path, post } from './api.js';
import { Evidence, Strip, watchStrips } from './agents.js';
import { Changes, Composer, Conversation, Messages, tokenLine } from './details.js';
import { isWide } from './diff.js';
import { useKeys } from './keys.js';
import { go, href, later, replace, route } from './route.js';
import { byAgent, isLive, label, link, sessions, take } from './store.js';
import { Name, oneLine, visible } from './text.js';
import { Since } from './time.js';
import { State } from './words.js';

// Its code, and xterm.js with it, is loaded when a terminal is shown.
const TerminalPane = later(async () => (await import('./terminal.js')).TerminalPane);
const TABS = [['conversation', 'Conversation'], ['messages', 'Messages'], ['changes', 'Changes'], ['evidence', 'Evidence']];

export function SessionView() {
  const [id = '', wanted] = route.value.parts;
  const session = computed(() => sessions.value.get(id) ?? [...sessions.value.values()].find((one) => one.name === id && one.ended == null)).value;
  const [isUnknown, setUnknown] = useState(false);
  useEffect(watchStrips, []);
  useEffect(() => {
    setUnknown(false);
    if (!session && isLive.value) get(path('sessions', id)).then((found) => take('session', found.session), () => setUnknown(true));
  }, [id, isLive.value]);
  // The agent began a new conversation in the same session: go on with that.
  useEffect(() => { if (session?.replaced_by && sessions.value.has(session.replaced_by)) replace('session', session.replaced_by, ...(wanted ? [wanted] : [])); }, [session?.replaced_by]);
  if (!session) return html`<div class="empty"><p>${isUnknown ? 'No such session is known.' : link.value.state === 'live' ? 'Loading …' : 'Not connected.'}</p><a class="button" href="#/agents">All agents</a></div>`;
  return html`<${Session} key=${session.id} session=${session} wanted=${wanted} />`;
}

function Session({ session, wanted }) {
  const isKept = Boolean(session.name);
  const tabs = isWide.value || !isKept ? TABS : [['terminal', 'Terminal'], ...TABS];
  const tab = tabs.some(([name]) => name === wanted) ? wanted : tabs[0][0];
  const item = byAgent.value.get(session.id);
  useKeys((action, event) => {
    if (action === 'reply') { document.getElementById('prompt')?.focus(); return true; }
    if (action === 'go' && item) { go('queue', item.id); return true; }
    if (event.key === 'Escape') { go('agents'); return true; }
    return false;
  });
  // On a phone not all tabs fit.
  useEffect(() => { document.getElementById(`tab-${tab}`)?.scrollIntoView({ block: 'nearest', inline: 'nearest' }); }, [tab]);
  const choose = (name) => replace('session', session.id, name);
  const arrows = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const at = (tabs.findIndex(([name]) => name === tab) + by + tabs.length) % tabs.length;
    choose(tabs[at][0]);
    document.getElementById(`tab-${tabs[at][0]}`)?.focus();
  };
  return html`<div class="session ${isKept ? '' : 'no-terminal'}">
    <header class="session-head">
      <div class="who"><a class="back" href="#/agents">‹ Agents</a><h1><${Name} text=${label(session)} /></h1><${State} state=${session.agent_state} /><span class="dim"><${Since} at=${session.since} /></span>
        ${session.source && html`<button class="plain small" onClick=${() => choose('evidence')}>by ${visible(session.source)}</button>`}
        ${item && html`<a class="waits" href=${href('queue', item.id)}>waits for you</a>`}
        <${Steps} session=${session} isKept=${isKept} /></div>
      <p class="dim where"><bdi>${visible(session.cwd ?? '')}</bdi>${session.title && html` · <${Name} text=${session.title} />`} · ${oneLine(session.agent, 30)} · ${tokenLine(session.tokens)}</p>
      <${Strip} id=${session.id} />
    </header>
    ${isKept && isWide.value && html`<${TerminalPane} id=${session.id} isAlive=${session.ended == null} />`}
    <section class="side" aria-label="Details">
      <div class="tabs" role="tablist" aria-label="Details" onKeyDown=${arrows}>${tabs.map(([name, text]) => html`<button role="tab" id=${`tab-${name}`} aria-selected=${name === tab} aria-controls="panel"
        tabindex=${name === tab ? 0 : -1} onClick=${() => choose(name)}>${text}</button>`)}</div>
      <div class="panel in-${tab}" id="panel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>
        ${tab === 'terminal' && html`<${TerminalPane} id=${session.id} isAlive=${session.ended == null} />`}
        ${tab === 'conversation' && html`<${Conversation} id=${session.id} />`}
        ${tab === 'messages' && html`<${Messages} id=${session.id} isKept=${isKept} />`}
        ${tab === 'changes' && html`<${Changes} id=${session.id} />`}
        ${tab === 'evidence' && html`<div class="pad"><${Evidence} session=${session} /></div>`}
      </div>
      ${tab !== 'terminal' && html`<${Composer} id=${session.id} isKept=${isKept} isEnded=${session.ended != null} />`}
    </section>
  </div>`;
}

/** Interrupt, end, resume: each says what came of it. */
function Steps({ session, isKept }) {
  const [asked, ask] = useState('');
  const [note, say] = useState({ text: '', isError: false });
  if (!isKept) return null;
  const run = async (what, body, done) => {
    ask('');
    say({ text: '…', isError: false });
    try { const found = await post(path('sessions', session.id, what), body); say({ text: done(found), isError: false }); } catch (error) { say({ text: error.message, isError: true }); }
  };
  const isBusy = ['thinking', 'streaming', 'tool_use'].includes(session.agent_state);
  return html`<span class="steps"><span class="note ${note.isError ? 'bad' : ''}" role="status">${oneLine(note.text, 200)}</span>
    ${asked === 'end' ? html`<span class="ask">End the session and all its processes?</span><button class="small no" onClick=${() => run('end', {}, () => 'Ended.')}>End</button><button class="small" onClick=${() => ask('')}>No</button>`
    : session.ended != null ? html`<button class="small" disabled=${!isLive.value} onClick=${() => run('resume', {}, () => 'Resumed.')}>Resume</button>`
      : html`<button class="small" disabled=${!isBusy || !isLive.value} onClick=${() => run('interrupt', {}, (found) => found.outcome.replace('_', ' '))}>Interrupt</button>
        <button class="small" disabled=${!isLive.value} onClick=${() => ask('end')}>End …</button>`}</span>`;
}
