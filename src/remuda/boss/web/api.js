// Requests to the boss.
import { parse } from './text.js';
import { learnClock } from './time.js';

export class ApiError extends Error {
  constructor(status, code, message, hint) {
    super(message);
    Object.assign(this, { status, code, hint });
  }
}

/** The root of the page: it may be served below a path of a proxy. */
export const root = new URL('.', document.baseURI);

async function failure(response) {
  const text = (await response.text().catch(() => '')).slice(0, 10_000);
  try {
    const { error } = JSON.parse(text);
    return new ApiError(response.status, error.code, error.message, error.hint);
  } catch {
    return new ApiError(response.status, 'FAILED', `the boss answered with status ${response.status}`);
  }
}

export const path = (...parts) => parts.map((one) => encodeURIComponent(one)).join('/');

export async function request(method, where, { body, headers = {}, signal, query } = {}) {
  const url = new URL(`v1/${where}`, root);
  for (const [name, value] of Object.entries(query ?? {})) if (value != null) url.searchParams.set(name, value);
  const sent = { ...headers };
  if (method !== 'GET') sent['X-Remuda'] = '1';
  if (body !== undefined) sent['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(url, {
      method, signal, headers: sent, body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin', cache: 'no-store', redirect: 'error', referrerPolicy: 'no-referrer',
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'UNREACHABLE', 'the boss cannot be reached; it may have received this', 'is it running?');
  }
  learnClock(response.headers.get('date'));
  if (!response.ok) throw await failure(response);
  return response;
}

export const get = async (where, query, signal) => parse(await (await request('GET', where, { query, signal })).text());
export const post = async (where, body = {}) => parse(await (await request('POST', where, { body })).text());

/** Server-sent events by fetch: EventSource can neither begin at an id nor tell silence from life. */
export async function* events(where, lastId, signal) {
  const headers = { Accept: 'text/event-stream', ...(lastId ? { 'Last-Event-ID': lastId } : {}) };
  const response = await request('GET', where, { headers, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield null; // a sign of life, also by a comment
    rest += value;
    const parts = rest.split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const event = { id: '', kind: '', data: '' };
      for (const line of part.split('\n')) {
        if (line.startsWith('id: ')) event.id = line.slice(4);
        else if (line.startsWith('event: ')) event.kind = line.slice(7);
        else if (line.startsWith('data: ')) event.data += line.slice(6);
      }
      if (event.kind) yield event;
    }
  }
}
