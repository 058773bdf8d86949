// What a person with a keyboard, a screen reader, weak sight or a small screen needs; a list of
// what is missing.

/** @returns faults as text, none when all is well */
export async function audit(page) {
  const faults = await page.evaluate(inPage);
  return [...faults, ...(await names(page))];
}

/** Every control has a name in the accessibility tree. */
async function names(page) {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send('Accessibility.getFullAXTree');
  const roles = [
    'button',
    'link',
    'textbox',
    'combobox',
    'checkbox',
    'radio',
    'spinbutton',
    'image',
    'img'
  ];
  return nodes
    .filter(node => !node.ignored && roles.includes(node.role?.value) && !node.name?.value)
    .map(node => `a ${node.role.value} has no name`);
}

function inPage() {
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    faults.push(`the page is ${root.scrollWidth - root.clientWidth} px too wide`);
  }
  if (document.querySelectorAll('h1').length !== 1) {
    faults.push('there is not exactly one h1');
  }
  const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
  for (const id of ids) {
    if (ids.indexOf(id) !== ids.lastIndexOf(id)) {
      faults.push(`the id ${id} is given twice`);
    }
  }
  if (!document.querySelector('[aria-live=polite]')) {
    faults.push('changes are not announced');
  }

  const colour = text => {
    const canvas = document.createElement('canvas');
    canvas.width = canvas.height = 1;
    const context = canvas.getContext('2d', { willReadFrequently: true });
    context.fillStyle = text;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return { r, g, b, a: a / 255 };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a),
    g: top.g * top.a + below.g * (1 - top.a),
    b: top.b * top.a + below.b * (1 - top.a),
    a: 1
  });
  const background = element => {
    const layers = [];
    for (let node = element; node; node = node.parentElement) {
      const found = colour(getComputedStyle(node).backgroundColor);
      layers.push(found);
      if (found.a === 1) {
        break;
      }
    }
    return layers.reduceRight((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map(part => {
      const value = part / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const told = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (
      !text ||
      !element.checkVisibility({ opacityProperty: true }) ||
      element.closest('.visually-hidden, .al-skip, noscript, option')
    ) {
      continue;
    }
    if (element.closest('[aria-busy=true], :disabled')) {
      continue;
    }
    const style = getComputedStyle(element);
    const below = background(element);
    const lights = [light(over(colour(style.color), below)), light(below)].sort((a, b) => b - a);
    const contrast = (lights[0] + 0.05) / (lights[1] + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? 3 : 4.5)) {
      told.add(`"${text.slice(0, 40)}" has a contrast of ${contrast.toFixed(2)}`);
    }
  }
  return [...faults, ...told];
}
