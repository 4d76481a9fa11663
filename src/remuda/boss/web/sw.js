// Shows the boss's notices, removes those that are over, and opens the item of one.
// It fetches nothing and keeps nothing.
const text = (value, limit) => (typeof value === 'string' ? value.slice(0, limit) : '');

function read(data) {
  try { return data.json() ?? {}; } catch { return {}; }
}

async function show(found) {
  const item = text(found.item, 200);
  const isOver = found.over === true;
  // Also one that is over: browsers take the permission from a page whose messages show nothing.
  await registration.showNotification(text(found.title, 200) || 'Remuda', {
    body: isOver ? 'No longer waiting.' : text(found.body, 1000), tag: item, renotify: item !== '' && !isOver, silent: isOver,
    icon: '/icon-192.png', data: { item },
  });
  if (isOver) for (const one of await registration.getNotifications({ tag: item })) one.close();
}

/** To a page that is open, else to a new one. The address is made here: a notice only names an item. */
async function open(item) {
  const address = item ? `/#/queue/${encodeURIComponent(item)}` : '/';
  const [page] = await clients.matchAll({ type: 'window' });
  if (!page) return clients.openWindow(address);
  return (await page.navigate(address))?.focus();
}

addEventListener('install', () => skipWaiting());
addEventListener('activate', (event) => event.waitUntil(clients.claim()));
addEventListener('push', (event) => event.waitUntil(show(event.data ? read(event.data) : {})));
addEventListener('notificationclick', (event) => {
  event.notification.close();
  event.waitUntil(open(text(event.notification.data?.item, 200)));
});
