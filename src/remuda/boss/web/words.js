// The words for states, reasons and outcomes. The state is never shown by its colour alone.
import { html } from './lib.js';
import { visible } from './text.js';

/** The group of each state: its colour. The words are those of `ls` and of `/v1`. */
export const STATES = {
  __proto__: null, starting: 'busy', idle: 'idle', thinking: 'busy', streaming: 'busy', tool_use: 'busy', waiting_permission: 'waiting', waiting_answer: 'waiting',
  interrupted: 'halted', limited: 'limited', error: 'error', active: 'busy', asleep: 'idle', dead: 'dead', unreachable: 'unknown',
};
export const GROUP_WORDS = {
  waiting: 'waiting', busy: 'working', idle: 'idle', halted: 'interrupted', limited: 'limited', error: 'error',
  dead: 'ended', unknown: 'unknown',
};
export const STATE_ORDER = Object.keys(GROUP_WORDS);
export const groupOf = (state) => STATES[state] ?? 'unknown';
export const State = ({ state }) => html`<span class="state ${groupOf(state)}">${STATES[state] ? state : 'unknown'}</span>`;

const REASONS = {
  __proto__: null, stopped: 'idle', permission: 'waiting', question: 'waiting', plan: 'waiting', api_error: 'error', limited: 'limited', hung: 'error', dead: 'dead', left_alone: 'dead', budget: 'waiting',
};
export const Reason = ({ reason }) => html`<span class="state ${REASONS[reason] ?? 'unknown'}">${visible(reason === 'left_alone' ? 'left alone' : reason)}</span>`;

const PAST = { allow: 'allowed', deny: 'denied' };
const WHO = { terminal: 'in the terminal', link: 'through a link', notice: 'from a notice', cli: 'on the command line', api: 'through the API', policy: 'by the policy', timeout: 'by a timeout', page: 'in a page' };
const THEN = { ran: 'it ran', failed: 'it ran and failed', denied: 'it did not run' };

/** Who decided: a phrase that follows the decision. */
function byWhom({ by, name }) {
  if (name && name === ownName()) return 'by you, here';
  if (name && by === 'page') return `in the page on ${visible(name.slice(0, 100))}`;
  return `${WHO[by] ?? ''}${name ? ` (${visible(name.slice(0, 100))})` : ''}`.trim();
}

/** What became of a permission request: who was first, and what happened then. */
export function outcome(approval) {
  if (approval.state === 'open') return 'open';
  const decision = approval.decision ?? {};
  let text = decision.behavior ? PAST[decision.behavior] ?? visible(decision.behavior) : decision.by === 'terminal' ? 'decided' : 'ended without a decision';
  if (decision.behavior || decision.by === 'terminal') text += ` ${byWhom(decision)}`;
  if (approval.answer?.always) text += ', always';
  if (approval.answer?.updated_input) text += ', with edited input';
  return THEN[decision.outcome] ? `${text.trim()}; ${THEN[decision.outcome]}` : text.trim();
}

/** The page's own name in the ledger, so that two browsers are told apart. */
export function ownName() {
  const agent = navigator.userAgent;
  const device = /iPhone|iPad|Android/.exec(agent) ?? /Mac(?= OS X)|Linux/.exec(agent) ?? 'browser';
  let tag = sessionStorage.getItem('name');
  if (!tag) sessionStorage.setItem('name', tag = Math.random().toString(36).slice(2, 5));
  return `${device} ${tag}`;
}
