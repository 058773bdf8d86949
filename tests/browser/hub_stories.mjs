// What people do at a real hub. Servers are real ones and take their time.
import assert from 'node:assert/strict';
import { audit } from './audit.mjs';

const A100 = 'a100-80g';
const SLOW = 90_000;

const heading = page => page.getByRole('heading', { level: 1 });

async function seen(locator, text, timeout = 20_000) {
  await locator.filter({ hasText: text }).first().waitFor({ timeout });
}

export async function a_session_opens_by_itself_when_it_is_up({ open, hub, host, shot }) {
  const page = await open('ann', 'new', { quiet: true });
  await seen(page.locator('.al-news'), 'Up to date by itself');
  await seen(page.locator('.al-outcome'), 'Starts now');
  assert.deepEqual(await audit(page), []);
  await shot(page, 'hub-spawn-form');
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await page.waitForURL(/\/waiting\//);
  await seen(heading(page), /about to start|getting ready/);
  assert.deepEqual(await audit(page), []);
  await page.waitForURL(url => url.pathname.startsWith('/user/ann/'), { timeout: SLOW });
  const { leases } = await host('call', 'ann', 'GET', 'me');
  assert.equal(leases[0].state, 'active');

  await host('call', 'ann', 'POST', `leases/${leases[0].id}/release`, {});
  await host('gone', 'ann', '');
  await page.goto(`${hub}/hub/user/ann/`);
  await page.getByRole('link', { name: 'What happened to its GPUs' }).click();
  await seen(heading(page), 'Your session has ended: 1 × A100 80 GB');
}

export async function who_waits_gets_the_session_when_it_is_the_turn({ open, host, hub, shot }) {
  const held = await host('call', 'bob', 'POST', 'requests', {
    gpus: 3,
    flavor: A100,
    server: 'big'
  });
  const page = await open('cyd', 'new', { quiet: true });
  await page.getByLabel('For which team').selectOption('nlp');
  await page.getByLabel('How many GPUs').fill('2');
  await seen(page.locator('.al-outcome'), 'Waits in line');
  await page.getByRole('button', { name: 'Join the line' }).click();
  await seen(heading(page), 'Your session is in line: 2 × A100 80 GB');
  assert.deepEqual(await audit(page), []);
  await shot(page, 'hub-waiting-room');
  await host('ready', 'bob', 'big');
  await host('call', 'bob', 'POST', `leases/${held.lease}/release`, {});
  await page.waitForURL(url => url.pathname.startsWith('/user/cyd/'), { timeout: SLOW });
  assert.ok(hub);
}

export async function the_hub_s_own_form_leads_here({ open, hub }) {
  const page = await open('bob', '', { quiet: true });
  assert.deepEqual(await audit(page), []);
  await page.goto(`${hub}/hub/spawn/bob/extra`);
  await page.getByRole('link', { name: /plan a GPU session/ }).click();
  await seen(heading(page), 'New session “extra”');
  await page.getByRole('link', { name: 'Start without a GPU' }).click();
  await page.waitForURL(/\/hub\/spawn\/bob\/extra/);
}

export async function an_admin_of_the_hub_has_the_console({ open }) {
  const page = await open('admin', 'console', { quiet: true });
  await seen(heading(page), 'Console');
  await seen(page.locator('.al-news'), 'Up to date by itself');
  assert.deepEqual(await audit(page), []);
}
