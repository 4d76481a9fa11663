// Beside a session's terminal: conversation, messages with their receipts, changes in git.
import { html, useEffect, useRef, useState } from './lib.js';
import { get, path, post } from './api.js';
import { Diff } from './diff.js';
import { Markdown } from './markdown.js';
import { isLive, listeners } from './store.js';
import { Long, json, oneLine, plural, prose, tokens, visible } from './text.js';
import { Since, dayHours } from './time.js';

// ── the conversation as the agent recorded it ──

const PAGE = 60;
const MOST = 600;
const NEAR = 80;

/** Pages of the conversation: older ones on demand, newer ones as the session changes. */
function useConversation(id) {
  const [page, setPage] = useState({ entries: [], before: null, after: null, note: null, isLoading: true });
  const latest = useRef(page);
  latest.current = page;
  const work = useRef({ busy: false, again: false });
  const update = (next) => { latest.current = next; setPage(next); };
  const newer = async () => {
    if (work.current.busy) { work.current.again = true; return; }
    work.current.busy = true;
    try {
      do {
        work.current.again = false;
        const { after } = latest.current;
        const found = await get(path('sessions', id, 'conversation'), after ? { after, limit: PAGE } : { limit: PAGE });
        const now = latest.current;
        // Another file: the conversation was cleared, or goes on elsewhere.
        const isSame = after && found.conversation === now.conversation;
        const entries = (isSame ? [...now.entries, ...found.entries] : found.entries).slice(-MOST);
        update({ ...found, entries, before: isSame ? now.before : found.before, after: found.after ?? after, isLoading: false });
        if (isSame && found.entries.length >= PAGE) work.current.again = true;
      } while (work.current.again);
    } catch (error) { update({ ...latest.current, isLoading: false, error: error.message }); }
    work.current.busy = false;
  };
  const older = async () => {
    const { before } = latest.current;
    if (!before) return;
    try {
      const found = await get(path('sessions', id, 'conversation'), { before, limit: PAGE });
      update({ ...latest.current, entries: [...found.entries, ...latest.current.entries], before: found.before });
    } catch (error) { update({ ...latest.current, error: error.message }); }
  };
  useEffect(() => {
    let timer = 0;
    newer();
    const listen = (kind, one) => {
      if (timer || !((kind === 'session' && one.id === id) || ((kind === 'item' || kind === 'approval') && one.session_id === id))) return;
      timer = setTimeout(() => { timer = 0; newer(); }, 300);
    };
    listeners.add(listen);
    return () => { listeners.delete(listen); clearTimeout(timer); };
  }, [id]);
  return [page, older];
}

export function Conversation({ id }) {
  const [page, older] = useConversation(id);
  const box = useRef(null);
  const isAtEnd = useRef(true);
  const height = useRef(0);
  useEffect(() => {
    const { current } = box;
    if (!current) return;
    if (isAtEnd.current) current.scrollTop = current.scrollHeight;
    else if (height.current && current.scrollTop < NEAR) current.scrollTop += current.scrollHeight - height.current;
    height.current = 0;
  }, [page.entries]);
  const results = new Map(page.entries.filter((one) => one.kind === 'tool_result' && one.call).map((one) => [one.call, one]));
  const calls = new Set(page.entries.filter((one) => one.kind === 'tool_call').map((one) => one.call));
  const shown = page.entries.filter((one) => one.kind !== 'usage' && !(one.kind === 'tool_result' && calls.has(one.call)));
  return html`<div class="talk" ref=${box} tabindex="0" role="log" aria-label="Conversation" aria-live="off"
      onScroll=${(event) => { const one = event.currentTarget; isAtEnd.current = one.scrollHeight - one.scrollTop - one.clientHeight < NEAR; }}>
    ${page.before && html`<button class="small older" onClick=${() => { height.current = box.current.scrollHeight; older(); }}>Earlier</button>`}
    ${page.error && html`<p class="outcome error">${visible(page.error)}</p>`}
    ${page.note && html`<p class="dim">${visible(page.note)}</p>`}
    ${!shown.length && !page.isLoading && !page.note && html`<p class="dim">Nothing is recorded yet.</p>`}
    ${shown.map((one, at) => html`<${Entry} key=${`${one.id}/${one.kind}/${one.call ?? at}`} entry=${one} result=${one.call ? results.get(one.call) : null} />`)}
  </div>`;
}

function Entry({ entry, result }) {
  const when = entry.at ? html`<time class="dim when" title=${oneLine(entry.model ?? '')}>${dayHours(entry.at)}</time>` : '';
  const cut = entry.cut && html`<p class="dim">Cut here: the whole of it is in the terminal.</p>`;
  switch (entry.kind) {
    case 'prompt': return html`<section class="entry prompt" aria-label="Prompt">${when}<${Long} text=${entry.text} clean=${prose} first=${6000} label="Prompt" />${cut}</section>`;
    case 'answer': return html`<section class="entry answer" aria-label="Answer">${when}<${Markdown} text=${entry.text} />${cut}</section>`;
    case 'thinking': return html`<details class="entry thinking"><summary>Thinking</summary><${Long} text=${entry.text} clean=${prose} label="Thinking" /></details>`;
    case 'tool_call': return html`<${Call} entry=${entry} result=${result} />`;
    case 'tool_result': return html`<details class="entry"><summary>Result</summary><${Long} text=${entry.text} label="Result" /></details>`;
    case 'error': return html`<p class="entry outcome error" dir="auto">${visible(entry.text)}</p>`;
    default: return html`<p class="entry dim notice" dir="auto">${oneLine(entry.text, 400)}</p>`;
  }
}

function Call({ entry, result }) {
  const input = entry.input ?? {};
  const what = input.command ?? input.file_path ?? input.path ?? input.url ?? input.pattern ?? input.description ?? '';
  const [word, group] = !result ? ['pending', 'busy'] : result.denied ? ['denied', 'halted'] : result.ok === false ? ['failed', 'error'] : ['done', 'idle'];
  const diff = result?.diff ?? entry.diff;
  return html`<details class="entry call"><summary><span class="state ${group}">${word}</span> <b class="tool">${oneLine(entry.tool ?? 'tool', 40)}</b>
      ${' '}<span class="dim" dir="auto">${oneLine(typeof what === 'string' ? what : json(what), 140)}</span></summary>
    ${diff ? html`<${Diff} text=${diff} narrow />` : html`<${Long} text=${json(input)} first=${8000} label="Input" />`}
    ${result && html`<h3 class="dim">Result</h3><${Long} text=${result.text} first=${4000} label="Result" />`}
    ${(entry.cut || result?.cut) && html`<p class="dim">Cut.</p>`}</details>`;
}

export const tokenLine = (one) => (one ? `${tokens(one.input)} in, ${tokens(one.cache_read)} cached, ${tokens(one.output)} out` : 'tokens not known');

// ── messages: send one, and watch its receipt grow ──

const CHAIN = ['accepted', 'written', 'submitted', 'recorded', 'ended', 'acked'];
const BAD = new Set(['nacked', 'dead', 'expired', 'dropped', 'cancelled']);
const WAITS = {
  accepted: 'waits until the agent is ready', written: 'typed; waits until the agent takes it', submitted: 'the agent works on it',
  recorded: 'the agent works on it', nacked: 'waits for the next attempt', requeued: 'waits for the next attempt',
};
const FACTS = new Set(['id', 'stage', 'at', 'attempt', 'reported', 'reported_characters', 'usage', 'due', 'expires', 'lease', 'session_id', 'transcript_path', 'transcript_bytes', 'prompt_id']);

function useMessages(id) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let timer = 0;
    let isOver = false;
    const load = async () => {
      timer = 0;
      try { const next = await get(path('sessions', id, 'messages')); if (!isOver) setFound(next); } catch (error) { if (!isOver) setFound((old) => ({ messages: [], ...old, error: error.message })); }
    };
    load();
    const listen = (kind, one) => {
      if (!timer && ((kind === 'session' && one.id === id) || (kind === 'message' && (one.session_id === id || !one.session_id)))) timer = setTimeout(load, 120);
    };
    listeners.add(listen);
    return () => { isOver = true; listeners.delete(listen); clearTimeout(timer); };
  }, [id]);
  return found;
}

/** The chain of one message: each step with its time, the missing ones faint. */
function Receipt({ message }) {
  const steps = message.steps ?? [];
  const done = new Map(steps.map((one) => [one.stage, one]));
  const rest = message.ended ? [] : CHAIN.slice(Math.max(0, ...CHAIN.map((one, at) => (done.has(one) ? at + 1 : 0))));
  const first = steps.find((one) => one.at)?.at;
  const facts = (one) => Object.entries(one).filter(([name, value]) => !FACTS.has(name) && value !== null && value !== '' && typeof value !== 'object')
    .map(([name, value]) => `${name}: ${value}`).join(', ');
  return html`<ol class="chain" aria-label="Receipt">
    ${steps.map((one, at) => html`<li key=${at} class=${BAD.has(one.stage) ? 'bad' : 'done'} title=${oneLine(facts(one), 300)}><b>${visible(one.stage)}</b>
      <span class="dim figure">${one.at && first ? (at === 0 ? html`<${Since} at=${one.at} after=" ago" />` : `+${(one.at - first).toFixed(one.at - first < 10 ? 1 : 0)} s`) : ''}</span>
      ${one.attempt > 1 && html` <span class="chip">attempt ${one.attempt}</span>`}${(one.reason || one.degraded) && html` <span class="dim">${oneLine([one.reason, one.degraded && `degraded: ${one.degraded}`].filter(Boolean).join(', '), 120)}</span>`}</li>`)}
    ${rest.map((one) => html`<li key=${`to ${one}`} class="to-come"><span>${one}</span></li>`)}</ol>`;
}

export function Messages({ id, isKept }) {
  const found = useMessages(id);
  const [note, say] = useState('');
  if (!isKept) return html`<p class="dim pad">Only sessions of 'remuda start' have an inbox.</p>`;
  if (!found) return html`<p class="dim pad">Loading …</p>`;
  const cancel = async (message) => {
    try { const done = await post(path('sessions', id, 'messages', message.id, 'cancel')); say(`${done.outcome}${done.reason ? `: ${done.reason}` : ''}`); } catch (error) { say(error.message); }
  };
  return html`<div class="messages">
    <p class="note" role="status">${oneLine(note, 300)}</p>
    ${found.error && html`<p class="outcome error">${visible(found.error)}</p>`}
    ${found.held && html`<p class="outcome">Held: ${visible(found.held)}</p>`}
    ${!found.messages.length && html`<p class="dim">No message was sent to this session.</p>`}
    <ul>${[...found.messages].sort((one, other) => (other.sent_at ?? 0) - (one.sent_at ?? 0)).map((one) => html`<li class="message-box" key=${one.id}>
      <${Long} text=${one.prompt || '(the prompt is no longer kept)'} clean=${prose} first=${600} label="Prompt" />
      <${Receipt} message=${one} />
      ${!one.ended && html`<p class="dim">${WAITS[one.stage] ?? ''} <button class="small" disabled=${!isLive.value} onClick=${() => cancel(one)}>Cancel</button></p>`}
      ${one.ended && one.reason && one.stage !== 'acked' && html`<p class="outcome error">${visible(one.reason)}</p>`}
      ${one.answer && html`<details><summary>Answer</summary><${Long} text=${one.answer} clean=${prose} first=${4000} label="Answer" /></details>`}
    </li>`)}</ul>
    ${found.cut && html`<p class="dim">Older messages are not shown.</p>`}
  </div>`;
}

/** Send a prompt and watch its receipt. */
export function Composer({ id, isKept, isEnded }) {
  const [text, setText] = useState('');
  const [sent, setSent] = useState('');
  const [note, say] = useState({ text: '', isError: false });
  const [isBusy, setBusy] = useState(false);
  const found = useMessages(id);
  const box = useRef(null);
  const mine = found?.messages.find((one) => one.id === sent);
  const send = async () => {
    if (!text.trim() || isBusy) return;
    setBusy(true);
    try {
      const done = await post(path('sessions', id, 'reply'), { text });
      setSent(done.id ?? '');
      setText('');
      say({ text: isKept ? (isEnded ? 'Accepted. It waits until the session runs again.' : '') : `Sent: ${done.stage ?? 'typed'}.`, isError: false });
    } catch (error) { say({ text: `${error.message}${error.hint ? `; ${error.hint}` : ''}`, isError: true }); }
    setBusy(false);
    box.current?.focus();
  };
  return html`<div class="composer">
    ${mine && html`<div class="sent"><span class="dim sum">${oneLine(mine.prompt, 80)}</span><${Receipt} message=${mine} /></div>`}
    ${note.text && html`<p class="note ${note.isError ? 'bad' : ''}" role="status">${oneLine(note.text, 300)}</p>`}
    <div class="send"><textarea ref=${box} id="prompt" dir="auto" rows="2" value=${text} placeholder="Prompt" aria-label="Prompt for the agent"
      onInput=${(event) => setText(event.target.value)}
      onKeyDown=${(event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(); } if (event.key === 'Escape') event.target.blur(); }} />
      <button class="primary" disabled=${!text.trim() || isBusy || !isLive.value} title="Ctrl+Enter" onClick=${send}>Send</button></div>
    ${found?.waiting > 0 && !mine && html`<p class="dim note">${plural(found.waiting, 'message')} waiting${found.held ? `: ${oneLine(found.held, 120)}` : ''}</p>`}
  </div>`;
}

// ── changes in the git folder ──

const BASES = [['start', 'since it started'], ['head', 'not committed'], ['merge_base', 'on this branch']];

export function Changes({ id }) {
  const [base, setBase] = useState('start');
  const [found, setFound] = useState(null);
  const [isOld, setOld] = useState(false);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let isOver = false;
    setOld(false);
    get(path('sessions', id, 'changes'), { base }).then((one) => { if (!isOver) setFound(one); }, (error) => { if (!isOver) setFound({ files: [], note: error.message }); });
    const listen = (kind, one) => { if (kind === 'session' && one.id === id) setOld(true); };
    listeners.add(listen);
    return () => { isOver = true; listeners.delete(listen); };
  }, [id, base, turn]);
  return html`<div class="changes">
    <div class="tools"><label>Changes <select value=${base} onChange=${(event) => setBase(event.target.value)}>${BASES.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label>
      <button class="small" onClick=${() => setTurn(turn + 1)}>${isOld ? 'Read again: the agent went on' : 'Read again'}</button></div>
    ${!found && html`<p class="dim">Loading …</p>`}
    ${found && (found.files[0] || !found.note) && html`<p class="dim">${found.branch && html`<bdi>${oneLine(found.branch, 100)}</bdi>, `}${plural(found.files.length, 'file')}${found.cut ? ', and more' : ''}</p>`}
    ${found?.note && html`<p class="outcome">${visible(found.note)}</p>`}
    ${found?.files.map((one, at) => html`<details class="file-change" key=${one.path} open=${at < 3 && !found.files[11]}>
      <summary><span class="chip">${visible(one.status)}</span> <bdi class="tool">${visible(one.path)}</bdi>
        ${' '}<span class="dim figure">${one.added != null ? `+${one.added}` : ''} ${one.removed != null ? `−${one.removed}` : ''}${one.binary ? 'binary' : ''}</span></summary>
      ${one.old_path && html`<p class="dim">was <bdi>${visible(one.old_path)}</bdi></p>`}
      ${one.diff ? html`<${Diff} text=${one.diff} narrow first=${300} />` : html`<p class="dim">No text to show.</p>`}${one.cut && html`<p class="dim">Cut.</p>`}</details>`)}
  </div>`;
}
