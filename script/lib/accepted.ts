// What the audit and the secret scan of script/test find and let pass, each with its reason.

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
