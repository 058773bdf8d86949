import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';

import { apiUrl } from './api';
import { IAllotment } from './tokens';

export { IAllotment } from './tokens';

const core: JupyterFrontEndPlugin<IAllotment> = {
  id: 'jupyter-allotment:core',
  description: 'Knows where the server extension answers.',
  autoStart: true,
  provides: IAllotment,
  activate: (app: JupyterFrontEnd): IAllotment => ({
    apiUrl: apiUrl(app.serviceManager.serverSettings)
  })
};

export default [core];
