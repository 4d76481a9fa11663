// The live terminal of a session. Loads xterm.js when it is opened.
import { html, useEffect, useRef, useState } from './lib.js';
import { path, root } from './api.js';
import { link } from './store.js';
import { visible } from './text.js';

const BACK = 2000;
const STYLES = /\x1b\[[\d;:]*m/g;
const RESET = new TextEncoder().encode('\x1bc');
const LONGEST_PASTE = 170_000;
const COLOURS = {
  light: {
    background: '#fffefc', foreground: '#211e1b', cursor: '#a8481d', cursorAccent: '#fffefc', selectionBackground: '#a8481d44',
    black: '#211e1b', red: '#b3261e', green: '#2c6a38', yellow: '#7a5f00', blue: '#1f5fb0', magenta: '#7a429c', cyan: '#0d6b74', white: '#6b655e',
    brightBlack: '#6b655e', brightRed: '#b3261e', brightGreen: '#2c6a38', brightYellow: '#7a5f00', brightBlue: '#1f5fb0', brightMagenta: '#7a429c', brightCyan: '#0d6b74', brightWhite: '#211e1b',
  },
  dark: {
    background: '#1d1b1a', foreground: '#e9e5e0', cursor: '#f09a66', cursorAccent: '#1d1b1a', selectionBackground: '#f09a6655',
    black: '#34312e', red: '#f48b81', green: '#8cc096', yellow: '#d9c26a', blue: '#7fb3f0', magenta: '#c79ce4', cyan: '#79c7cf', white: '#d6d0c9',
    brightBlack: '#8f8880', brightRed: '#ffa89f', brightGreen: '#a8dcb2', brightYellow: '#f0dc8c', brightBlue: '#a5ccff', brightMagenta: '#dcbcf2', brightCyan: '#9fe1e8', brightWhite: '#ffffff',
  },
};
const scheme = matchMedia('(prefers-color-scheme: dark)');
const colours = () => (scheme.matches ? COLOURS.dark : COLOURS.light);

function joined(first, second) {
  const whole = new Uint8Array(first.length + second.length);
  whole.set(first);
  whole.set(second, first.length);
  return whole;
}

const style = (name) => new Promise((done, failed) => {
  const sheet = document.createElement('link');
  Object.assign(sheet, { rel: 'stylesheet', href: new URL(name, import.meta.url).href, onload: done, onerror: failed });
  document.head.append(sheet);
});

let loading = null;
function load() {
  loading ??= (async () => {
    const styled = ['./vendor/xterm.css', './terminal.css'].map(style);
    const [xterm, fit] = await Promise.all([import('./vendor/xterm.js'), import('./vendor/xterm-fit.js')]);
    await Promise.all(styled); // it measures its letters when it is opened
    return { Terminal: xterm.Terminal, FitAddon: fit.FitAddon };
  })();
  loading.catch(() => { loading = null; });
  return loading;
}

/** One connection to a terminal: the screen first, then output, which is acknowledged when it is drawn. */
class Connection {
  constructor(id, box, { Terminal, FitAddon }, tell) {
    this.tell = tell;
    this.id = id;
    this.terminal = new Terminal({
      theme: colours(), fontSize: 13, fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'), scrollback: 5000,
      disableStdin: true, cursorBlink: false, screenReaderMode: false, minimumContrastRatio: 4.5, linkHandler: { activate() {} }, allowProposedApi: false,
    });
    this.fitter = new FitAddon();
    this.terminal.loadAddon(this.fitter);
    this.terminal.open(box);
    this.box = box;
    this.held = false;
    this.isCtrl = false;
    this.isRepaint = false;
    this.history = null;
    this.terminal.onData((data) => this.type(data));
    this.terminal.onBinary((data) => { if (this.held) this.socket.send(Uint8Array.from(data, (one) => one.charCodeAt(0))); });
    // Not as xterm.js pastes: an end of a paste in the text would let the rest of it act as keys.
    box.addEventListener('paste', (event) => {
      event.preventDefault();
      event.stopPropagation();
      if (this.held) this.paste(event.clipboardData?.getData('text/plain') ?? '');
    }, true);
    this.terminal.attachCustomKeyEventHandler((event) => this.held || !event || event.key === 'Tab' ? !(event.key === 'Tab' && !this.held) : false);
    this.watcher = new ResizeObserver(() => this.fit());
    this.watcher.observe(box);
    this.onScheme = () => { this.terminal.options.theme = colours(); };
    scheme.addEventListener('change', this.onScheme);
    this.connect();
  }

  connect() {
    const address = new URL(`v1/sessions/${path(this.id)}/terminal`, root);
    address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = this.socket = new WebSocket(address);
    this.socket.binaryType = 'arraybuffer';
    this.socket.onmessage = ({ data }) => socket === this.socket && (typeof data === 'string' ? this.hear(JSON.parse(data)) : this.draw(new Uint8Array(data)));
    this.socket.onclose = ({ code }) => { if (socket === this.socket) this.lose(code); };
  }

  lose(code) {
    this.setHeld(false);
    this.tell({ state: code === 4401 ? 'out' : code === 4404 ? 'none' : 'lost' });
    if (code !== 4401 && code !== 4404) this.again = setTimeout(() => this.connect(), 1500);
  }

  drop() {
    clearTimeout(this.again);
    this.socket?.close();
    this.socket = null;
  }

  /** The page lost its connection, or has it again. Ours may be dead without a sign, as after sleep. */
  follow(isLost) {
    this.drop();
    if (isLost) { this.setHeld(false); this.tell({ state: 'lost' }); } else this.connect();
  }

  draw(bytes) {
    // Reset and screen in one piece: between them it would not be known that the program wants pastes marked.
    const drawn = this.isRepaint ? joined(RESET, bytes) : bytes;
    this.isRepaint = false;
    // Acknowledged only when it is drawn: the keeper waits with the rest, and the agent does not wait for us.
    const { socket } = this;
    this.terminal.write(drawn, () => { if (socket.readyState === 1) socket.send(JSON.stringify({ type: 'ack', bytes: bytes.length })); });
  }

  hear(message) {
    switch (message.type) {
      case 'hello': this.tell({ state: message.alive ? 'live' : 'ended', error: '' }); break;
      case 'size': this.cols = message.cols; this.rows = message.rows; this.terminal.resize(message.cols, message.rows); this.shrink(); break;
      case 'repaint': this.isRepaint = true; break;
      case 'control': this.setHeld(message.held); break;
      case 'history': this.tell({ history: message.lines }); break;
      case 'exit': this.tell({ state: 'ended' }); break;
      case 'refused': this.tell({ error: message.why }); break;
      case 'error': this.tell({ error: message.message }); break;
      default: break;
    }
  }

  say(message) { if (this.socket?.readyState === 1) this.socket.send(JSON.stringify(message)); }

  setHeld(held) {
    this.held = held;
    this.terminal.options.disableStdin = !held;
    this.terminal.options.cursorBlink = held;
    this.tell({ held });
    if (held) { this.fit(); this.terminal.focus(); }
  }

  /** In control the session takes our size. As a reader we take its size, in a font that fits. */
  fit() {
    if (!this.box.clientWidth) return;
    if (!this.held) { this.shrink(); return; }
    this.terminal.options.fontSize = 13;
    const size = this.fitter.proposeDimensions();
    if (size?.cols > 1 && size?.rows > 1) this.say({ type: 'resize', cols: size.cols, rows: size.rows });
  }

  shrink() {
    if (this.held || !this.cols) return;
    const width = this.box.clientWidth - 18;
    const height = this.box.clientHeight - 6;
    const byWidth = width / (this.cols * 0.61);
    const byHeight = height / (this.rows * 1.25);
    const size = Math.max(9, Math.min(14, Math.floor(Math.min(byWidth, byHeight) * 2) / 2));
    if (this.terminal.options.fontSize !== size) this.terminal.options.fontSize = size;
  }

  type(data) {
    if (!this.held) return;
    let sent = data;
    if (this.isCtrl && data.length === 1) {
      const code = data.toUpperCase().charCodeAt(0);
      if (code >= 63 && code <= 95) sent = String.fromCharCode(code === 63 ? 127 : code - 64);
      this.isCtrl = false;
      this.tell({ isCtrl: false });
    }
    this.socket.send(new TextEncoder().encode(sent));
  }

  paste(text) {
    // A message has at most 1 MiB, and a character up to 6 bytes. Half a paste would be another prompt.
    if (text.length > LONGEST_PASTE) this.tell({ error: 'this is too long to paste; send it as a prompt' });
    else this.say({ type: 'paste', text, bracketed: this.terminal.modes.bracketedPasteMode });
  }

  close() {
    this.drop();
    this.watcher.disconnect();
    scheme.removeEventListener('change', this.onScheme);
    this.terminal.dispose();
  }
}

const KEYS = [
  ['Esc', '\x1b'], ['Tab', '\t'], ['⇧Tab', '\x1b[Z', 'Shift Tab'], ['Ctrl', null], ['↑', 'A', 'Up'], ['↓', 'B', 'Down'], ['←', 'D', 'Left'], ['→', 'C', 'Right'], ['Enter', '\r'],
];

export function TerminalPane({ id, isAlive }) {
  const box = useRef(null);
  const connection = useRef(null);
  const [status, setStatus] = useState({ state: 'loading', held: false, error: '', history: null, isCtrl: false });
  const [isBack, setBack] = useState(false);
  const [turn, setTurn] = useState(0);
  // A session that was resumed has a new terminal.
  useEffect(() => { if (isAlive && status.state === 'ended') setTurn((old) => old + 1); }, [isAlive]);
  useEffect(() => {
    let isOver = false;
    load().then((parts) => {
      if (!isOver) connection.current = new Connection(id, box.current, parts, (more) => { if (!isOver) setStatus((old) => ({ ...old, ...more })); });
    }, () => setStatus((old) => ({ ...old, state: 'failed' })));
    return () => { isOver = true; connection.current?.close(); connection.current = null; };
  }, [id, turn]);
  const isLost = link.value.state === 'lost';
  useEffect(() => { connection.current?.follow(isLost); }, [isLost]);
  const press = (key) => {
    const { current } = connection;
    if (key === null) { current.isCtrl = !current.isCtrl; setStatus((old) => ({ ...old, isCtrl: current.isCtrl })); current.terminal.focus(); return; }
    const isArrow = /^[A-D]$/.test(key);
    current.type(isArrow ? `\x1b${current.terminal.modes.applicationCursorKeysMode ? 'O' : '['}${key}` : key);
    current.terminal.focus();
  };
  const paste = async () => {
    let text = '';
    try { text = await navigator.clipboard.readText(); } catch { text = prompt('Text to paste') ?? ''; }
    if (text) connection.current?.paste(text);
  };
  const control = () => connection.current?.say({ type: status.held ? 'release' : 'take' });
  const showBack = () => { if (!isBack) connection.current?.say({ type: 'history', lines: BACK }); setBack(!isBack); };
  const words = { loading: 'loading …', live: status.held ? 'you type here' : 'read-only', ended: 'ended: the last screen', lost: 'not connected: this is old', none: 'no terminal', out: 'logged out', failed: 'could not be loaded' };
  return html`<section class="terminal ${status.held ? 'held' : ''}" aria-label="Terminal">
    <div class="tools"><span class="state ${{ live: status.held ? 'waiting' : 'idle', lost: 'error', out: 'error', failed: 'error' }[status.state] ?? 'dead'}" role="status">${words[status.state]}</span>
      ${status.error && html`<span class="note bad">${visible(status.error)}</span>`}
      <span class="grow"></span>
      ${status.state !== 'none' && html`<button class="small" aria-pressed=${isBack} onClick=${showBack}>Earlier output</button>`}
      ${status.state === 'live' && html`<button class="small ${status.held ? '' : 'take'}" aria-pressed=${status.held} onClick=${control}>${status.held ? 'Release control' : 'Take control'}</button>`}</div>
    <div class="screen ${status.state === 'lost' ? 'old' : ''}"><div class="xterm-box" ref=${box}></div>
      ${isBack && html`<${Back} lines=${status.history} />`}</div>
    ${status.held && html`<div class="key-bar" role="toolbar" aria-label="Keys">${KEYS.map(([text, key, name]) => html`<button class="small" key=${text} aria-label=${name ?? text}
      aria-pressed=${key === null ? status.isCtrl : undefined} onPointerDown=${(event) => event.preventDefault()} onClick=${() => press(key)}>${text}</button>`)}
      <button class="small" onPointerDown=${(event) => event.preventDefault()} onClick=${paste}>Paste</button></div>`}
  </section>`;
}

/** What was printed before the screen, from the session's history. */
function Back({ lines }) {
  const place = useRef(null);
  useEffect(() => { if (place.current) place.current.scrollTop = place.current.scrollHeight; }, [lines]);
  return html`<div class="back-log" ref=${place} tabindex="0" role="group" aria-label="Earlier output">
    ${lines === null ? html`<p class="dim">Loading …</p>` : lines.length === 0 ? html`<p class="dim">No earlier output is kept.</p>` : html`<pre>${visible(lines.join('\n').replace(STYLES, ''))}</pre>`}</div>`;
}
