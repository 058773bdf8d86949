import eslint from '@eslint/js';
import reactHooks from 'eslint-plugin-react-hooks';
import tseslint from 'typescript-eslint';

/** Names that are there without being imported, for `languageOptions.globals`. */
const given = names => Object.fromEntries(names.map(n => [n, 'readonly']));
const BROWSER = [
  'AbortController',
  'BroadcastChannel',
  'CSS',
  'CustomEvent',
  'Event',
  'EventSource',
  'Intl',
  'Node',
  'NodeFilter',
  'TextDecoderStream',
  'URL',
  'URLSearchParams',
  'clearInterval',
  'clearTimeout',
  'console',
  'crypto',
  'document',
  'fetch',
  'getComputedStyle',
  'history',
  'localStorage',
  'location',
  'matchMedia',
  'navigator',
  'performance',
  'queueMicrotask',
  'requestAnimationFrame',
  'sessionStorage',
  'setInterval',
  'setTimeout',
  'structuredClone',
  'window'
];
const NODE = ['Buffer', 'URL', 'console', 'process', 'setTimeout'];

export default tseslint.config(
  {
    ignores: [
      '**/node_modules/',
      '.venv*/',
      'labext/lib/',
      'server_ext/allotment/labextension/',
      'coverage/',
      'dist/'
    ]
  },
  eslint.configs.recommended,
  {
    files: ['labext/src/**/*.{ts,tsx}'],
    extends: [tseslint.configs.strictTypeChecked],
    plugins: { 'react-hooks': reactHooks },
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      ...reactHooks.configs.recommended.rules,
      // A token and its interface share one name, as everywhere in JupyterLab.
      '@typescript-eslint/no-redeclare': 'off',
      '@typescript-eslint/restrict-template-expressions': [
        'error',
        { allowNumber: true }
      ]
    }
  },
  {
    // Pages of the hub service, which run in the browser without a build step.
    files: ['hub_ext/**/*.js'],
    languageOptions: { sourceType: 'module', globals: given(BROWSER) }
  },
  {
    // Tests that drive a page: parts of them run in it.
    files: ['tests/**/*.mjs'],
    languageOptions: { globals: given([...NODE, ...BROWSER]) }
  },
  {
    files: ['**/*.cjs'],
    languageOptions: {
      sourceType: 'commonjs',
      globals: given([
        'Headers',
        'Request',
        'Response',
        'fetch',
        'globalThis',
        'module',
        'require'
      ])
    }
  }
);
