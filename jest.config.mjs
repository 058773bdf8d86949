// JupyterLab and its relatives ship ES modules, which Jest has to transform.
const MODULES_TO_TRANSFORM = [
  '@jupyterlab',
  '@jupyter',
  '@jupyter-notebook',
  '@lumino',
  '@microsoft',
  'exenv-es6',
  'lib0',
  'y-.*',
  'yjs'
];

export default {
  testEnvironment: '<rootDir>/labext/jest-environment.cjs',
  roots: ['<rootDir>/labext/src'],
  testRegex: '/__tests__/.*\\.spec\\.tsx?$',
  transform: {
    '\\.[mc]?[jt]sx?$': ['@swc/jest', {}]
  },
  transformIgnorePatterns: [
    `/node_modules/(?!(${MODULES_TO_TRANSFORM.join('|')})/)`
  ],
  moduleNameMapper: {
    '\\.(css|svg|png)$': '<rootDir>/labext/asset-stub.cjs'
  }
};
