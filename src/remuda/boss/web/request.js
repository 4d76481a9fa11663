// A permission request, question or plan: all of it, and the forms that answer it.
import { html, useEffect, useRef } from './lib.js';
import { Diff } from './diff.js';
import { Markdown } from './markdown.js';
import { Long, gist, json, losesDigits, oneLine, parse, visible } from './text.js';

const IN_DIFF = new Set(['old_string', 'new_string', 'edits', 'new_source', 'content']);
const asText = (value) => (typeof value === 'string' ? value : json(value));

/** Why a request cannot be allowed from here; '' if all of it can be shown. */
export function whyHidden(approval) {
  if (!approval.tool) return 'The request is shown only in the agent’s terminal.';
  if (losesDigits(approval.input)) return 'This browser cannot show all digits of a number; the agent’s terminal does.';
  const { plan } = approval.input;
  return approval.reason === 'plan' && !(typeof plan === 'string' && plan.trim())
    ? 'The plan is shown only in the agent’s terminal.' : whyRefused(approval, 'allow');
}

/** Why the agent cannot take a decision; '' if it can. An older boss does not say. */
export const whyRefused = ({ refuses }, what) => (refuses?.[what] ? oneLine(`${refuses[what]}.`, 500) : '');

export function questionsOf(approval) {
  const asked = approval.reason === 'question' ? approval.input.questions : null;
  return Array.isArray(asked) ? asked.filter((one) => one && typeof one === 'object').slice(0, 50) : [];
}

/** One line for a list: what is asked. */
export function summary(item, approval) {
  const { detail } = item;
  const given = approval?.input ?? detail.input ?? {};
  if (item.reason === 'permission') {
    const what = given.command ?? given.file_path ?? given.url ?? given.path ?? item.message;
    return oneLine(typeof what === 'string' ? what : json(given));
  }
  return gist(item.message || detail.error || detail.why || '');
}

/** The diff among the parts that must be seen: no field of an input has this name. */
const DIFF = Symbol('diff');
const diffOf = ({ detail }) => (typeof detail.diff === 'string' ? detail.diff : '');

/** Everything that would run. `seen(part)` is called for each part that is shown completely. */
export function RequestBody({ approval, seen }) {
  const diff = diffOf(approval);
  const { input } = approval;
  if (approval.reason === 'plan' && typeof input.plan === 'string') {
    const rest = Object.entries(input).filter(([name]) => name !== 'plan');
    return html`${approval.detail.plan_from && html`<p class="dim">As the agent recorded it.</p>`}
      <div class="plan"><${Markdown} text=${input.plan} onAll=${() => seen('plan')} /></div>
      ${rest.map(([name, value]) => html`<${Field} name=${name} value=${value} seen=${seen} />`)}`;
  }
  const fields = Object.entries(input).filter(([name, value]) => !(diff && (IN_DIFF.has(name) || isNamed(diff, value))));
  const isAlone = Object.keys(input).length === 1;
  return html`
    ${fields.map(([name, value]) => html`<${Field} key=${name} name=${name} value=${value} seen=${seen}
      isMain=${isAlone || name === 'command'} />`)}
    ${diff && html`<${Diff} text=${diff} onAll=${() => seen(DIFF)} />
      <details class="whole"><summary>Complete input</summary><${Long} text=${json(input)} label="Complete input" dir="ltr" /></details>`}`;
}

/** Whether the head of the diff shows this path. */
const isNamed = (diff, value) => typeof value === 'string' && diff.startsWith(`--- a${value}\n+++ b${value}\n`);

/** The parts that must be seen before a request can be allowed. */
export function partsOf(approval) {
  const diff = diffOf(approval);
  if (approval.reason === 'question') return [];
  const names = Object.keys(approval.input).filter((name) => !(diff && (IN_DIFF.has(name) || isNamed(diff, approval.input[name]))));
  return diff ? [...names, DIFF] : names;
}

/** From left to right whatever its first letter is: a command is not prose. */
function Field({ name, value, isMain, seen }) {
  const text = asText(value);
  const isShort = !isMain && text.length < 120 && !text.includes('\n');
  useEffect(() => { if (isShort) seen(name); }, [isShort, name]);
  if (isShort) return html`<p class="field"><span class="dim">${visible(name)}</span> <bdi dir="ltr">${visible(text)}</bdi></p>`;
  return html`${!isMain && html`<h3 class="dim">${visible(name)}</h3>`}
    <${Long} text=${text} onAll=${() => seen(name)} label=${visible(name)} dir="ltr" />`;
}

// ── forms ──

/** The options of a question. `draft` maps the number of a question to its answers. */
export function Questions({ approval, draft, onChange, disabled }) {
  return html`<div class="questions">${questionsOf(approval).map((one, at) => html`<${Question} key=${at}
    id=${`${approval.id}-${at}`} asked=${one} chosen=${draft[at + 1] ?? []} disabled=${disabled}
    onChange=${(chosen) => onChange({ ...draft, [at + 1]: chosen })} />`)}</div>`;
}

function Question({ id, asked, chosen, onChange, disabled }) {
  const isMany = Boolean(asked.multiSelect);
  const options = (Array.isArray(asked.options) ? asked.options : []).filter((one) => one && typeof one === 'object').slice(0, 100);
  const labels = options.map((one) => String(one.label ?? ''));
  const own = chosen.find((one) => !labels.includes(one)) ?? '';
  const pick = (text) => {
    if (!isMany) onChange([text]);
    else onChange(chosen.includes(text) ? chosen.filter((one) => one !== text) : [...chosen, text]);
  };
  const write = (text) => {
    const kept = isMany ? chosen.filter((one) => labels.includes(one)) : [];
    onChange(text.trim() ? [...kept, text] : kept);
  };
  return html`<fieldset disabled=${disabled}>
    <legend dir="auto">${asked.header && html`<span class="chip"><bdi>${oneLine(asked.header, 40)}</bdi></span> `}${visible(asked.question)}</legend>
    ${options.map((one, at) => html`<label class="option" key=${at}>
      <input type=${isMany ? 'checkbox' : 'radio'} name=${id} checked=${chosen.includes(labels[at])} onChange=${() => pick(labels[at])} />
      <span dir="auto">${visible(labels[at])}${one.description && html`<small>${visible(one.description)}</small>`}</span></label>`)}
    <input class="own" type="text" maxlength="10000" dir="auto" value=${own} placeholder="Your own answer" aria-label="Your own answer"
      onInput=${(event) => write(event.target.value)} />
  </fieldset>`;
}

export const isAnswered = (approval, draft) => questionsOf(approval).every((_, at) => draft[at + 1]?.length);

/** One field for each part of the input: text as text, everything else as JSON. */
export function EditForm({ input, draft, onChange, onSubmit }) {
  const first = useRef(null);
  useEffect(() => { first.current?.focus(); }, []);
  return html`<form class="edit" id="edit" onSubmit=${(event) => { event.preventDefault(); onSubmit(); }}>
    ${Object.entries(input).map(([name, value], at) => {
    const text = Object.hasOwn(draft, name) ? draft[name] : asText(value);
    return html`<label key=${name}><span class="dim">${visible(name)}${typeof value !== 'string' && ' (JSON)'}</span>
      <textarea ref=${at ? undefined : first} dir="auto" spellcheck="false" rows=${Math.min(16, Math.max(name === 'command' ? 3 : 1, text.split('\n').length + (text.length / 60 | 0)))}
        value=${text} onInput=${(event) => onChange({ ...draft, [name]: event.target.value })}
        onKeyDown=${(event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); onSubmit(); } }} /></label>`;
  })}</form>`;
}

/** The edited input. Throws an Error that says what is wrong. */
export function editedInput(input, draft) {
  return Object.fromEntries(Object.entries(input).map(([name, value]) => {
    if (!Object.hasOwn(draft, name)) return [name, value];
    if (typeof value === 'string') return [name, draft[name]];
    try { return [name, parse(draft[name])]; } catch (error) { throw new Error(`${name} is not valid JSON: ${error.message}`); }
  }));
}
