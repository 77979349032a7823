// What is shown of a secret after its creation: enough to tell two apart, and to compare with the one that a caller has.

const shownChars = 4

/** The last four characters of a generated secret. */
export const endOf = (secret: string): string => secret.slice(-shownChars)

/** The last four characters of a secret that a tenant gave; null if they would be much of it. */
export const hintOf = (secret: string): string | null =>
  secret.length < 4 * shownChars ? null : endOf(secret)
