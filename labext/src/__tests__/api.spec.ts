import { ServerConnection } from '@jupyterlab/services';

import { apiUrl } from '../api';

describe('apiUrl', () => {
  it.each([
    ['http://localhost:8888/', 'http://localhost:8888/allotment'],
    [
      'https://hub.example/user/ann/gpu/',
      'https://hub.example/user/ann/gpu/allotment'
    ]
  ])('keeps the prefix of %s', (baseUrl, expected) => {
    const settings = ServerConnection.makeSettings({ baseUrl });
    expect(apiUrl(settings)).toBe(expected);
  });
});
