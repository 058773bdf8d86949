// Plays one story in a real Chromium. Speaks with the Python test that started it by lines of
// JSON: it asks for what only that side can do (REST as others, ending the governor).
import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const [file, name] = process.argv.slice(2);
const { url, hub, tokens, chromium: executablePath, shots } = JSON.parse(process.env.STORY);
const stories = await import(`./${file}`);

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function host(act, ...args) {
  process.stdout.write(`${JSON.stringify({ act, args })}\n`);
  const { value } = await lines.next();
  return JSON.parse(value).answer;
}

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
const faults = [];

/** A page of somebody who has logged in. Whatever its console complains about fails the story. */
async function open(who, path, options = {}) {
  const { at = url, quiet = false, ...context } = options;
  const opened = await browser.newContext({
    viewport: { width: 1100, height: 800 },
    timezoneId: 'Asia/Shanghai',
    locale: 'en-US',
    reducedMotion: 'reduce',
    ...context
  });
  const page = await opened.newPage();
  page.on('pageerror', error => faults.push(`${path}: ${error.message}`));
  page.on('dialog', dialog => faults.push(`${path}: a dialog: ${dialog.message()}`));
  page.on('console', message => {
    if (message.type() === 'error' && !quiet) {
      faults.push(`${path}: ${message.text()} ${message.location().url}`);
    }
  });
  if (hub) {
    await page.goto(`${hub}/hub/login`);
    await page.locator('input[name=username]').fill(who);
    await page.locator('input[name=password]').fill('x');
    await page.locator('input[type=submit], button[type=submit]').first().click();
    await page.locator('#logout').waitFor();
    await page.goto(`${at}${path}`);
  } else {
    await page.goto(`${at}${path}`);
    await page.getByLabel(/Token|令牌/).fill(tokens[who]);
    await page.getByRole('button', { name: /Log in|登录/ }).click();
  }
  await page.locator('#content:not([aria-busy])').waitFor();
  assert.equal(new URL(page.url()).pathname, new URL(`${at}${path}`).pathname, 'log-in leads back');
  return page;
}

const shot = async (page, file) => {
  if (shots) {
    await page.screenshot({ path: `${shots}/${file}.png`, fullPage: true });
  }
};

let code = 0;
try {
  await stories[name]({ open, host, url, hub, tokens, shot, browser });
  assert.deepEqual(faults, []);
} catch (error) {
  code = 1;
  process.stderr.write(`${error.stack}\n${faults.join('\n')}\n`);
} finally {
  await browser.close();
}
process.stdout.write(`${JSON.stringify({ act: 'end' })}\n`);
process.exit(code);
