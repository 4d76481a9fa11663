// Usage and statistics: what agents used, and how the last day, week or month went.
// Charts are small SVG drawings; each has a table with the same figures beside it.
import { html, signal, useEffect, useState } from './lib.js';
import { get } from './api.js';
import { label, sessions } from './store.js';
import { Name, money, oneLine, plural, tokens, visible } from './text.js';
import { clock, day, dayHours, hours, span } from './time.js';
import { GROUP_WORDS, STATE_ORDER, groupOf } from './words.js';

// ── charts ──

// On a phone the drawing is narrower, so that its text stays as large.
const small = matchMedia('(max-width: 719px)');
const width = signal(small.matches ? 360 : 720);
small.addEventListener('change', () => { width.value = small.matches ? 360 : 720; });
const H = 180;
const LEFT = 46;
const BOTTOM = 20;
const TOP = 8;

/** The end of an axis, of which half is a whole number too. */
function nice(most) {
  const least = Math.max(2, most);
  const size = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 4, 6, 8, 10].map((one) => one * size).find((one) => one >= least);
}

const when = (at, length) => (length > 3 * 86400 ? day(at).slice(5) : hours(at));

function Frame({ from, to, most, format, label, children }) {
  const W = width.value;
  const length = to - from;
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return html`<svg class="chart" viewBox="0 0 ${W} ${H}" role="img" aria-label=${label}>
    ${[0, 0.5, 1].map((one) => { const y = TOP + (1 - one) * (H - TOP - BOTTOM); return html`<line class="grid" x1=${LEFT} x2=${W} y1=${y} y2=${y} /><text x=${LEFT - 6} y=${y + 4} text-anchor="end">${format(most * one)}</text>`; })}
    ${ticks.map((one) => html`<text x=${LEFT + one * (W - LEFT)} y=${H - 4} text-anchor=${one === 0 ? 'start' : one === 1 ? 'end' : 'middle'}>${when(from + one * length, length)}</text>`)}
    ${children}</svg>`;
}

/** Stacked bars. `rows`: [{at, values: {name: number}}]; `names` from the bottom up, each is also a class. */
function Stacked({ rows, names, from, to, step, format = (value) => String(Math.round(value * 10) / 10), label }) {
  const sums = rows.map((row) => names.reduce((sum, name) => sum + (row.values[name] ?? 0), 0));
  const most = nice(Math.max(0, ...sums));
  const W = width.value;
  const each = ((W - LEFT) * step) / Math.max(1, to - from);
  return html`<${Frame} from=${from} to=${to} most=${most} format=${format} label=${label}>
    ${rows.map((row) => {
    let y = H - BOTTOM;
    return names.map((name) => {
      const height = ((row.values[name] ?? 0) / most) * (H - TOP - BOTTOM);
      y -= height;
      return height > 0 && html`<rect class="fill ${name}" x=${LEFT + ((row.at - from) / (to - from)) * (W - LEFT)} y=${y} width=${Math.max(0.8, each - (each > 3 ? 0.8 : 0))} height=${height} />`;
    });
  })}<//>`;
}

/** Lines over time, broken where nothing is known. `lines`: [{name, points: [{at, value}]}]. */
function Lines({ lines, from, to, format, label }) {
  const most = nice(Math.max(0, ...lines.flatMap((one) => one.points.map((point) => point.value ?? 0))));
  const W = width.value;
  const x = (at) => LEFT + ((at - from) / (to - from)) * (W - LEFT);
  const y = (value) => H - BOTTOM - (value / most) * (H - TOP - BOTTOM);
  return html`<${Frame} from=${from} to=${to} most=${most} format=${format} label=${label}>
    ${lines.map(({ name, points }) => {
    let isDown = false;
    const path = points.map(({ at, value }) => {
      if (value == null) { isDown = false; return ''; }
      const step = `${isDown ? 'L' : 'M'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      isDown = true;
      return step;
    }).join('');
    return html`<path class="stroke ${name}" d=${path} />${points.filter((one) => one.value != null).map((one) => html`<circle class="fill ${name}" cx=${x(one.at)} cy=${y(one.value)} r="2.2" />`)}`;
  })}<//>`;
}

/** A horizontal bar for a row of a table. `parts`: [[class, value]]. */
function Bar({ parts, most, label }) {
  let x = 0;
  return html`<svg class="hbar" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=${label}>
    ${parts.map(([name, value]) => {
    const width = ((value ?? 0) / Math.max(1, most)) * 1000;
    const found = html`<rect class="fill ${name}" x=${x} width=${width} height="10" />`;
    x += width;
    return found;
  })}</svg>`;
}

const Legend = ({ entries }) => html`<p class="legend">${entries.map(([name, text]) => html`<span class="state ${name}">${text}</span> `)}</p>`;

// ── usage ──

const KINDS = [['k-input', 'input', 'input'], ['k-write', 'cache_write', 'cache write'], ['k-read', 'cache_read', 'cache read'], ['k-output', 'output', 'output']];
const BY = ['session', 'folder', 'model', 'account', 'day'];
const RANGES = [['1', '24 hours'], ['7', '7 days'], ['30', '30 days']];
const total = (one) => KINDS.reduce((sum, [, name]) => sum + (one[name] ?? 0), 0);
const exact = (count) => (count == null ? 'unknown' : count.toLocaleString('en'));

function UsageTable({ rows, by, currency, sum, onTurns }) {
  const most = Math.max(1, ...rows.map((one) => total(one.tokens)));
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Usage by ${by}"><table class="plain-table usage"><thead><tr><th scope="col">${by}</th><th scope="col" class="wide-only">share</th>
      ${KINDS.map(([, , text]) => html`<th scope="col" class="figure">${text}</th>`)}<th scope="col" class="figure">turns</th><th scope="col" class="figure">cost</th></tr></thead>
    <tbody>${rows.map((one, at) => html`<${UsageRow} key=${one.key ?? at} row=${one} most=${most} currency=${currency} onTurns=${onTurns} />`)}</tbody>
    ${sum && html`<tfoot><${UsageRow} row=${{ ...sum, label: 'all' }} most=${0} currency=${currency} /></tfoot>`}</table></div>`;
}

/** A folder by its last parts: its beginning is the same for most. */
function short(row) {
  return row.key && row.key === row.folder ? row.key.replace(/^.+(?=(?:\/[^/]+){2}$)/, '…') : row.key;
}

function UsageRow({ row, most, currency, onTurns }) {
  const name = row.label ?? short(row) ?? (row.session_id ? label(sessions.value.get(row.session_id), row.session_id) : 'unknown');
  return html`<tr><th scope="row">${onTurns && row.session_id ? html`<button class="plain link" onClick=${() => onTurns(row)}><${Name} text=${name} limit=${60} /></button>` : html`<${Name} text=${name} limit=${60} />`}
      ${row.model && row.model !== row.key && html` <span class="dim">${oneLine(row.model, 40)}</span>`}</th>
    <td class="wide-only">${most > 0 && html`<${Bar} parts=${KINDS.map(([kind, field]) => [kind, row.tokens[field]])} most=${most} label=${`${tokens(total(row.tokens))} tokens`} />`}</td>
    ${KINDS.map(([, field]) => html`<td class="figure" title=${exact(row.tokens[field])}>${tokens(row.tokens[field])}</td>`)}
    <td class="figure">${row.turns == null ? '–' : exact(row.turns)}</td><td class="figure">${row.cost == null ? html`<span class="dim">unknown</span>` : html`${money(row.cost, currency)}${row.cost_partial && html`<span title="some messages have no price"> +?</span>`}`}</td></tr>`;
}

export function UsageView() {
  const [by, setBy] = useState('session');
  const [days, setDays] = useState('7');
  const [of, setOf] = useState(null);
  const [found, setFound] = useState(null);
  const [error, setError] = useState('');
  useEffect(() => {
    let isOver = false;
    const load = () => get('usage', { by: of ? 'turn' : by, since: clock() - Number(days) * 86400, session: of?.session_id, limit: 200 })
      .then((one) => { if (!isOver) { setFound(one); setError(''); } }, (problem) => { if (!isOver) setError(problem.message); });
    load();
    const timer = setInterval(() => { if (!document.hidden) load(); }, 30_000);
    return () => { isOver = true; clearInterval(timer); };
  }, [by, days, of]);
  return html`<div class="figures"><div class="tools"><h1 class="title">Usage</h1>
      <label>by <select aria-label="Group by" value=${by} onChange=${(event) => { setOf(null); setBy(event.target.value); }}>${BY.map((one) => html`<option>${one}</option>`)}</select></label>
      <label>over <select aria-label="Range" value=${days} onChange=${(event) => setDays(event.target.value)}>${RANGES.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select></label>
      ${of && html`<button class="small" onClick=${() => setOf(null)}>‹ all</button> <span>turns of <${Name} text=${of.label ?? of.key} /></span>`}</div>
    ${error && html`<p class="outcome error" role="alert">${visible(error)}</p>`}
    ${!found ? html`<p class="dim">Loading …</p>` : html`
      <${Legend} entries=${KINDS.map(([kind, , text]) => [kind, text])} />
      ${found.rows.length ? html`<${UsageTable} rows=${found.rows} by=${found.by} currency=${found.currency} sum=${found.total} onTurns=${found.by === 'session' ? setOf : null} />` : html`<p class="dim">Nothing was used, or no agent reports it.</p>`}
      ${found.cut && html`<p class="dim">Only the largest rows are shown.</p>`}
      ${found.unknown.length > 0 && html`<p class="dim">${plural(found.unknown.length, 'agent')} do not report what they use: ${oneLine(found.unknown.join(', '), 300)}</p>`}
      <p class="dim">Tokens as the agents recorded them. Money only where the agent reports it, or a price is in the configuration.</p>`}</div>`;
}

// ── statistics ──

const SPANS = ['day', 'week', 'month'];
const DECIDED = [['d-rule', 'rule', 'by a rule'], ['d-human', 'human', 'by a human elsewhere'], ['d-terminal', 'terminal', 'in the terminal'], ['d-timeout', 'timeout', 'timed out'], ['d-open', 'open', 'open']];

const Table = ({ head, rows, label }) => html`<details class="as-table"><summary>As a table</summary><div class="scroll" tabindex="0" role="group" aria-label=${label}><table class="plain-table"><thead><tr>${head.map((one) => html`<th scope="col">${one}</th>`)}</tr></thead>
  <tbody>${rows.map((row) => html`<tr>${row.map((one, at) => (at ? html`<td class="figure">${one}</td>` : html`<th scope="row">${one}</th>`))}</tr>`)}</tbody></table></div></details>`;

const Card = ({ title, children, note }) => html`<section class="card" aria-label=${title}><h2>${title}</h2>${children}${note && html`<p class="dim">${note}</p>`}</section>`;

export function StatisticsView() {
  const [range, setRange] = useState('day');
  const [found, setFound] = useState(null);
  const [error, setError] = useState('');
  useEffect(() => {
    let isOver = false;
    const load = () => get('statistics', { range }).then((one) => { if (!isOver) { setFound(one); setError(''); } }, (problem) => { if (!isOver) setError(problem.message); });
    load();
    const timer = setInterval(() => { if (!document.hidden) load(); }, 60_000);
    return () => { isOver = true; clearInterval(timer); };
  }, [range]);
  return html`<div class="figures"><div class="tools"><h1 class="title">Statistics</h1>
      <span class="choice" role="group" aria-label="Range">${SPANS.map((one) => html`<button class="small" aria-pressed=${one === range} onClick=${() => setRange(one)}>${one}</button>`)}</span></div>
    ${error && html`<p class="outcome error" role="alert">${visible(error)}</p>`}
    ${found ? html`<${Figures} of=${found} />` : html`<p class="dim">Loading …</p>`}</div>`;
}

function Figures({ of }) {
  const when = (at) => (of.step >= 86400 ? day(at) : dayHours(at));
  const states = of.states.map((one) => {
    const values = {};
    for (const [state, count] of Object.entries(one.agents)) { const group = groupOf(state); values[group] = (values[group] ?? 0) + count; }
    return { at: one.at, values };
  });
  const groups = STATE_ORDER.filter((group) => group !== 'dead' && states.some((one) => one.values[group] > 0));
  const used = of.usage.over_time.map((one) => ({ at: one.at, values: Object.fromEntries(KINDS.map(([kind, field]) => [kind, one.tokens[field] ?? 0])) }));
  const cost = of.usage.over_time.reduce((sum, one) => (one.cost == null ? sum : (sum ?? 0) + one.cost), null);
  const asked = Math.max(1, ...of.permissions.map((one) => one.count));
  return html`<div class="cards">
    <${Card} title="Agents by state" note=${of.known_since > of.from ? `States are known since ${dayHours(of.known_since)}.` : ''}>
      ${groups.length ? html`<${Stacked} rows=${states} names=${groups} from=${of.from} to=${of.to} step=${of.step} label="Agents by state over time" />
      <${Legend} entries=${groups.map((group) => [group, GROUP_WORDS[group]])} />
      <${Table} label="Agents by state" head=${['when', ...groups.map((group) => GROUP_WORDS[group])]} rows=${states.filter((one) => Object.keys(one.values).length).map((one) => [when(one.at), ...groups.map((group) => (one.values[group] ?? 0).toFixed(1))])} />` : html`<p class="dim">Nothing is known of this time.</p>`}<//>
    <${Card} title="How long agents waited for a human">
      ${of.waits.count ? html`<p class="big-figures"><span><b>${span(of.waits.median)}</b> median</span><span><b>${span(of.waits.p90)}</b> p90</span><span><b>${of.waits.count}</b> ${of.waits.count === 1 ? 'wait' : 'waits'}</span></p>
      <${Lines} from=${of.from} to=${of.to} format=${(value) => span(value)} label="Median and 90th percentile of waits over time" lines=${[
    { name: 'l-median', points: of.waits.over_time.map((one) => ({ at: one.at, value: one.median })) }, { name: 'l-p90', points: of.waits.over_time.map((one) => ({ at: one.at, value: one.p90 })) }]} />
      <${Legend} entries=${[['l-median', 'median'], ['l-p90', 'p90']]} />
      <${Table} label="Waits by reason" head=${['reason', 'waits', 'median', 'p90']} rows=${of.waits.reasons.map((one) => [visible(one.reason), one.count, one.median == null ? '–' : span(one.median), one.p90 == null ? '–' : span(one.p90)])} />` : html`<p class="dim">No agent waited.</p>`}<//>
    <${Card} title="Tokens" note=${cost == null ? 'Cost: unknown.' : `Cost: ${money(cost, of.usage.currency)}.`}>
      ${used.some((one) => Object.values(one.values).some(Boolean)) ? html`<${Stacked} rows=${used} names=${KINDS.map(([kind]) => kind)} from=${of.from} to=${of.to} step=${of.step} format=${tokens} label="Tokens over time" />
      <${Legend} entries=${KINDS.map(([kind, , text]) => [kind, text])} />
      <${UsageTable} rows=${of.usage.models} by="model" currency=${of.usage.currency} /><${UsageTable} rows=${of.usage.folders} by="folder" currency=${of.usage.currency} />` : html`<p class="dim">No agent reported usage.</p>`}<//>
    <${Card} title="Permissions by tool">
      ${of.permissions.length ? html`<${Legend} entries=${DECIDED.map(([kind, , text]) => [kind, text])} /><div class="scroll" tabindex="0" role="group" aria-label="Permissions by tool"><table class="plain-table"><thead><tr><th scope="col">tool</th><th scope="col" class="wide-only">how decided</th><th scope="col" class="figure">requests</th><th scope="col" class="figure">allowed</th><th scope="col" class="figure">denied</th></tr></thead>
      <tbody>${of.permissions.map((one) => html`<tr><th scope="row">${oneLine(one.tool || 'unknown', 60)}</th><td class="wide-only"><${Bar} most=${asked} parts=${DECIDED.map(([kind, field]) => [kind, one[field]])}
        label=${DECIDED.filter(([, field]) => one[field]).map(([, field, text]) => `${one[field]} ${text}`).join(', ')} /></td><td class="figure">${one.count}</td><td class="figure">${one.allowed}</td><td class="figure">${one.denied}</td></tr>`)}</tbody></table></div>` : html`<p class="dim">No permission was requested.</p>`}<//>
    <${Card} title="Warm pool">${of.pool ? html`<p class="big-figures"><span><b>${of.pool.requests ? Math.round((100 * of.pool.warm_hits) / of.pool.requests) : 0} %</b> warm</span><span><b>${of.pool.requests}</b> requests</span></p>` : html`<p class="dim">No pool is known.</p>`}<//>
    ${of.cut && html`<p class="dim">Only part of the records was counted.</p>`}</div>`;
}
