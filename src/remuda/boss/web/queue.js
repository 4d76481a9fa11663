// The queue: what waits for a human, oldest first, and how to answer it.
import { computed, html, signal, useEffect, useRef, useState } from './lib.js';
import { OnlyHere } from './agents.js';
import { get, path, post } from './api.js';
import { isWide } from './diff.js';
import { Key, useKeys } from './keys.js';
import { Markdown } from './markdown.js';
import { EditForm, Questions, RequestBody, editedInput, isAnswered, partsOf, summary, whyHidden, whyRefused } from './request.js';
import { go, href, replace, route } from './route.js';
import { approvals, decided, isHidden, isLive, items, label, limits, link, logOut, putOff, refresh, sessionOf, sessions, take, useWhole, waiting } from './store.js';
import { More, Name, STEP, oneLine, plural, visible } from './text.js';
import { Since, clock, dayHours, span } from './time.js';
import { Reason, outcome, ownName } from './words.js';

/** Milliseconds for which an item must be on the screen before it can be answered. */
const READ = 700;
const SNOOZE = 600;
const ASKS = new Set(['permission', 'question', 'plan']);
/** An agent may write its last message into its file after it asked. */
const AGAIN = 1500;
const NEW = 'This is new: read it, then press again.';

const chosen = signal('');
/** Rows that are drawn, of what waits and of what is put off. */
const most = signal(STEP);
const mostPutOff = signal(STEP);
/** The item that the user went to; the first one is chosen without. */
let picked = '';
/** The result of the last action, for the status line. */
export const note = signal({ text: '', isError: false });
const say = (text, isError = false) => { note.value = { text, isError }; };

/** The chosen item stays where it is, also if someone else was first: nothing moves under a finger. */
const list = computed(() => {
  const kept = items.value.get(chosen.value);
  if (!kept || waiting.value.some((one) => one.id === kept.id)) return waiting.value;
  const at = waiting.value.findIndex((one) => one.since > kept.since);
  const end = at < 0 ? waiting.value.length : at;
  return [...waiting.value.slice(0, end), kept, ...waiting.value.slice(end)];
});

const requestOf = (item) => approvals.value.get(item.detail?.ask) ?? null;
const isOver = (item) => Boolean(item.resolved_at) || isHidden(item, clock());

function choose(id) {
  if (id === chosen.value && route.value.parts[0] === id) return;
  chosen.value = picked = id;
  say('');
  if (isWide.value || route.value.parts[0]) replace('queue', ...(id ? [id] : [])); else go('queue', id);
}

function move(by) {
  const at = list.value.findIndex((one) => one.id === chosen.value);
  const next = list.value[Math.max(0, Math.min(list.value.length - 1, at + by))];
  if (!next) return;
  if (list.value.indexOf(next) >= most.value) most.value += STEP;
  choose(next.id);
}

/** After an action: to the next item, or to the list if there is none. */
function advance(id) {
  if (chosen.value !== id) return;
  const at = list.value.findIndex((one) => one.id === id);
  const rest = list.value.filter((one) => one.id !== id && !isOver(one));
  const next = rest[Math.min(Math.max(0, at), rest.length - 1)];
  chosen.value = next?.id ?? '';
  if (route.value.view === 'queue') replace('queue', ...(next ? [next.id] : []));
}

// ── what can be done ──

async function attempt(item, what, work) {
  try {
    const found = await work();
    say(what);
    advance(item.id);
    return found;
  } catch (error) {
    say(`${error.message}${error.hint ? `; ${error.hint}` : ''}`, true);
    if (error.status === 409 && item.detail?.ask) {
      get(path('approvals', item.detail.ask)).then((one) => take('approval', one), () => {});
    }
    return null;
  }
}

const decide = (item, approval, body) => attempt(
  item, `${body.behavior === 'allow' ? 'Allowed' : 'Denied'}: ${approval.tool} in ${label(sessionOf(item), item.session_id)}.`,
  async () => take('approval', await post(path('approvals', approval.id, 'answer'), { ...body, by: ownName() })),
);

const putOffItem = (item, what, body, text) => attempt(item, text, async () => {
  take('item', await post(path('queue', item.id, what), body));
});
const snooze = (item) => putOffItem(item, 'snooze', { seconds: SNOOZE }, `Snoozed for ${span(SNOOZE)}.`);
const skip = (item) => putOffItem(item, 'skip', {}, 'Moved to the end of the queue.');
const dismiss = (item) => putOffItem(item, 'dismiss', {}, 'Dismissed.');
const LATER = [['skip', 'Skip', skip], ['snooze', 'Snooze', snooze], ['dismiss', 'Dismiss', dismiss]];
const bringBack = async (item) => {
  try {
    if (item.skip_until > clock()) await post(path('queue', item.id, 'skip'), { cooldown: 0 });
    take('item', await post(path('queue', item.id, 'snooze'), { seconds: 0 }));
  } catch (error) { say(error.message, true); }
};

const reply = (item, text) => attempt(item, 'Sent. Its receipt is in the session.', () => post(path('sessions', item.session_id, 'reply'), { text }));

// ── the view ──

export function QueueView() {
  const wanted = route.value.parts[0] ?? '';
  useEffect(() => {
    if (wanted && wanted !== chosen.value) chosen.value = wanted;
    if (!wanted && isWide.value && !items.value.has(chosen.value)) chosen.value = list.value[0]?.id ?? '';
    if (!wanted && !isWide.value) chosen.value = '';
  }, [wanted, list.value, isWide.value]);
  const item = items.value.get(chosen.value);
  // Nobody reads an agent that went on. A request stays, and says who decided it.
  useEffect(() => {
    if (item && isOver(item) && !item.detail?.ask && item.id !== picked && document.activeElement?.id !== 'reply') advance(item.id);
  }, [item]);
  const control = useRef({});
  useKeys((action, event) => {
    if (control.current.key?.(action, event)) return true;
    switch (action) {
      case 'down': move(chosen.value ? 1 : 0); return true;
      case 'up': move(-1); return true;
      case 'refresh': refresh(); say('Read again.'); return true;
      default: return false;
    }
  });
  const isAlone = !isWide.value && Boolean(wanted);
  return html`<div class="queue ${isAlone ? 'alone' : ''}">
    ${!isAlone && html`<${List} />`}
    ${(isWide.value || isAlone) && html`<section class="detail" aria-label="Selected item">
      ${item ? html`<${Detail} key=${`${item.id}/${item.detail?.ask ?? item.since}`} item=${item} control=${control} />`
    : html`<${Nothing} isGone=${isAlone} />`}</section>`}
  </div>`;
}

function Nothing({ isGone }) {
  if (isGone) return html`<div class="empty"><p>This item is no longer in the queue.</p><a class="button" href="#/queue">To the queue</a></div>`;
  if (!isLive.value) return html`<div class="empty"><p class="dim">${link.value.state === 'connecting' ? 'Connecting …' : 'Not connected.'}</p></div>`;
  const busy = [...sessions.value.values()].filter((one) => !one.ended).length;
  return html`<div class="empty"><p class="big">Nothing waits for you.</p>
    <p class="dim">${busy ? html`<a href="#/agents">${plural(busy, 'agent')}</a> known.` : 'No agent is known yet. Start one with: remuda start'}</p></div>`;
}

function List() {
  const [isOpen, open] = useState(false);
  return html`<nav class="list" aria-label="Waiting items">
    ${limits.value.map((one) => html`<p class="limit" role="note">Limit reached${one.until > clock() && html`, until ${dayHours(one.until)}`}:
      ${plural(one.messages, 'message')} in ${plural(one.sessions.length, 'session')} wait.</p>`)}
    ${!list.value.length && !isWide.value && html`<${Nothing} />`}
    <ul class="rows">${list.value.slice(0, most.value).map((one) => html`<${Row} key=${one.id} item=${one} />`)}</ul>
    <${More} most=${most} count=${list.value.length} />
    ${putOff.value.length > 0 && html`<details open=${isOpen} onToggle=${(event) => open(event.target.open)}>
      <summary>${plural(putOff.value.length, 'item')} put off</summary>
      <ul class="rows">${putOff.value.slice(0, mostPutOff.value).map((one) => html`<li class="row put-off" key=${one.id}><span class="top"><${Reason} reason=${one.reason} />
        <${Name} text=${label(sessionOf(one), one.session_id)} /></span>
        <button class="small" onClick=${() => bringBack(one)}>Bring back</button></li>`)}</ul><${More} most=${mostPutOff} count=${putOff.value.length} /></details>`}
    <${Ledger} />
    <div class="tools"><a href="#/notices">Notices</a> <${OnlyHere} /></div>
    <button class="plain phone-only" onClick=${logOut}>Log out</button>
  </nav>`;
}

function Row({ item }) {
  const approval = requestOf(item);
  const isChosen = item.id === chosen.value;
  const row = useRef(null);
  useEffect(() => { if (isChosen) row.current?.scrollIntoView({ block: 'nearest' }); }, [isChosen]);
  const over = isOver(item);
  return html`<li ref=${row}><a class="row ${isChosen ? 'chosen' : ''} ${over ? 'over' : ''}" href=${href('queue', item.id)} aria-current=${isChosen ? 'true' : undefined}
      onClick=${(event) => { event.preventDefault(); choose(item.id); }}>
    <span class="top"><${Reason} reason=${item.reason} /><${Name} text=${label(sessionOf(item), item.session_id)} /><span class="since"><${Since} at=${item.since} /></span></span>
    <span class="sum" dir="auto">${over ? howItEnded(item, approval) : html`${item.reason === 'permission' && approval?.tool && html`<b>${oneLine(approval.tool, 30)}</b> `}${summary(item, approval)}`}</span>
  </a></li>`;
}

const RESOLUTIONS = {
  working: 'The agent works again.', prompted: 'It got a prompt.', answered: 'It was answered.', ended: 'The session ended.',
  dead: 'The session ended.', dismissed: 'It was dismissed.', replaced: 'Another session took its place.', moved_on: 'The agent went on.',
};

function howItEnded(item, approval) {
  if (approval && approval.state !== 'open') {
    const text = outcome(approval);
    return `${text[0].toUpperCase()}${text.slice(1)}.`;
  }
  if (item.resolved_at) return RESOLUTIONS[item.resolution] ?? 'It is resolved.';
  return isHidden(item, clock()) ? 'It was put off.' : '';
}

/** What was decided lately: who was first, and what happened then. */
function Ledger() {
  if (!decided.value.length) return null;
  return html`<details class="ledger"><summary>Decided lately</summary><ul>${decided.value.slice(0, 15).map((one) => html`<li key=${one.id}>
    <span class="top"><b>${oneLine(one.tool || one.reason, 30)}</b> <${Name} text=${label(sessions.value.get(one.session_id), one.session_id)} limit=${30} /><span class="since"><${Since} at=${one.at ?? one.asked_at} /></span></span>
    <span class="dim">${outcome(one)}</span></li>`)}</ul></details>`;
}

// ── one item ──

/** Whether this was on a visible screen long enough to be read. */
function useReady(isWhole) {
  const [isReady, ready] = useState(false);
  useEffect(() => {
    let timer = 0;
    ready(false);
    const begin = () => {
      clearTimeout(timer);
      if (document.hidden) ready(false);
      else timer = setTimeout(() => requestAnimationFrame(() => ready(true)), READ);
    };
    begin();
    document.addEventListener('visibilitychange', begin);
    return () => { clearTimeout(timer); document.removeEventListener('visibilitychange', begin); };
  }, [isWhole]);
  return isReady && isWhole;
}

function Detail({ item, control }) {
  const approval = requestOf(item);
  useWhole(item, 'item', 'queue');
  useWhole(approval, 'approval', 'approvals');
  const isWhole = !(approval ?? item).cut?.length;
  const session = sessionOf(item);
  const [mode, setMode] = useState(''); // '', allow, always, deny, edit
  const [draft, setDraft] = useState({});
  const [message, setMessage] = useState('');
  const [isWriting, setWriting] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [seen, setSeen] = useState(() => new Set());
  const isAsked = mode && mode !== 'edit';
  const isReady = useReady(isWhole);
  const head = useRef(null);
  const isOpen = approval?.state === 'open';
  const canDecide = isOpen && !item.resolved_at;
  const isQuestion = approval?.reason === 'question' && Array.isArray(approval.input.questions);
  const hidden = approval ? whyHidden(approval) : '';
  const offers = (what) => approval.reason === 'permission' && !hidden && !whyRefused(approval, what);
  const missing = canDecide && !hidden ? partsOf(approval).filter((part) => !seen.has(part)) : [];
  const markSeen = (part) => { if (isWhole && !seen.has(part)) setSeen((old) => new Set(old).add(part)); };
  // What someone writes stays until it is sent, also if the agent went on meanwhile.
  const canReply = !approval && (!isOver(item) || isWriting || Boolean(message)) && !['dead', 'left_alone'].includes(item.reason) && !item.detail?.ask;

  /** Why an answer is refused now; '' if it is not. */
  const refusal = (what) => {
    if (isBusy) return 'Sending …';
    if (!isLive.value) return 'Not connected: what you see may be old.';
    if (!isReady) return NEW;
    if (!canDecide) return approval ? howItEnded(item, approval) : 'Nothing here can be allowed or denied.';
    if (what === 'deny') return '';
    if (hidden) return `${hidden} Decide there.`;
    if (missing.length) return 'Show all of it first.';
    if (isQuestion && !isAnswered(approval, draft)) return 'Answer every question first.';
    return '';
  };
  const send = async (body) => { setBusy(true); setMode(''); await decide(item, approval, body); setBusy(false); };
  const answer = (what) => {
    const why = refusal(what);
    if (why) { say(why, true); return; }
    if (what === 'deny') send({ behavior: 'deny', ...(message.trim() ? { message } : {}) });
    else if (isQuestion) send({ behavior: 'allow', answers: draft });
    else if (what === 'edit') {
      try { send({ behavior: 'allow', updated_input: editedInput(approval.input, draft) }); } catch (error) { say(error.message, true); }
    } else send({ behavior: 'allow', ...(what === 'always' ? { always: true } : {}) });
  };
  const begin = (what) => {
    const why = what === 'edit' && canDecide && !isQuestion && !hidden && isWhole ? whyRefused(approval, what) : refusal(what);
    if (why) say(why, true);
    else { say(''); setMode(what); }
  };
  const simple = (work) => { if (!isLive.value) say('Not connected.', true); else if (!isReady) say(NEW, true); else work(item); };
  const sendReply = async () => {
    if (!message.trim() || isBusy) return;
    if (!isLive.value) { say('Not connected.', true); return; }
    setBusy(true);
    if (await reply(item, message)) setMessage('');
    setBusy(false);
  };

  control.current.key = (action, event) => {
    if (isAsked) {
      // Any key but y is no. Tab goes on to the message.
      if (['Tab', 'Shift'].includes(event.key)) return false;
      if (action === 'yes') answer(mode); else { setMode(''); say(''); }
      return true;
    }
    switch (action) {
      case 'allow': begin('allow'); return true;
      case 'deny': begin('deny'); return true;
      case 'edit': if (approval?.reason === 'permission') begin('edit'); return true;
      case 'reply': if (canReply) document.getElementById('reply')?.focus(); else say('Answer the request instead.', true); return true;
      case 'skip': simple(skip); return true;
      case 'snooze': simple(snooze); return true;
      case 'dismiss': simple(dismiss); return true;
      case 'go': if (session) go('session', session.id); return true;
      default: break;
    }
    if (event.key === 'Escape' && !isWide.value) { go('queue'); return true; }
    return false;
  };
  useEffect(() => () => { control.current = {}; }, []);
  useEffect(() => { if (!isWide.value) head.current?.focus(); }, []);

  const words = isQuestion ? ['Answer', 'Do not answer'] : approval?.reason === 'plan' ? ['Approve', 'Send back'] : ['Allow', 'Deny'];
  // The content is inert until it is whole: it is drawn anew then, and what was opened would close again.
  return html`<article class="item ${isOver(item) ? 'over' : ''}">
    <header>
      ${!isWide.value && html`<a class="back" href="#/queue" aria-label="Back to the queue">‹ Queue</a>`}
      <h2 ref=${head} tabindex="-1"><${Reason} reason=${item.reason} /> ${item.reason === 'permission' && approval?.tool && html`<span class="tool">${visible(approval.tool)}</span> `}
        ${session ? html`<a href=${href('session', session.id)}><${Name} text=${label(session, item.session_id)} /></a>` : html`<${Name} text=${item.session_id} />`}
        <span class="dim since"><${Since} at=${item.since} after=" ago" /></span></h2>
      <p class="dim where"><bdi>${visible(session?.cwd ?? '')}</bdi>${session?.title && html` · <${Name} text=${session.title} />`}
        ${item.detail?.over_budget && ` · ${visible(item.detail.over_budget)}`}
        ${item.detail?.subagent && ' · asked by a subagent'}${item.detail?.more > 0 && ` · ${plural(item.detail.more, 'more request')} after this`}</p>
    </header>
    <div class="body">
      ${(isOver(item) || (approval && !isOpen)) && html`<p class="outcome" role="status">${howItEnded(item, approval)}</p>`}
      ${!isWhole && html`<p class="outcome">Reading the rest …</p>`}
      <div class="content" inert=${!isWhole}><${Body} key=${isWhole} item=${item} approval=${approval} markSeen=${markSeen} mode=${mode} draft=${draft} setDraft=${setDraft}
        isQuestion=${isQuestion} canDecide=${canDecide} onSubmit=${() => answer('edit')} /></div>
      ${canDecide && hidden && html`<p class="outcome">${hidden} Decide there.</p>`}
      ${ASKS.has(item.reason) && html`<${LastMessage} id=${item.session_id} known=${session?.last_message} />`}
    </div>
    <footer class="actions" aria-label="Actions" role="group">
      <p class="note ${note.value.isError ? 'bad' : ''}" role="status">${oneLine(note.value.text, 500) || (missing.length ? 'Show all of it before you allow it.' : '')}</p>
      ${canDecide && mode === 'deny' && !whyRefused(approval, 'message') && html`<textarea class="message" dir="auto" rows="2" maxlength="10000" value=${message} aria-label="Message to the agent"
        placeholder="What to do instead (optional)" onInput=${(event) => setMessage(event.target.value)}
        onKeyDown=${(event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) answer('deny'); if (event.key === 'Escape') setMode(''); }} />`}
      ${canReply && html`<textarea id="reply" class="message" dir="auto" rows="2" value=${message} aria-label="Reply to the agent" placeholder="Reply"
        onFocus=${() => setWriting(true)} onBlur=${() => setWriting(false)}
        onInput=${(event) => setMessage(event.target.value)}
        onKeyDown=${(event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) sendReply(); if (event.key === 'Escape') event.target.blur(); }} />`}
      <div class="buttons">
        ${canDecide && !mode && html`
          <button class="primary" aria-disabled=${Boolean(refusal('allow'))} onClick=${() => answer('allow')}>${words[0]} <${Key} for="allow" /></button>
          <button class="no" aria-disabled=${Boolean(refusal('deny'))} onClick=${() => begin('deny')}>${words[1]} … <${Key} for="deny" /></button>
          ${offers('edit') && html`<button onClick=${() => begin('edit')}>Edit <${Key} for="edit" /></button>`}
          ${offers('always') && html`<button aria-disabled=${Boolean(refusal('always'))} onClick=${() => begin('always')}>Always …</button>`}`}
        ${canDecide && mode === 'edit' && html`<button class="primary" aria-disabled=${Boolean(refusal('edit'))} onClick=${() => answer('edit')}>Allow as edited</button><button onClick=${() => { setMode(''); setDraft({}); }}>Back</button>`}
        ${canDecide && isAsked && html`<span class="ask">${{ allow: `${words[0]} this?`, always: 'Allow this, and the same in this conversation from now on?', deny: `${words[1]}?` }[mode]}</span>
          <button class=${mode === 'deny' ? 'no' : 'primary'} onClick=${() => answer(mode)}>Yes <${Key} for="yes" /></button><button onClick=${() => setMode('')}>No</button>`}
        ${canReply && html`<button class="primary" disabled=${!message.trim() || isBusy} onClick=${sendReply}>Send <${Key} for="reply" /></button>`}
        ${!mode && !isOver(item) && html`<span class="later">${LATER.map(([what, text, work]) => html`<button key=${what} aria-disabled=${!isReady} onClick=${() => simple(work)}>${text} <${Key} for=${what} /></button> `)}</span>`}
        ${isOver(item) && html`<button class="primary" onClick=${() => advance(item.id)}>Next</button>`}
      </div>
    </footer>
  </article>`;
}

/** What the agent said before it asked. Below the request: what would run never moves. */
function LastMessage({ id, known }) {
  const [text, setText] = useState(known);
  useEffect(() => {
    let isOver = false;
    const load = async () => {
      try {
        const { entries } = await get(path('sessions', id, 'conversation'), { limit: 20 });
        const last = entries.findLast((one) => one.kind === 'answer' && !one.subagent);
        if (last && !isOver) setText(last.text);
      } catch { /* what was known stays */ }
    };
    load();
    const again = setTimeout(load, AGAIN);
    return () => { isOver = true; clearTimeout(again); };
  }, [id]);
  return text ? html`<section class="said" aria-label="Last message"><h3 class="dim">Last message</h3><${Markdown} text=${text} /></section>` : null;
}

function Body({ item, approval, markSeen, mode, draft, setDraft, isQuestion, canDecide, onSubmit }) {
  if (approval && mode === 'edit') return html`<${EditForm} input=${approval.input} draft=${draft} onChange=${setDraft} onSubmit=${onSubmit} />`;
  if (isQuestion) return html`<${Questions} approval=${approval} draft=${draft} onChange=${setDraft} disabled=${!canDecide} />`;
  if (approval) return html`<${RequestBody} approval=${approval} seen=${markSeen} />`;
  const { detail } = item;
  const error = detail.error ?? detail.why;
  return html`
    ${error && html`<p class="outcome error">${oneLine(error, 400)}</p>`}
    ${detail.until > 0 && html`<p class="outcome">It can go on at ${dayHours(detail.until)}.</p>`}
    ${detail.exit_code !== undefined && html`<p class="outcome">Exit code ${String(detail.exit_code)}.</p>`}
    ${detail.evidence && html`<p class="outcome">${oneLine(typeof detail.evidence === 'string' ? detail.evidence : JSON.stringify(detail.evidence), 400)}</p>`}
    ${detail.ask && html`<p class="outcome">This can be answered only in the agent’s terminal.</p>`}
    ${Array.isArray(detail.earlier) && detail.earlier.length > 0 && html`<details><summary>${plural(detail.earlier.length, 'earlier message')}</summary>
      ${detail.earlier.slice(-20).map((one) => html`<${Markdown} text=${one.message ?? ''} />`)}</details>`}
    ${item.message ? html`<${Markdown} text=${item.message} />` : html`<p class="dim">No message.</p>`}`;
}
