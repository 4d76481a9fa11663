// One place for what the page takes from others.
import { h } from './vendor/preact.js';
import htm from './vendor/htm.js';

export const html = htm.bind(h);
export { render, Fragment } from './vendor/preact.js';
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from './vendor/preact-hooks.js';
export { batch, computed, effect, signal } from './vendor/signals.js';
