// Times: the boss counts in seconds since the epoch, by its own clock.
import { html, signal } from './lib.js';

let offset = 0;
export const clock = () => Date.now() / 1000 + offset;

/** Learn the clock of the boss from the Date header: a phone's own clock may be off. */
export function learnClock(date) {
  const theirs = Date.parse(date) / 1000;
  // The header has whole seconds.
  if (Number.isFinite(theirs) && Math.abs(theirs + 0.5 - Date.now() / 1000) > 2) offset = theirs + 0.5 - Date.now() / 1000;
}

const second = signal(clock());
const minute = signal(clock());
export const slow = minute;
setInterval(() => {
  if (document.hidden) return;
  second.value = clock();
  if (second.value - minute.value >= 15) minute.value = second.value;
}, 1000);
document.addEventListener('visibilitychange', () => { second.value = minute.value = clock(); });

export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) {
    const minutes = Math.floor((whole % 3600) / 60);
    return `${Math.floor(whole / 3600)} h${minutes ? ` ${minutes} min` : ''}`;
  }
  const hours = Math.floor((whole % 86400) / 3600);
  return `${Math.floor(whole / 86400)} d${hours ? ` ${hours} h` : ''}`;
}

const LAST = 8.64e15; // beyond it there is no date
export const moment = (at) => new Date(Math.max(-LAST, Math.min(LAST, at * 1000)));
const pad = (number) => String(number).padStart(2, '0');
export function hours(at) {
  const date = moment(at);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}`;
}
export function day(at) {
  const date = moment(at);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}
export const dayHours = (at) => (clock() - at < 72000 ? hours(at) : `${day(at)} ${hours(at)}`);

/** How long ago, as it grows. Reads the fast clock only while that shows. */
export function Since({ at, before = '', after = '' }) {
  if (at == null) return html`<span class="unknown">unknown</span>`;
  const now = clock() - at < 90 ? second.value : minute.value;
  const date = moment(at);
  return html`<time dateTime=${date.toISOString()} title=${`${day(at)} ${hours(at)}`}>${before}${span(now - at)}${after}</time>`;
}
