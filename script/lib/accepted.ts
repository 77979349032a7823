// What the audit, the secret scan and the test of licences find and let pass, each with its reason.

export interface AcceptedAdvisory {
  /** `GHSA-…`, from the advisory's address. */
  id: string
  reason: string
  /** The last day, as `2027-01-31`. From the next one on it fails again. */
  until: string
}

export interface AcceptedSecret {
  /** From the repository's root. */
  file: string
  /** As the scan names it: `privatekey`. */
  rule: string
  reason: string
}

export const acceptedAdvisories: AcceptedAdvisory[] = []

/** One that accepts nothing any more fails, so that it cannot cover a later secret. */
export const acceptedSecrets: AcceptedSecret[] = []

/** Licences of the npm packages that Keelson runs with, as package-lock.json or the package writes them. */
export const acceptedLicences: string[] = [
  '(BSD-3-Clause OR GPL-2.0)', // taken as BSD-3-Clause
  '(MIT OR CC0-1.0)',
  '0BSD',
  'Apache-2.0',
  'Apache-2.0 AND MIT',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'CC-BY-4.0', // data about browsers, which the build of the workflows' bundle reads
  'ISC',
  'MIT',
  'MIT-0',
  'Unlicense',
]

/** Packages that name their licence in their files alone, and what it is. */
export const licencesByHand: Record<string, string> = {
  ssh2: 'MIT', // in the older form, as a list
  unionfs: 'Unlicense',
}
