import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

/** The path of the server extension below the server's base URL. */
const NAMESPACE = 'allotment';

/**
 * Where the server extension answers.
 *
 * @param settings - how this page reaches its own server; behind a hub its base URL has a prefix
 */
export function apiUrl(settings: ServerConnection.ISettings): string {
  return URLExt.join(settings.baseUrl, NAMESPACE);
}
