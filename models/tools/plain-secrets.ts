// Secrets have a place of their own, where they are sealed and never shown. These rules find the ones that were put elsewhere.

/** Names that say that their value is a secret: of query parameters, headers and options. */
const secretName = new RegExp(
  [
    String.raw`^-*key$`,
    String.raw`(^|[^a-z])(api|access|auth|bot|client|private|refresh|secret|session|shared|subscription|user)[-_]?(key|token|secret|passw(or)?d|pass)$`,
    String.raw`(^|[^a-z])(token|secret|passw(or)?d|pwd|auth|authorization|credentials?|cookie|sig|signature|bearer|jwt|session[-_]?id)$`,
  ].join('|'),
  'i',
)

/** How well-known keys and tokens begin. */
const knownForm =
  /(^|[^A-Za-z0-9])(sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*|npm_\w{30,}|hf_\w{20,}|kl[a-z]_[\w-]{20,})|-----BEGIN [A-Z ]*PRIVATE KEY-----/

/** A whole placeholder is filled in at each call, and is no secret. */
const placeholder = /^\{\w+\}$/

const isSecretName = (name: string): boolean => secretName.test(name)
const hasKnownForm = (text: string): boolean => knownForm.test(text)

/** Why the URL holds a secret, in words that do not repeat it; null if none is found. */
export function secretInUrl(text: string): string | null {
  const url = URL.parse(text)
  if (!url) return null
  if (url.username || url.password) return 'it has a user or a password'
  for (const [name, value] of url.searchParams)
    if (value && !placeholder.test(value) && isSecretName(name)) return `its parameter ${name} is a secret`
  return hasKnownForm(decoded(text)) ? 'a part of it has the form of a key' : null
}

/** The same for a header. */
export function secretInHeader(name: string, value: string): string | null {
  if (isSecretName(name)) return 'a header of this name holds a secret'
  if (/^(bearer|basic)\s+\S/i.test(value) || hasKnownForm(value)) return 'its value has the form of a key'
  return null
}

/** The same for the arguments of a command: `--api-key=…`, or `--api-key` before its value. */
export function secretInArguments(args: string[]): string | null {
  for (const [i, arg] of args.entries()) {
    const [option = '', value] = arg.split(/=(.*)/s)
    const given = value ?? args[i + 1]
    if (option.startsWith('-') && isSecretName(option) && given && !given.startsWith('-'))
      return `the option ${option} holds a secret`
    if (hasKnownForm(arg) || secretInUrl(arg)) return 'an argument has the form of a key'
  }
  return null
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text // a lone %
  }
}
