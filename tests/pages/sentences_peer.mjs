// Says what the browser would say: reads {now, cases} from stdin, writes a list of texts.
import { readFileSync } from 'node:fs';

const pages = new URL('../../hub_ext/allotment_hub/', import.meta.url);
const script = new URL('web/pages/static/js/sentences.js', pages);
const { reason, useCatalogue } = await import(
  `data:text/javascript,${encodeURIComponent(readFileSync(script, 'utf8'))}`
);
const catalogues = {};
for (const lang of ['en', 'zh']) {
  catalogues[lang] = JSON.parse(readFileSync(new URL(`locale/${lang}.json`, pages), 'utf8'));
}
const { now, cases } = JSON.parse(readFileSync(0, 'utf8'));
const texts = cases.map(({ code, evidence, lang }) => {
  useCatalogue(catalogues[lang]);
  return reason(code, evidence, { now: new Date(now), zone: 'UTC' });
});
process.stdout.write(JSON.stringify(texts));
