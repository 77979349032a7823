// What others send may hold the secret that they were sent. It is taken out before anybody else sees it.

/** Shorter ones are found by chance, and taking them out would show where they are. */
const shortest = 6

/** A function that takes the secrets out of all texts of a JSON value, in the forms in which they travel. */
export function makeRedactor(secrets: string[]): <T>(value: T) => T {
  const forms = secrets
    .filter((secret) => secret.length >= shortest)
    .flatMap((secret) => [
      secret,
      encodeURIComponent(secret),
      JSON.stringify(secret).slice(1, -1),
      Buffer.from(secret).toString('base64'),
      Buffer.from(secret).toString('base64url'),
    ])
    .toSorted((a, b) => b.length - a.length)
  const clean = (text: string): string =>
    forms.reduce((before, form) => before.replaceAll(form, '[secret]'), text)
  const walk = (value: unknown): unknown => {
    if (typeof value === 'string') return clean(value)
    if (Array.isArray(value)) return value.map(walk)
    if (typeof value !== 'object' || value === null) return value
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [clean(name), walk(inner)]))
  }
  return <T>(value: T): T => (forms.length ? (walk(value) as T) : value)
}
