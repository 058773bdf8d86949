/** Requests, leases, reasons and states in words. */

import { N_, _, options, millisecondsTo, site } from './base.js';
import { flavorName, reasonParts, say, showNumber } from './sentences.js';

/** "4 × A100 80 GB on one node, joined by NVLink". */
export function askText(asked) {
  const kind = asked.flavor ? flavorName(asked.flavor) : _('GPU of any kind');
  const parts = [`${showNumber(asked.gpus)} × ${kind}`];
  if (asked.nodes > 1) {
    parts.push(_('on {nodes:n} nodes', { nodes: asked.nodes }));
  } else if (asked.gpus > 1 && asked.same_node === false) {
    parts.push(_('on any nodes'));
  } else if (asked.gpus > 1 && asked.same_node !== false) {
    parts.push(_('on one node'));
  }
  if (asked.nvlink) {
    parts.push(_('joined by NVLink'));
  }
  if (asked.min_memory) {
    parts.push(_('at least {memory:memory} each', { memory: asked.min_memory }));
  }
  return parts.join(site.lang === 'zh' ? '，' : ' ');
}

/** "2 × A100 80 GB" of a lease. */
export function leaseText(lease) {
  const gpus =
    lease.gpus ?? (lease.devices ?? []).reduce((sum, device) => sum + (device.share ?? 1), 0);
  const flavor = lease.flavor ?? lease.devices?.[0]?.flavor;
  return `${showNumber(gpus)} × ${flavor ? flavorName(flavor) : 'GPU'}`;
}

/** "n1: 0, 1" for each node. */
export function placesText(lease) {
  const nodes = new Map();
  for (const device of lease.devices ?? []) {
    nodes.set(device.node, [...(nodes.get(device.node) ?? []), device.index]);
  }
  return [...nodes].map(([node, indexes]) => `${node}: ${indexes.join(', ')}`).join('; ');
}

/** The words of a reason, always from its code and numbers, so that they follow the language. */
export function reasonWords(reason) {
  const { head, more } = reasonParts(reason.code, reason.evidence ?? {}, {
    until: reason.until,
    ...options()
  });
  return { head, more };
}

/** What a change to a request amounts to: "2 × A100 80 GB". */
export function changeText(change, asked) {
  const merged = { ...asked, ...change };
  const shapeChanged = ['gpus', 'flavor', 'nodes', 'nvlink', 'min_memory', 'same_node'].some(
    key => key in change
  );
  const parts = shapeChanged ? [askText(merged)] : [];
  if ('duration' in change) {
    parts.push(_('for {duration:duration}', { duration: change.duration }));
  }
  if (change.nvlink === false) {
    parts.push(_('without NVLink'));
  }
  if (change.borrow === true) {
    parts.push(_('borrowing allowed'));
  }
  if ('tenant' in change) {
    parts.push(_('for team {tenant}', { tenant: change.tenant }));
  }
  if ('class' in change) {
    parts.push(_('as class {class}', { class: change.class }));
  }
  return parts.join(', ') || JSON.stringify(change);
}

/** When something could start: "could start now", "about 15:10", "not known". */
export function whenText(forecast) {
  const expected = typeof forecast === 'string' ? forecast : (forecast?.expected_start ?? null);
  if (expected === null) {
    return _('start not known');
  }
  const left = millisecondsTo(expected);
  if (left !== null && left < 30_000) {
    return _('could start now');
  }
  const latest = typeof forecast === 'object' ? forecast.latest_start : null;
  return latest && latest === expected
    ? _('{at:time}, certain', { at: expected })
    : _('about {at:time}', { at: expected });
}

const LEASE_STATES = {
  granted: N_('about to start'),
  preparing: N_('getting ready'),
  active: N_('running'),
  noticed: N_('notice given'),
  frozen: N_('frozen'),
  stopping: N_('stopping'),
  released: N_('ended')
};

export const leaseStateText = state => _(LEASE_STATES[state] ?? state);

const REQUEST_STATES = {
  queued: N_('in line'),
  parked: N_('parked'),
  granted: N_('your turn'),
  done: N_('ended'),
  cancelled: N_('cancelled'),
  rejected: N_('refused'),
  expired: N_('expired')
};

export const requestStateText = state => _(REQUEST_STATES[state] ?? state);

const OTHER_STATES = {
  // verdicts of activity
  active: N_('active'),
  protected: N_('protected'),
  unused: N_('unused'),
  idle: N_('idle'),
  abandoned: N_('abandoned'),
  stale: N_('no longer reporting'),
  unknown: N_('unknown'),
  preparing: N_('getting ready'),
  // health of nodes and devices
  ok: N_('in order'),
  degraded: N_('degraded'),
  lost: N_('lost'),
  dirty: N_('not clean')
};

/** A verdict or a health in words. */
export const stateText = state => _(OTHER_STATES[state] ?? state);

/** Why a lease is taken back, or was. */
export const triggerText = trigger => say(`triggers.${trigger}`);
