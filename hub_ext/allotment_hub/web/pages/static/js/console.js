/** The console: everything at once for who runs the pool. Plain tables, each act asked twice. */

import {
  CallError,
  _,
  button,
  call,
  complain,
  confirmButton,
  h,
  rows,
  segment,
  show,
  site,
  start,
  timeElement,
  timeText
} from './base.js';
import { Live } from './live.js';
import { capacityTable } from './bars.js';
import { basisChip, newsLine, table } from './parts.js';
import {
  askText,
  leaseStateText,
  leaseText,
  placesText,
  reasonWords,
  requestStateText,
  stateText,
  whenText
} from './wording.js';

const content = document.getElementById('content');
const parts = {};
let policy = null;

async function load() {
  const [capacity, requests, leases, audit, history] = await Promise.all([
    call('GET', 'capacity'),
    call('GET', 'requests?state=queued,parked&limit=500'),
    call('GET', 'leases?limit=500'),
    call('GET', 'audit?limit=25'),
    call('GET', 'policy/history')
  ]);
  return {
    capacity,
    requests: rows(requests, 'requests'),
    leases: rows(leases, 'leases').filter(lease => lease.state !== 'released'),
    audit: rows(audit, 'audit'),
    head: audit.head ?? null,
    versions: rows(history, 'versions')
  };
}

function draw(model, news) {
  content.removeAttribute('aria-busy');
  if (!model) {
    show(content, h('p', {}, news.error ? news.error.message : newsLine(news)));
    return;
  }
  if (!parts.live) {
    parts.live = h('div', {});
    parts.policy = h('section', { class: 'al-section' });
    parts.audit = h('section', { class: 'al-section' });
    show(content, parts.live, parts.policy, parts.audit);
    drawPolicy(model);
  }
  if (model.versions[0]?.version !== parts.version) {
    drawPolicy(model);
  }
  show(
    parts.live,
    h(
      'header',
      { class: 'al-title' },
      h('h1', {}, _('Console')),
      newsLine(news),
      pauseControl(model.capacity)
    ),
    section(_('All GPUs'), capacityTable(model.capacity), unmanaged(model.capacity)),
    section(_('In line ({n:n})', { n: model.requests.length }), queueTable(model.requests)),
    section(_('Sessions ({n:n})', { n: model.leases.length }), leaseTable(model.leases)),
    section(_('Nodes'), nodeTable(model.capacity.nodes ?? []))
  );
  show(parts.audit, h('h2', {}, _('Last changes')), auditTable(model));
}

function section(title, ...children) {
  return h('section', { class: 'al-section' }, h('h2', {}, title), children);
}

// --- pausing

function pauseControl(capacity) {
  const paused = capacity.switches?.paused;
  const act = on => async () => {
    const reason = document.getElementById('pause-reason')?.value ?? '';
    await call('POST', 'grants/pause', { body: { on, reason } });
    await live.refresh();
  };
  return h(
    'div',
    { class: 'al-actions al-pause' },
    paused
      ? [
          h(
            'span',
            { class: 'al-bad' },
            h('b', {}, _('New starts are paused')),
            ` ${_('since {since:time}', { since: paused.since })}`,
            paused.text ? `: ${paused.text}` : ''
          ),
          button(_('Go on'), act(false), { class: 'btn btn-primary btn-sm' })
        ]
      : [
          (parts.reason ??= h('input', {
            id: 'pause-reason',
            class: 'form-control form-control-sm',
            placeholder: _('Why (those who wait will read it)'),
            'aria-label': _('Why new starts are paused'),
            'data-key': 'pause-reason',
            maxlength: 200
          })),
          confirmButton(_('Pause new starts'), _('Pause new starts?'), act(true), { key: 'pause' })
        ]
  );
}

function unmanaged(capacity) {
  const found = capacity.unmanaged ?? [];
  return found.length
    ? h(
        'div',
        { class: 'al-warning' },
        h('p', {}, h('b', {}, _('These servers use the pool without a lease:'))),
        h(
          'ul',
          {},
          found.map(row =>
            h(
              'li',
              {},
              `${row.user ?? '?'} / ${row.server || _('default server')} · ${timeText(row.seen_at)}`
            )
          )
        )
      )
    : null;
}

// --- tables

function queueTable(requests) {
  if (!requests.length) {
    return h('p', { class: 'al-quiet' }, _('Nobody waits.'));
  }
  const ordered = [...requests].sort(
    (a, b) =>
      (a.position ?? 1e9) - (b.position ?? 1e9) || (a.submitted_at < b.submitted_at ? -1 : 1)
  );
  return table(
    [
      _('Place'),
      _('User'),
      _('Team'),
      _('Class'),
      _('Asked'),
      _('State'),
      _('Since'),
      _('Starts'),
      _('Why'),
      ''
    ],
    ordered.map(row => [
      row.position ?? '–',
      row.user,
      row.tenant,
      row.class,
      h('a', { href: `${site.prefix}waiting/${segment(row.id)}` }, askText(row.asked)),
      requestStateText(row.state),
      timeElement(row.submitted_at),
      row.state === 'queued' ? whenText(row.forecast) : '–',
      row.reasons?.length ? reasonWords(row.reasons[0]).head : '',
      h(
        'div',
        { class: 'al-actions' },
        row.reasons?.some(reason => reason.code === 'ApprovalPending')
          ? button(
              _('Approve'),
              async () => {
                await call('POST', 'approvals', {
                  body: { request: row.id, reason: _('approved in the console') }
                });
                await live.refresh();
              },
              { key: `approve-${row.id}` }
            )
          : null,
        row.lease
          ? null
          : confirmButton(
              _('Remove'),
              _('Remove it from the line?'),
              async () => {
                await call('DELETE', `requests/${segment(row.id)}`);
                await live.refresh();
              },
              { key: `remove-${row.id}` }
            )
      )
    ]),
    { label: _('Who waits') }
  );
}

function leaseTable(leases) {
  if (!leases.length) {
    return h('p', { class: 'al-quiet' }, _('Nobody holds GPUs.'));
  }
  return table(
    [
      _('User'),
      _('Team'),
      _('GPUs'),
      _('Where'),
      _('State'),
      _('Basis'),
      _('Term ends'),
      _('Verdict'),
      ''
    ],
    leases.map(lease => [
      lease.server ? `${lease.user} / ${lease.server}` : lease.user,
      lease.tenant,
      leaseText(lease),
      placesText(lease),
      leaseStateText(lease.state),
      basisChip(lease),
      timeElement(lease.term_ends_at),
      stateText(lease.verdict?.state ?? 'unknown'),
      lease.state === 'stopping'
        ? h('span', { class: 'al-quiet' }, _('until nothing runs there'))
        : confirmButton(
            _('Stop'),
            _('Stop this session of {user}?', { user: lease.user }),
            async () => {
              await call('POST', `leases/${segment(lease.id)}/release`, {
                body: { reason: _('stopped by an administrator') }
              });
              await live.refresh();
            },
            { key: `stop-${lease.id}` }
          )
    ]),
    { label: _('Who holds GPUs') }
  );
}

function nodeTable(nodes) {
  return table(
    [_('Node'), _('Pool'), _('Devices'), _('Health'), _('Driver'), _('Detail'), ''],
    nodes.map(node => [
      node.node,
      node.pool ?? '–',
      node.devices,
      node.draining ? `${stateText(node.health)}, ${_('draining')}` : stateText(node.health),
      node.driver ?? '–',
      [node.detail, (node.taints ?? []).join(', ')].filter(Boolean).join(' · '),
      confirmButton(
        node.draining ? _('Use again') : _('Drain'),
        node.draining
          ? _('Put new work on {node} again?', { node: node.node })
          : _('Put nothing new on {node}? What runs there goes on.', { node: node.node }),
        async () => {
          await call('POST', `nodes/${segment(node.node)}/drain`, { body: { on: !node.draining } });
          await live.refresh();
        },
        { key: `drain-${node.node}` }
      )
    ]),
    { label: _('Nodes') }
  );
}

function auditTable({ audit, head }) {
  return [
    table(
      [_('When'), _('What'), _('About'), _('By'), _('Why')],
      audit.map(row => [
        timeElement(row.at),
        row.what,
        [row.subject, row.user, row.tenant].filter(Boolean).join(' · '),
        row.actor,
        row.why ?? ''
      ]),
      { label: _('Last changes') }
    ),
    head
      ? h(
          'p',
          { class: 'al-quiet al-small' },
          _('Audit chain: entry {seq:n}, {hash}', {
            seq: head.seq,
            hash: String(head.hash).slice(0, 16)
          })
        )
      : null
  ];
}

// --- the policy

function drawPolicy(model) {
  const inForce = model.versions[0];
  parts.version = inForce?.version;
  const text = h('textarea', {
    id: 'policy-text',
    class: 'form-control al-policy',
    spellcheck: 'false',
    'aria-label': _('Policy file'),
    'data-key': 'policy-text'
  });
  const result = h('div', { 'aria-live': 'polite' });
  const editor = h(
    'details',
    { 'data-key': 'policy-editor' },
    h('summary', {}, _('Look at it, check another, apply')),
    text,
    h(
      'div',
      { class: 'al-actions' },
      button(_('Check'), async () =>
        show(result, checkView(await call('POST', 'policy/check', { body: { text: text.value } })))
      ),
      confirmButton(_('Apply'), _('Put this policy in force?'), async () => {
        complain(null);
        show(result);
        await call('PUT', 'policy', {
          body: { text: text.value, note: _('applied in the console') },
          headers: { 'If-Match': `"${policy.version}"` }
        });
        await live.refresh();
      })
    ),
    result
  );
  editor.addEventListener('toggle', async () => {
    if (editor.open && !text.value) {
      try {
        policy = await call('GET', 'policy');
        text.value = policy.text;
      } catch (error) {
        if (!(error instanceof CallError)) {
          throw error;
        }
        complain(error);
      }
    }
  });
  show(
    parts.policy,
    h('h2', {}, _('Policy')),
    inForce
      ? h(
          'p',
          {},
          _('Version {n:n} is in force since {at:time}, by {by}.', {
            n: inForce.version,
            at: inForce.at,
            by: inForce.by
          })
        )
      : null,
    editor,
    h(
      'details',
      { 'data-key': 'policy-history' },
      h('summary', {}, _('History')),
      table(
        [_('Version'), _('Since'), _('By'), _('Note'), _('Changes'), ''],
        model.versions.map((version, index) => [
          version.version,
          timeElement(version.at),
          version.by,
          version.note ?? '',
          changesList(version.changes),
          index === 0
            ? _('in force')
            : confirmButton(
                _('Go back to it'),
                _('Put version {n:n} in force again?', { n: version.version }),
                async () => {
                  await call('POST', 'policy/rollback', { body: { to: version.version } });
                  await live.refresh();
                },
                { key: `rollback-${version.version}` }
              )
        ]),
        { label: _('History') }
      )
    )
  );
}

function changesList(changes) {
  return changes?.length
    ? h(
        'ul',
        {},
        changes
          .slice(0, 20)
          .map(change =>
            h('li', {}, `${change.path}: ${plain(change.before)} → ${plain(change.after)}`)
          )
      )
    : '';
}

const plain = value =>
  value === null || value === undefined
    ? '–'
    : typeof value === 'object'
      ? JSON.stringify(value)
      : String(value);

function checkView(answer) {
  const line = fault =>
    h(
      'li',
      {},
      `${fault.line ? _('line {n:n}', { n: fault.line }) + ': ' : ''}${fault.path ? `${fault.path}: ` : ''}${fault.message}`
    );
  if (!answer.ok) {
    return h(
      'div',
      { class: 'alert alert-danger' },
      h('p', {}, _('It has faults; it cannot be applied.')),
      h('ul', {}, answer.errors.map(line))
    );
  }
  return h(
    'div',
    { class: 'al-reason' },
    h('p', {}, h('b', {}, _('It can be applied.'))),
    answer.warnings?.length ? h('ul', {}, answer.warnings.map(line)) : null,
    answer.changes?.length ? changesList(answer.changes) : h('p', {}, _('It changes nothing.')),
    answer.never?.length
      ? h(
          'p',
          { class: 'al-bad' },
          _('{n:n} waiting requests could never start under it.', { n: answer.never.length })
        )
      : null
  );
}

await start();
const live = new Live({ load, draw }).start();
