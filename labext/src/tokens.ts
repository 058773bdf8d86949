import { Token } from '@lumino/coreutils';

/** What other extensions may use of Allotment. */
export interface IAllotment {
  /** Where the server extension answers: the base of every call. */
  readonly apiUrl: string;
}

export const IAllotment = new Token<IAllotment>(
  'jupyter-allotment:IAllotment',
  'The user’s GPU leases, requests and notices.'
);
