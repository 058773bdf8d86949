// What people do, as they do it: by labels, roles and the keyboard.
import assert from 'node:assert/strict';
import { createServer, request as httpRequest } from 'node:http';
import { audit } from './audit.mjs';

const A100 = 'a100-80g';

const room = id => `waiting/${id}`;
const place = page => page.locator('.al-place');
const heading = page => page.getByRole('heading', { level: 1 });

async function seen(locator, text, timeout = 15_000) {
  await locator.filter({ hasText: text }).first().waitFor({ timeout });
}

/** nlp holds all four A100s: two of its own, two borrowed from vision. */
async function full(host) {
  const held = await host('ask', 'bob', { gpus: 4, flavor: A100, server: 'big' });
  await host('wait_for', 'bob', held.id, 'active');
  return held;
}

export async function free_gpus_start_at_once({ open, shot }) {
  const page = await open('ann', 'new?server=lab');
  await seen(page.locator('.al-flavor'), '4 of 4 free');
  await seen(page.locator('.al-outcome'), 'Starts now');
  await page.getByLabel('How many GPUs').fill('2');
  await seen(page.locator('.al-outcome'), '2 × A100 80 GB');
  await seen(page.locator('.al-outcome'), 'guaranteed');
  await shot(page, 'spawn-form');
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await page.waitForURL(/\/waiting\/r-/);
  await seen(heading(page), /about to start|getting ready|running/);
  await seen(heading(page), 'Your session is running');
  await seen(page.locator('.al-room'), 'n1: ');
}

export async function borrowing_says_what_it_means({ open }) {
  const page = await open('ann', 'new');
  await page.getByLabel('How many GPUs').fill('3');
  await seen(page.locator('.al-outcome'), 'borrowed: 1 from nlp');
  await seen(page.locator('.al-outcome'), 'The term is 2 hours and can be renewed 2 times.');
}

export async function who_must_wait_sees_place_and_reason_and_takes_an_alternative({
  open,
  host,
  shot
}) {
  await full(host);
  const page = await open('ann', 'new');
  await page.getByLabel('How many GPUs').fill('2');
  await seen(page.locator('.al-outcome'), 'Waits in line');
  await seen(page.locator('.al-outcome'), 'asked back');
  await seen(page.locator('.al-outcome'), '2 × L40S');
  await shot(page, 'spawn-form-waits');
  await page.getByRole('button', { name: 'Join the line' }).click();
  await page.waitForURL(/\/waiting\//);
  await seen(heading(page), 'Your session is in line: 2 × A100 80 GB on one node, team vision');
  await seen(place(page), '1');
  await seen(place(page), 'of 1 in line');
  await seen(
    page.locator('.al-reason'),
    'GPUs that your team has lent were asked back: 4 from nlp.'
  );
  await seen(page.locator('.al-eta'), /starts at (about|the latest)/);
  await seen(page.locator('.al-history'), 'in line');
  await shot(page, 'waiting-room');
  await page.getByRole('button', { name: 'Take this instead: 2 × L40S on one node' }).click();
  await seen(heading(page), '2 × L40S');
  await seen(heading(page), 'Your session is running');
}

export async function a_change_of_place_is_shown_and_said({ open, host, shot }) {
  await full(host);
  const first = await host('ask', 'ann', { gpus: 2, flavor: A100, server: 'a' });
  const second = await host('ask', 'cyd', { gpus: 2, flavor: A100, tenant: 'vision', server: 'c' });
  const page = await open('cyd', room(second.id));
  await seen(place(page), '2');
  await seen(page.locator('.al-front'), 'What those in front wait for');
  await shot(page, 'waiting-room-second');
  await host('call', 'ann', 'DELETE', `requests/${first.id}`);
  await seen(place(page), '1', 6_000);
  await seen(page.locator('#announcer'), 'You are number 1 of 1 in line.');
  await seen(page.locator('.al-history'), 'place 2 → 1');
  assert.equal(await page.locator('.al-ladder .done').count(), 1);
  assert.match(await page.title(), /^1 · Waiting room/);
}

export async function the_line_is_left_by_keyboard_alone({ open, host }) {
  await full(host);
  const asked = await host('ask', 'ann', { gpus: 2, flavor: A100 });
  const page = await open('ann', room(asked.id));
  const reach = async name => {
    for (let tries = 0; tries < 40; tries += 1) {
      await page.keyboard.press('Tab');
      const text = await page.evaluate(() => document.activeElement.textContent.trim());
      if (text === name) {
        return;
      }
    }
    assert.fail(`${name} cannot be reached by Tab`);
  };
  await reach('Leave the line');
  await page.keyboard.press('Enter');
  await seen(page.locator('#announcer'), 'Leave the line? Your place is lost.');
  // The safe answer has the focus.
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'No');
  await page.keyboard.press('Shift+Tab');
  await page.keyboard.press('Space');
  await seen(heading(page), 'You left the line');
  const row = await host('call', 'ann', 'GET', `requests/${asked.id}`);
  assert.equal(row.state, 'cancelled');
  await page.getByRole('link', { name: 'Ask again' }).click();
  await page.waitForURL(/\/new\?.*gpus=2/);
  assert.equal(await page.getByLabel('How many GPUs').inputValue(), '2');
}

export async function a_request_is_changed_while_it_waits({ open, host }) {
  await full(host);
  const asked = await host('ask', 'ann', { gpus: 2, flavor: A100, duration: '4h' });
  const page = await open('ann', room(asked.id), { quiet: true });
  await page.getByRole('button', { name: 'Change' }).click();
  await page.getByLabel('GPUs', { exact: true }).fill('0');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('alert').waitFor();
  await page.getByLabel('GPUs', { exact: true }).fill('1');
  await page.getByLabel('How long').fill('2h');
  await page.getByLabel(/even if I am not here/).check();
  await page.getByRole('button', { name: 'Save' }).click();
  await seen(heading(page), '1 × A100 80 GB');
  const row = await host('call', 'ann', 'GET', `requests/${asked.id}`);
  assert.deepEqual([row.asked.gpus, row.asked.duration, row.asked.start], [1, '2h', 'always']);
  assert.equal(row.submitted_at, asked.submitted_at, 'asking for less keeps the age');
}

export async function the_page_outlives_the_governor({ open, host, shot }) {
  await full(host);
  await host('ask', 'ann', { gpus: 4, flavor: A100, server: 'a' });
  const asked = await host('ask', 'cyd', { gpus: 2, flavor: A100, tenant: 'vision' });
  const page = await open('cyd', room(asked.id), { quiet: true });
  await seen(place(page), '2');
  await seen(page.locator('.al-news'), 'Up to date by itself');
  await host('kill');
  await seen(page.locator('.al-news'), 'Allotment does not answer. What you see is from', 20_000);
  await seen(place(page), '2');
  await shot(page, 'governor-down');
  await host('start');
  await seen(page.locator('.al-news'), 'Up to date by itself', 40_000);
}

export async function a_held_grant_starts_when_its_owner_comes({ open, host }) {
  const held = await full(host);
  const asked = await host('ask', 'ann', { gpus: 2, flavor: A100 });
  // Whoever looked before the governor ended is not known to look now; the stand-in servers are
  // gone with it, so that it is ann's turn.
  await host('kill');
  await host('start');
  const granted = await host('wait_for', 'ann', asked.id, 'granted');
  assert.ok(granted.held_until);
  const admin = await open('root', room(asked.id));
  await seen(heading(admin), 'It is your turn');
  await seen(admin.locator('.al-countdown'), /^(9|10):\d\d$/);
  const page = await open('ann', room(asked.id));
  await seen(heading(page), /about to start|getting ready|running/);
  await host('wait_for', 'ann', asked.id, 'active');
  assert.ok(held.id);
}

export async function a_parked_place_is_rejoined({ open, host, shot }) {
  const { policy } = await host('call', 'root', 'GET', 'policy');
  policy.classes.notebook.claim_window = '1s';
  await host('call', 'root', 'PUT', 'policy', { text: JSON.stringify(policy) });
  await full(host);
  const asked = await host('ask', 'ann', { gpus: 2, flavor: A100 });
  await host('kill');
  await host('start');
  await host('parked', 'ann', asked.id);
  const page = await open('ann', room(asked.id));
  await seen(heading(page), 'Your place is parked');
  await seen(page.locator('.al-reason'), 'It was your turn while nobody was here');
  await shot(page, 'parked');
  await page.getByRole('button', { name: 'Rejoin the line' }).click();
  await seen(heading(page), 'Your session is running');
  const row = await host('call', 'ann', 'GET', `requests/${asked.id}`);
  assert.equal(row.submitted_at, asked.submitted_at);
}

/** A proxy that holds back every stream, as nginx does with its default settings. */
async function bufferingProxy(target) {
  const { hostname, port } = new URL(target);
  const server = createServer((incoming, outgoing) => {
    const onward = httpRequest(
      { hostname, port, path: incoming.url, method: incoming.method, headers: incoming.headers },
      answer => {
        if (String(answer.headers['content-type']).startsWith('text/event-stream')) {
          answer.resume();
          return;
        }
        outgoing.writeHead(answer.statusCode, answer.headers);
        answer.pipe(outgoing);
      }
    );
    onward.on('error', () => outgoing.destroy());
    outgoing.on('close', () => onward.destroy());
    incoming.pipe(onward);
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  return server;
}

export async function a_proxy_that_buffers_hides_nothing({ open, host, url }) {
  await full(host);
  const first = await host('ask', 'ann', { gpus: 4, flavor: A100, server: 'a' });
  const second = await host('ask', 'cyd', { gpus: 2, flavor: A100, tenant: 'vision' });
  const proxy = await bufferingProxy(url);
  const at = `http://127.0.0.1:${proxy.address().port}${new URL(url).pathname}`;
  const page = await open('cyd', room(second.id), { at, quiet: true });
  await seen(place(page), '2', 15_000);
  await seen(page.locator('.al-news'), 'asks again every few seconds');
  await host('call', 'ann', 'DELETE', `requests/${first.id}`);
  await seen(place(page), '1', 15_000);
  await page.context().close();
  proxy.closeAllConnections();
  proxy.close();
}

export async function names_are_text_wherever_they_stand({ open, host }) {
  const nasty = await host('ask', '<img src=x onerror=alert(1)> "q" \'s\' & 名', {
    gpus: 2,
    flavor: A100,
    server: '<b onmouseover=alert(2)>"x"'
  });
  await host('wait_for', 'root', nasty.id, 'active');
  for (const [who, path] of [
    ['nasty', ''],
    [
      'nasty',
      'new?server=%3Cscript%3Ealert(3)%3C/script%3E&flavor=%22%3E%3Cimg%20src=x%3E&next=//evil.example/'
    ],
    ['nasty', room(nasty.id)],
    ['root', 'console'],
    ['root', `ended/${nasty.lease}`]
  ]) {
    const page = await open(who, path, { quiet: path.startsWith('new') });
    await page.waitForTimeout(300);
    const markup = await page.evaluate(
      () =>
        document.querySelectorAll('main img, main b[onmouseover], main script, main [onerror]')
          .length
    );
    assert.equal(markup, 0, path);
    await page.context().close();
  }
  const page = await open('root', 'console');
  await seen(page.locator('td'), '<img src=x onerror=alert(1)>');
}

export async function every_page_can_be_used_by_everybody({ open, host, shot }) {
  await full(host);
  const waiting = await host('ask', 'ann', { gpus: 2, flavor: A100 });
  const done = await host('ask', 'lin', { gpus: 1, flavor: 'l40s' });
  const lease = await host('wait_for', 'lin', done.id, 'active');
  const paths = [
    ['ann', '', 'home'],
    ['ann', 'new', 'new'],
    ['ann', room(waiting.id), 'room'],
    ['bob', '', 'holder'],
    ['lin', `ended/${lease.id}`, 'ended'],
    ['root', 'console', 'console']
  ];
  for (const [who, path, name] of paths) {
    for (const [look, options] of [
      ['light', {}],
      ['dark-narrow', { colorScheme: 'dark', viewport: { width: 360, height: 740 } }],
      ['zh-wide', { locale: 'zh-CN', viewport: { width: 1600, height: 900 } }]
    ]) {
      const page = await open(who, path, options);
      await page.waitForTimeout(400);
      await shot(page, `${name}-${look}`);
      assert.deepEqual(await audit(page), [], `${name}, ${look}`);
      if (look === 'zh-wide') {
        assert.equal(await page.evaluate(() => document.documentElement.lang), 'zh-Hans');
      }
      await page.context().close();
    }
  }
}

export async function the_console_pauses_drains_and_changes_the_policy({ open, host }) {
  const page = await open('root', 'console');
  await page.getByLabel('Why new starts are paused').fill('moving racks <b>');
  await page.getByRole('button', { name: 'Pause new starts' }).click();
  await page.getByRole('button', { name: 'Yes' }).click();
  await seen(page.locator('.al-pause'), 'New starts are paused');
  const asked = await host('ask', 'ann', { gpus: 1 });
  const other = await open('ann', room(asked.id));
  await seen(
    other.locator('.al-reason'),
    'An administrator has paused new starts: moving racks <b>.'
  );
  await page.getByRole('button', { name: 'Go on' }).click();
  await host('wait_for', 'ann', asked.id, 'active');
  await page.getByRole('row', { name: /^n2/ }).getByRole('button', { name: 'Drain' }).click();
  await page.getByRole('button', { name: 'Yes' }).click();
  await seen(page.getByRole('row', { name: /^n2/ }), 'draining');

  await page.getByText('Look at it, check another, apply').click();
  const text = page.getByLabel('Policy file');
  await page.waitForFunction(() => document.getElementById('policy-text').value.includes('vision'));
  const before = await text.inputValue();
  await text.fill(`${before}\nnonsense: 1\n`);
  await page.getByRole('button', { name: 'Check', exact: true }).click();
  await seen(page.locator('.alert-danger'), 'nonsense');
  await text.fill(before.replace('protected: 30m', 'protected: 20m'));
  await page.getByRole('button', { name: 'Check', exact: true }).click();
  await seen(page.locator('main'), 'It can be applied.');
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByRole('button', { name: 'Yes' }).click();
  await seen(page.locator('main'), 'Version 2 is in force');
  const policy = await host('call', 'root', 'GET', 'policy');
  assert.match(policy.text, /protected: 20m/);
  await page.getByText('History', { exact: true }).click();
  await page.getByRole('button', { name: 'Go back to it' }).click();
  await page.getByRole('button', { name: 'Yes' }).click();
  await seen(page.locator('main'), 'Version 3 is in force');
}

export async function the_console_is_for_admins({ open, url, browser, tokens }) {
  const page = await open('ann', '');
  assert.equal(await page.getByRole('link', { name: 'Console' }).count(), 0);
  const answer = await page.context().request.get(`${url}console`);
  assert.equal(answer.status(), 403);
  const stranger = await (
    await browser.newContext()
  ).request.get(`${url}console`, { maxRedirects: 0 });
  assert.equal(stranger.status(), 302);
  assert.ok(tokens.ann);
}

export async function a_session_is_renewed_and_given_back_and_its_end_explained({
  open,
  host,
  shot,
  url
}) {
  const held = await full(host);
  const page = await open('bob', '');
  const card = page.locator('.al-lease');
  await seen(card, 'borrowed: 2 from vision');
  await card.getByRole('button', { name: 'Renew (2 left)' }).click();
  await seen(card, 'Renew (1 left)');
  await card.getByRole('button', { name: 'Stop and give back' }).click();
  await card.getByRole('button', { name: 'Yes' }).click();
  await seen(page.locator('main'), 'You hold no GPUs.');
  const ended = await open('bob', `ended/${held.lease}`);
  await seen(heading(ended), 'Your session has ended: 4 × A100 80 GB');
  await seen(ended.locator('main'), 'The GPUs were given back by their holder.');
  await shot(ended, 'ended');
  await ended.goto(`${url}ended?server=big`);
  await seen(heading(ended), 'Your session has ended: 4 × A100 80 GB');
  await ended.getByRole('link', { name: 'New session like this' }).click();
  await ended.waitForURL(/\/new\?gpus=4/);
  await seen(ended.locator('.al-outcome'), '4 × A100 80 GB');
}

export async function notice_is_given_where_the_holder_looks({ open, host }) {
  await full(host);
  await host('ask', 'ann', { gpus: 2, flavor: A100 });
  const page = await open('bob', '');
  await seen(page.locator('.al-lease'), /running|notice given/);
}

export async function who_has_no_team_is_told_so({ open }) {
  const page = await open('guest', 'new');
  await seen(page.locator('main'), 'You belong to no team that has a quota here.');
  assert.equal(await page.getByRole('button', { name: 'Start' }).count(), 0);
}

export async function what_cannot_ever_start_is_said_before_it_is_asked({ open }) {
  const page = await open('ann', 'new');
  await page.getByLabel('How many GPUs').fill('9');
  await seen(page.locator('.al-outcome'), 'Cannot start like this');
  await seen(page.locator('.al-outcome'), 'vision may use at most 4 GPUs of A100 80 GB.');
  assert.ok(await page.locator('button[type=submit]').isDisabled());
  await page.getByLabel('How many GPUs').fill('1');
  await seen(page.locator('.al-outcome'), 'Starts now');
  assert.ok(await page.locator('button[type=submit]').isEnabled());
}

export async function pressing_twice_asks_once({ open, host }) {
  const page = await open('ann', 'new');
  await seen(page.locator('.al-outcome'), 'Starts now');
  await page.evaluate(() => {
    const form = document.querySelector('form');
    form.requestSubmit();
    form.requestSubmit();
  });
  await page.waitForURL(/\/waiting\//);
  const me = await host('call', 'ann', 'GET', 'me');
  assert.equal(me.requests.length, 1);
}

export async function others_requests_are_not_there({ open, host }) {
  const asked = await host('ask', 'bob', { gpus: 1 });
  const page = await open('ann', room(asked.id), { quiet: true });
  await seen(heading(page), 'There is no such request.');
  const nothing = await open('ann', room('r-0000000000000000'), { quiet: true });
  await seen(heading(nothing), 'There is no such request.');
}

export async function language_and_theme_are_kept({ open }) {
  const page = await open('ann', '');
  await page.getByRole('button', { name: '中文' }).click();
  await seen(heading(page), 'GPU');
  await seen(page.locator('main'), '您没有占用 GPU。');
  await page.getByRole('button', { name: '深色或浅色' }).click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.bsTheme), 'dark');
  await page.reload();
  await seen(page.locator('main'), '您没有占用 GPU。');
  assert.equal(await page.evaluate(() => document.documentElement.dataset.bsTheme), 'dark');
}
