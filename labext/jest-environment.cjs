const { TestEnvironment } = require('jest-environment-jsdom');
const { TextDecoder, TextEncoder } = require('node:util');

/** A jsdom page with the browser globals that jsdom lacks and JupyterLab's packages expect. */
module.exports = class PageEnvironment extends TestEnvironment {
  async setup() {
    await super.setup();
    Object.assign(this.global, {
      TextDecoder,
      TextEncoder,
      fetch,
      Headers,
      Request,
      Response
    });
  }
};
