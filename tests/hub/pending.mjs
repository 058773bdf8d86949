// The hub's page of a start that is under way, in a real Chromium.
import assert from 'node:assert/strict';

async function logIn(browser, hub, who) {
  const page = await (await browser.newContext()).newPage();
  await page.goto(`${hub}/hub/login`);
  await page.locator('input[name=username]').fill(who);
  await page.locator('input[name=password]').fill('x');
  await page.locator('input[type=submit], button[type=submit]').first().click();
  await page.locator('#logout').waitFor();
  return page;
}

export async function who_must_wait_is_taken_to_the_waiting_room({ browser, hub }) {
  const page = await logIn(browser, hub, 'ann');
  await page.goto(`${hub}/hub/spawn/ann/slow`);
  await page.getByLabel('Number of GPUs').fill('1');
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  // The gate takes longer than the hub waits, so its own page of progress comes in between.
  await page.waitForURL(/spawn-pending/);
  await page.waitForURL(/services\/allotment\/waiting\/r1/);
}

export async function the_stop_button_stops_the_server_of_its_page({ browser, hub, host }) {
  const page = await logIn(browser, hub, 'ann');
  await host('begin', 'ann', 'deaf');
  await page.goto(`${hub}/hub/spawn-pending/ann/deaf`);
  await page.locator('#stop-server-btn').click();
  assert.equal(await host('stopped', 'ann', 'deaf'), true);
}

export async function a_hub_that_restarts_is_noticed({ browser, hub, host }) {
  const page = await logIn(browser, hub, 'ann');
  await host('begin', 'ann', 'deaf');
  await page.goto(`${hub}/hub/spawn-pending/ann/deaf`);
  await page.locator('#progress-bar').waitFor();
  await host('restart');
  await page.waitForFunction(() => !document.querySelector('#progress-bar'), null, {
    timeout: 60000
  });
}
