/** The wish behind the form for a new session; its parts share it. */

export const query = JSON.parse(document.body.dataset.query || '{}');
export const server = query.server ?? '';

/** What is wished for, as the form shows it. */
export const wish = {
  tenant: query.tenant ?? null,
  flavor: query.flavor ?? null,
  gpus: Number(query.gpus) > 0 ? Number(query.gpus) : 1,
  duration: query.duration ?? '',
  class: query.class ?? '',
  interruptible: '',
  start: 'present',
  nodes: 1
};

/** The elements of the form, what the page knows, and what follows a change of the wish. */
export const form = { parts: {}, model: () => null, changed: () => {} };

export function wants() {
  const body = { kind: 'session', gpus: wish.gpus };
  if (wish.nodes > 1) {
    body.nodes = wish.nodes;
  }
  for (const name of ['tenant', 'flavor', 'duration', 'class', 'interruptible']) {
    if (wish[name]) {
      body[name] = wish[name];
    }
  }
  body.start = wish.start;
  body.server = server;
  return body;
}
